"""Who a connection is before, in and after a login, and what becomes of logins that fail."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from connection_kit import FakeTransport, Rig, framed, frames_of, header, opaque
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kafka_kit import CORRELATION_ID, build, decode, request, response

from enforcer.kafka.login.failed_logins import ADDRESSES_MAX, MOMENT_MS, FailedLogins
from enforcer.wire.kafka.frames import SASL_AUTHENTICATE

ILLEGAL_STATE, AUTHENTICATION_FAILED = 34, 58
ALICE = b"\0alice\0a-secret"
SCRAM = (b"n,,n=alice,r=nonce", b"c=biws,r=noncenonce,p=proof")
LIFETIME_MS = 3_600_000


class Visit:
    """A client that logs in on a rig, and the broker that answers."""

    def __init__(self, beside: Rig | None = None, peer: str = "10.0.0.1", tls: bool = True, **settings: Any):
        self.rig = Rig(beside, **settings)
        if beside is not None:
            self.rig.concerns, self.rig.metrics = beside.concerns, beside.metrics
        self.rig.client.ssl_object = object() if tls else None
        self.rig.connect()
        self.rig.connection.peer = (peer, 4711)

    @property
    def user(self) -> str:
        """Who the proxy takes it for."""
        return self.rig.connection.user

    def ask(self, message: Any) -> None:
        """The client sends."""
        self.rig.connection.data_received(framed(request(message)[0]))

    def offer(self, mechanism: str) -> None:
        """The client sends SaslHandshake."""
        self.ask(build(SaslHandshakeRequest, 1, mechanism=mechanism))

    def offered(self, error: int = 0) -> None:
        """The broker answers it."""
        self.rig.answer([response(build(SaslHandshakeResponse, 1, error_code=error, mechanisms=["PLAIN"]))])

    def token(self, token: bytes) -> None:
        """The client sends SaslAuthenticate."""
        self.ask(build(SaslAuthenticateRequest, 2, auth_bytes=token))

    def told(self, error: int = 0, challenge: bytes = b"") -> None:
        """The broker answers it."""
        values = {"error_code": error, "error_message": "no" if error else None, "auth_bytes": challenge}
        answer = build(SaslAuthenticateResponse, 2, session_lifetime_ms=LIFETIME_MS, **values)
        self.rig.answer([response(answer)])

    def begin(self, mechanism: str = "PLAIN", token: bytes = ALICE) -> None:
        """As far as the broker's last word."""
        self.offer(mechanism)
        self.offered()
        self.token(token)

    def fail(self, count: int = 1) -> "Visit":
        """So many wrong passwords."""
        for _ in range(count):
            self.begin()
            self.told(AUTHENTICATION_FAILED)
            self.rig.desk.run(self.rig.settings.failed_login_delay_ms)
        return self

    @property
    def answers(self) -> int:
        """How many the client has got."""
        return len(frames_of(self.rig.client.data))

    @property
    def sent(self) -> int:
        """Requests that have reached the broker."""
        return len(self.rig.upstream.sent)

    def count(self, name: str, **labels: str) -> float:
        """A counter."""
        return self.rig.metrics.registry.get_sample_value(f"weir_proxy_{name}_total", labels) or 0.0


@pytest.mark.parametrize(("error", "user"), [(0, "bob"), (ILLEGAL_STATE, "alice")])
def test_a_certificate_names_the_user_until_a_login_has_succeeded(error: int, user: str) -> None:
    """A handshake that the broker refuses must not make its client somebody without a quota."""
    visit = Visit()
    visit.rig.connection.user = "alice"
    visit.offer("PLAIN")
    visit.offered(error)
    assert visit.user == "alice"
    if not error:
        visit.token(b"\0bob\0secret")
        visit.told()
    assert visit.user == user


def plain(visit: Visit) -> None:
    """All that a client says to log in by PLAIN, and the answers."""
    visit.begin()
    visit.told()


def scram(visit: Visit) -> None:
    """The same by SCRAM."""
    visit.begin("SCRAM-SHA-512", SCRAM[0])
    visit.told(challenge=b"r=noncenonce,s=salt,i=4096")
    visit.token(SCRAM[1])
    visit.told(challenge=b"v=proof")


@pytest.mark.parametrize("exchange", [plain, scram])
@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7, 11, 13, 40])
def test_a_login_may_come_in_pieces(
    exchange: Callable[[Visit], None], piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever what client and broker say is cut, it means the same; the session's life passes."""
    visit = Visit()
    connection, asked, said = visit.rig.connection, b"", b""

    def cut(take: Callable[[bytes], None], data: bytes) -> None:
        for start in range(0, len(data), piece):
            take(data[start : start + piece])

    received, responded = connection.data_received, connection.upstream_received
    monkeypatch.setattr(connection, "data_received", lambda data: cut(received, data))
    monkeypatch.setattr(connection, "upstream_received", lambda data: cut(responded, data))
    for _ in range(2):
        exchange(visit)
        assert visit.user == "alice"
    asked, said = visit.rig.upstream.data, visit.rig.client.data
    whole = Visit()
    exchange(whole)
    exchange(whole)
    assert (asked, said) == (whole.rig.upstream.data, whole.rig.client.data)
    assert decode(SaslAuthenticateResponse, 2, frames_of(said)[-1]).session_lifetime_ms == LIFETIME_MS


def test_a_new_login_of_somebody_else_does_not_reach_the_broker() -> None:
    """Who is in could try the passwords of all, and never wait; it is refused and closed, as by Kafka's."""
    visit = Visit()
    plain(visit)
    visit.begin(token=b"\0bob\0secret")
    assert visit.sent == 3
    visit.rig.desk.run(199)
    assert not visit.rig.client.closed
    visit.rig.desk.run(1)
    answer = decode(SaslAuthenticateResponse, 2, frames_of(visit.rig.client.data)[3])
    assert answer.error_code == AUTHENTICATION_FAILED and "Cannot change principals" in answer.error_message
    assert visit.user == "alice" and visit.rig.client.closed
    assert visit.count("refused_logins", reason="reauthentication") == 1


@pytest.mark.parametrize(
    ("error", "reason"), [(AUTHENTICATION_FAILED, "reauthentication"), (ILLEGAL_STATE, "state")]
)
def test_a_session_that_is_not_renewed_may_be_a_guess(error: int, reason: str) -> None:
    """Only if the broker has looked at what was sent."""
    visit = Visit(failed_logins_per_minute=1)
    for _ in range(3):
        plain(visit)
        visit.begin()
        visit.told(error)
        visit.rig.desk.run(200)
    assert visit.count("failed_logins", reason=reason) == 3
    late = Visit(visit.rig)
    late.begin()
    assert late.rig.client.closed == (reason == "reauthentication")


@pytest.mark.parametrize(("tls", "allowed", "passes"), [(1, 0, 1), (0, 1, 1), (0, 0, 0)])
def test_plain_needs_tls(tls: int, allowed: int, passes: int) -> None:
    """The handshake is refused before the password is sent, and its answer names the setting."""
    visit = Visit(tls=bool(tls), sasl_plain_without_tls=bool(allowed))
    visit.offer("PLAIN")
    assert visit.sent == passes
    if passes:
        return
    visit.rig.desk.run(200)
    answer = decode(SaslHandshakeResponse, 1, frames_of(visit.rig.client.data)[0])
    assert answer.error_code == 33 and "proxy.sasl_plain_without_tls" in str(answer.mechanisms)
    assert "PLAIN" not in answer.mechanisms and "SCRAM-SHA-512" in answer.mechanisms
    assert visit.count("refused_logins", reason="plain_without_tls") == 1
    scram(visit)
    assert visit.user == "alice"


@pytest.mark.parametrize("broker_closes", [True, False])
def test_a_failed_login_is_answered_after_a_constant_time(broker_closes: bool) -> None:
    """Though the broker has answered earlier, and closed; then the connection ends as the broker's has."""
    visit = Visit()
    visit.begin()
    visit.rig.desk.run(120)
    visit.told(AUTHENTICATION_FAILED)
    if broker_closes:
        visit.rig.connection.upstream_failed("lost")
    visit.rig.connection.data_received(opaque(9))
    visit.rig.desk.run(79)
    assert visit.answers == 1 and not visit.rig.client.closed
    visit.rig.desk.run(1)
    answer = decode(SaslAuthenticateResponse, 2, frames_of(visit.rig.client.data)[1])
    assert answer.error_code == AUTHENTICATION_FAILED
    assert visit.rig.client.closed == broker_closes
    # What came behind it waited, and goes on where there is a broker.
    assert visit.sent == 2 + (not broker_closes)
    assert visit.count("failed_logins", reason="credentials") == 1 and visit.user == "ANONYMOUS"


def test_who_does_not_wait_for_the_answer_has_failed_as_well() -> None:
    """Closing early saves nobody from being counted, and leaves nothing behind."""
    visit = Visit()
    visit.begin()
    visit.rig.lose_client()
    visit.told(AUTHENTICATION_FAILED)
    visit.rig.connection.upstream_failed("lost")
    visit.rig.desk.run(200)
    assert visit.count("failed_logins", reason="credentials") == 1 and visit.rig.over


def test_a_refusal_of_ours_takes_as_long() -> None:
    """It is no guess, but who tries again at once shall not keep us busy."""
    visit = Visit()
    visit.begin(token=b"no user")
    visit.rig.desk.run(199)
    assert visit.answers == 1
    visit.rig.desk.run(1)
    assert visit.answers == 2 and visit.count("refused_logins", reason="name") == 1
    plain(visit)
    assert visit.user == "alice"


@pytest.mark.parametrize(
    ("mechanism", "error", "reason"), [("PLAIN", 33, "mechanism"), ("PLAIN", ILLEGAL_STATE, "state")]
)
def test_a_handshake_that_fails_is_counted_and_no_guess(mechanism: str, error: int, reason: str) -> None:
    """Nobody else of that address has to wait for it."""
    visit = Visit(failed_logins_per_minute=1)
    for _ in range(5):
        visit.offer(mechanism)
        visit.offered(error)
        visit.rig.desk.run(200)
    assert visit.count("failed_logins", reason=reason) == 5
    plain(visit)
    assert visit.user == "alice"


def test_a_refused_bearer_token_is_counted_once() -> None:
    """It is refused as a challenge, and again when the client has acknowledged that."""
    visit = Visit()
    visit.begin("OAUTHBEARER", b"n,,\x01auth=Bearer e30.eyJzdWIiOiJhbGljZSJ9.x\x01\x01")
    visit.told(challenge=b"{}")
    visit.rig.desk.run(200)
    visit.token(b"\x01")
    visit.told(AUTHENTICATION_FAILED)
    assert visit.answers == 3
    assert [visit.count("failed_logins", reason=reason) for reason in ("token", "credentials")] == [1, 0]


def test_the_end_of_a_refused_bearer_token_is_no_login() -> None:
    """It waits for no turn; another token does."""
    token = b"n,,\x01auth=Bearer e30.eyJzdWIiOiJhbGljZSJ9.x\x01\x01"
    visit = Visit(failed_logins_per_minute=1)
    for _ in range(2):
        visit.begin("OAUTHBEARER", token)
        visit.told(challenge=b"{}")
        visit.rig.desk.run(200)
    visit.token(b"\x01")
    assert visit.sent == 5
    visit.told(AUTHENTICATION_FAILED)
    visit.offer("OAUTHBEARER")
    visit.offered()
    visit.token(token)
    assert visit.rig.client.closed and visit.sent == 6


def test_logins_at_the_same_moment_share_their_turns() -> None:
    """Beyond what is free they wait until it is known of those before; nobody is closed for good ones."""
    first = Visit(failed_logins_per_minute=4, failed_login_delay_ms=0)
    visits = [first, *(Visit(first.rig) for _ in range(19))]
    for visit in visits:
        visit.begin()
    assert [visit.sent for visit in visits] == [2] * 5 + [1] * 15
    for done in range(0, 20, 5):
        for visit in visits[done : done + 5]:
            visit.told()
            assert visit.user == "alice"
        first.rig.desk.run(MOMENT_MS)
    assert not any(visit.rig.client.closed for visit in visits) and first.count("held_logins") == 0


@pytest.mark.parametrize("answered", [True, False])
def test_guesses_at_the_same_moment_are_bounded(answered: bool) -> None:
    """Also those that do not wait for the answer."""
    first = Visit(failed_logins_per_minute=4, failed_login_delay_ms=0)
    visits = [first, *(Visit(first.rig) for _ in range(19))]
    for visit in visits:
        visit.begin()
    for visit in visits[:5]:
        if answered:
            visit.told(AUTHENTICATION_FAILED)
        else:
            visit.rig.lose_client()
            visit.rig.connection.upstream_failed("lost")
    first.rig.desk.run(MOMENT_MS)
    assert [visit.sent for visit in visits] == [2] * 5 + [1] * 15
    assert all(visit.rig.client.closed for visit in visits[5:])


def test_an_exchange_that_a_handshake_interrupts_has_its_turn_once() -> None:
    """The proof that follows is what tries a password."""
    first = Visit(failed_logins_per_minute=4, failed_login_delay_ms=0)
    visits = [first, *(Visit(first.rig) for _ in range(9))]
    for visit in visits:
        visit.begin("SCRAM-SHA-512", SCRAM[0])
        if visit.sent == 2:
            visit.told(challenge=b"r=noncenonce,s=salt,i=4096")
            visit.offer("GSSAPI")
            visit.rig.desk.run(1)
            visit.token(SCRAM[1])
    assert [visit.sent for visit in visits] == [3] * 5 + [1] * 5


def test_an_address_that_fails_often_waits_for_its_turns() -> None:
    """No other address, and nobody who is logged in; a good login gives its turn back."""
    settings = {"failed_logins_per_minute": 10, "failed_login_delay_ms": 0}
    known = Visit(**settings)
    plain(known)
    guesser = Visit(known.rig).fail(11)
    first, second = Visit(known.rig), Visit(known.rig)
    for visit in (first, second):
        visit.begin()
        assert visit.sent == 1
    other = Visit(known.rig, peer="10.0.0.2")
    for visit in (other, known):
        plain(visit)
        assert visit.user == "alice"
    first.rig.desk.run(6_000)
    assert (first.sent, second.sent) == (2, 1)
    first.told()
    assert first.user == "alice" and guesser.count("held_logins") == 1


def test_a_login_that_would_wait_too_long_ends_its_connection() -> None:
    """Clients come again; a refusal would be the end for many."""
    visit = Visit(failed_logins_per_minute=4, failed_login_delay_ms=0).fail(5)
    late = Visit(visit.rig)
    late.begin()
    assert late.rig.client.closed and late.rig.closed("failed_logins") == 1 and late.sent == 1


def test_turns_of_an_address() -> None:
    """A minute's worth is free, what fails at once on many connections is not, and a minute forgives it."""
    clock = Rig()
    failed = FailedLogins(60, clock.now_ms)
    assert [failed.turn_ms("a") for _ in range(61)] == [0] * 61
    assert failed.turn_ms("a") is None
    for _ in range(61):
        failed.decide("a", waited=False, failed=True)
    assert [failed.turn_ms("a") for _ in range(11)] == [1_000 * turn for turn in range(1, 12)]
    assert failed.turn_ms("a") == 11_000
    failed.decide("a", waited=True, failed=False)
    assert failed.turn_ms("a") == 10_000
    for _ in range(1_000):
        failed.add("a")
    assert failed.turn_ms("a") == 60_000 and failed.turn_ms("b") == 0
    clock.desk.run(60_000)
    assert failed.turn_ms("a") == 0
    none = FailedLogins(0, clock.now_ms)
    none.add("a")
    assert none.turn_ms("a") == 0


def test_logins_at_once_are_bounded_in_every_minute() -> None:
    """However many come: a minute's worth, and those that wait."""
    clock = Rig()
    failed = FailedLogins(60, clock.now_ms)
    tried = 0
    for _ in range(10):
        free = sum(failed.turn_ms("a") == 0 for _ in range(5_000))
        clock.desk.run(100)
        for _ in range(free):
            failed.decide("a", waited=False, failed=True)
        tried += free
        clock.desk.run(60_000)
    assert 600 <= tried <= 611


def test_good_logins_leave_nothing() -> None:
    """Their addresses push nobody out."""
    clock = Rig()
    failed = FailedLogins(60, clock.now_ms)
    for name in range(10):
        failed.turn_ms(str(name))
        clock.desk.run(10)
        failed.decide(str(name), waited=False, failed=False)
    assert not failed._until_ms and not failed._undecided


def test_the_table_of_addresses_is_bounded() -> None:
    """Who failed longest ago is forgotten."""
    clock = Rig()
    failed = FailedLogins(1, clock.now_ms)
    for name in range(ADDRESSES_MAX + 1):
        for _ in range(2):
            failed.add(str(name))
    assert len(failed._until_ms) == ADDRESSES_MAX
    assert failed.turn_ms("1") == 60_000 and failed.turn_ms("0") == 0


@pytest.mark.parametrize(
    ("mechanism", "size", "passes"),
    [
        ("PLAIN", 4_096, True), ("PLAIN", 4_097, False), ("SCRAM-SHA-256", 16_000, False),
        ("OAUTHBEARER", 131_072, True), ("OAUTHBEARER", 131_073, False), ("", 4_097, False),
    ],
)  # fmt: skip
def test_tokens_are_bounded_by_their_mechanism(mechanism: str, size: int, passes: bool) -> None:
    """A longer one is no login, and ends its connection."""
    visit = Visit()
    if mechanism:
        visit.offer(mechanism)
        visit.offered()
    visit.token(b"x" * size)
    assert visit.rig.client.closed != passes
    assert visit.count("bad_frames", reason="too_large") == (not passes)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "OAUTHBEARER"])
def test_a_token_that_is_too_long_is_not_gathered(mechanism: str) -> None:
    """Its length is enough to end its connection."""
    visit = Visit()
    visit.offer(mechanism)
    visit.offered()
    head = struct.pack(">i", 200_000) + header(SASL_AUTHENTICATE, 2, CORRELATION_ID)
    visit.rig.connection.data_received(head)
    assert visit.rig.client.closed and visit.count("bad_frames", reason="too_large") == 1


def test_little_is_read_behind_a_login_that_waits() -> None:
    """Whatever length it claims: 50 MiB of it were kept."""
    visit = Visit(tls=False)
    visit.offer("SCRAM-SHA-256")
    client: FakeTransport = visit.rig.client
    visit.rig.connection.data_received(struct.pack(">i", 90_000_000) + header(16, 0, 2))
    for _ in range(8):
        assert client.reading
        visit.rig.connection.data_received(bytes(1 << 17))
    assert not client.reading
    visit.offered()
    assert client.reading
