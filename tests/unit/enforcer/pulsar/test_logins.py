"""How a connection of the Pulsar proxy begins, and whose it is."""

import pytest
from each_kit import each
from pulsar_rig import BROKER, MESSAGE, SEND, PulsarRig, Seeing, connect, connected

from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import CONNECTION, ServerError, command, error, parse
from streaming.contract.events import ANONYMOUS

TOKEN = b"e30.eyJzdWIiOiJhbGljZSJ9.x"
CHALLENGE = command(frames.AUTH_CHALLENGE, challenge={"auth_method_name": "token"})


def test_a_login_passes(rig: PulsarRig) -> None:
    """CONNECT goes on without the broker that it names, CONNECTED comes back as it is, then all passes."""
    rig.up(connect(auth_method_name="token", auth_data=TOKEN, proxy_to_broker_url="broker-1:6650"))
    assert rig.upstream.target == BROKER and not rig.client.reading
    rig.dialled()
    assert rig.client.reading and rig.connection.user == ANONYMOUS
    sent = parse(rig.broker.data)
    assert not sent.HasField("proxy_to_broker_url") and sent.auth_data == TOKEN
    rig.down(connected())
    assert rig.client.data == connected() and rig.connection.user == "alice"
    assert rig.connection.asks_only
    assert rig.connection.connect == rig.broker.data
    rig.broker.data = b""
    rig.up(SEND * 3)
    rig.down(MESSAGE)
    assert rig.broker.data == SEND * 3 and rig.client.data == connected() + MESSAGE
    assert rig.metrics.traffic.frames_in == 4


def test_behind_a_proxy_of_pulsars_the_broker_stays_named(rig: PulsarRig) -> None:
    """Brokers may be reached through it alone; one of --pulsar is that itself."""
    assert rig.targets.learn("pulsar+ssl://b-2:6651", through=True) == ("b-2", 6651)
    rig.knock(proxy_to_broker_url="b-2:6651")
    assert rig.upstream.target == BROKER and rig.broker.data == connect(proxy_to_broker_url="b-2:6651")
    # Limits of dispatch are each broker's, by whatever way.
    assert rig.connection.broker == ("b-2", 6651) and not rig.targets.through(BROKER)
    for url, through in (("pulsar://b-3:6650", False), ("pulsar://broker-1:6650", True)):
        rig.targets.learn("pulsar://b-2:6650", through=True)
        rig.targets.learn(url, through=through)
        assert not rig.targets.through(("b-3", 6650))
    # A broker behind it, which a client has chosen, does not say it for others.
    rig.targets.learn("pulsar://b-2:6650", through=True, by=("b-2", 6650))
    assert not rig.targets.through(("b-3", 6650))


def test_a_connect_that_names_nobody_is_not_touched(rig: PulsarRig) -> None:
    """It goes to the broker of --pulsar, byte for byte."""
    rig.knock()
    assert rig.upstream.target == BROKER and rig.broker.data == connect()


@pytest.mark.parametrize("target", ["evil:6650", "broker-1:22", "nonsense", "broker-1:6650,evil:6650"])
def test_no_open_relay(rig: PulsarRig, target: str) -> None:
    """A broker that nobody has named is refused in the protocol's words, counted, and not dialled."""
    rig.up(connect(proxy_to_broker_url=target))
    refusal = parse(rig.client.data)
    assert refusal.request_id == CONNECTION and refusal.error == ServerError.NOT_ALLOWED
    assert rig.upstream.target is None and rig.client.closed
    assert rig.metric("pulsar_refused_targets_total") == 1
    assert rig.metric("proxy_closed_connections_total", reason="refused_target") == 1


@each(
    ("fields", "own", "user"),
    [
        ({}, {}, ANONYMOUS),
        ({"auth_method_name": "basic", "auth_data": b"bob:x"}, {}, "bob"),
        ({"auth_method_name": "basic", "auth_data": b"bob:x"}, {"auth_methods": ["token"]}, ANONYMOUS),
        ({"auth_method_name": "tls"}, {}, ANONYMOUS),
        # Whom a client names beside itself counts only where it may do so.
        ({"auth_method_name": "basic", "auth_data": b"bob:x", "original_principal": "eve"}, {}, "bob"),
        (
            {"auth_method_name": "basic", "auth_data": b"bob:x", "original_principal": "eve"},
            {"proxy_roles": ["bob"]},
            "eve",
        ),
    ],
)
def test_who_it_is(fields: dict[str, object], own: dict[str, object], user: str) -> None:
    """What the login names, if brokers check such logins."""
    rig = PulsarRig(own=own).open(**fields)
    assert rig.connection.user == user


def test_a_login_of_several_steps(rig: PulsarRig) -> None:
    """Challenge and response pass; the last name counts."""
    rig.knock(auth_method_name="token", auth_data=b"").down(CHALLENGE)
    answer = command(frames.AUTH_RESPONSE, response={"auth_method_name": "token", "auth_data": TOKEN})
    rig.up(answer)
    assert rig.client.data == CHALLENGE and rig.broker.data.endswith(answer)
    rig.down(connected())
    assert rig.connection.user == "alice"


def test_a_login_answer_counts_for_nothing_that_the_broker_did_not_ask_for() -> None:
    """Behind a CONNECT that is let in, it would name another user, or nobody, for the same login."""
    for method, data in (("", TOKEN), ("basic", b"bob:x"), ("token", b"")):
        rig = PulsarRig().knock(auth_method_name="token", auth_data=TOKEN)
        rig.up(command(frames.AUTH_RESPONSE, response={"auth_method_name": method, "auth_data": data}))
        assert rig.client.closed and rig.connection.over


def test_a_login_answer_is_read_as_connect_said() -> None:
    """Brokers do not look at the method that it names; and each question has one answer."""
    answer = command(frames.AUTH_RESPONSE, response={"auth_method_name": "basic", "auth_data": TOKEN})
    once, twice = (PulsarRig().knock(auth_method_name="token", auth_data=b"") for _ in range(2))
    for rig in (once, twice):
        rig.down(CHALLENGE)
        rig.up(answer)
    once.down(connected())
    assert once.connection.user == "alice"
    twice.up(answer)
    assert twice.connection.over


def test_a_refused_login_is_the_brokers_word() -> None:
    """Its error passes before the end, which the broker brings about; nobody counts as logged in."""
    part = Seeing({frames.SEND}, set())
    rig = PulsarRig(part).knock(auth_method_name="token", auth_data=TOKEN)
    refusal = error(CONNECTION, ServerError.AUTHENTICATION, "no")
    rig.down(refusal)
    rig.upstream.connection_lost(None)
    assert rig.client.data == refusal and rig.client.closed and not rig.client.aborted
    assert rig.connection.user == ANONYMOUS and not part.closed


@pytest.mark.parametrize("early", [SEND, command(frames.LOOKUP, topic="t"), command(frames.CONNECTED)])
@pytest.mark.parametrize("after_connect", [False, True])
def test_nothing_goes_before_a_login(rig: PulsarRig, early: bytes, after_connect: bool) -> None:
    """Who sends anything else than a login is ended, and the broker sees nothing of it."""
    if after_connect:
        rig.knock()
        rig.broker.data = b""
    rig.up(early)
    assert rig.client.closed and rig.broker.data == b""
    assert rig.metric("proxy_bad_frames_total", reason="unexpected") == 1
