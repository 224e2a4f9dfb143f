"""Lookups: all answers lead back, redirects are followed by the proxy itself."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pulsar_rig import PulsarRig, connected
from waiting_kit import until

from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import CONNECTION, LookupType, ServerError, command, error, parse
from enforcer.wire.pulsar.frames import FRAME_OVERHEAD, Splitter

TOPIC = "persistent://public/default/t"
WAIT_S = 5.0


def lookup(request_id: int = 1, **fields: Any) -> bytes:
    """A client's question."""
    return command(frames.LOOKUP, topic=TOPIC, request_id=request_id, **fields)


def answer(response: LookupType, url: str = "", request_id: int = 1, **fields: Any) -> bytes:
    """A broker's answer."""
    return command(
        frames.LOOKUP_RESPONSE, response=response, brokerServiceUrl=url, request_id=request_id, **fields
    )


def asking(**login: bytes) -> PulsarRig:
    """A connection that has asked, with this in its login besides."""
    rig = PulsarRig()
    rig.open(auth_method_name="basic", auth_data=b"bob:x", proxy_to_broker_url="broker-1:6650", **login)
    rig.up(lookup())
    return rig


def test_connect_leads_through_the_proxy() -> None:
    """Both addresses are the broker's, which is known from then on, and the way is the proxy's."""
    rig = asking()
    assert rig.broker.data == lookup()
    rig.down(answer(LookupType.CONNECT, "pulsar://b-2:6650", brokerServiceUrlTls="pulsar+ssl://b-2:6651"))
    body = parse(rig.client.data)
    assert body.proxy_through_service_url and body.response == LookupType.CONNECT
    assert (body.brokerServiceUrl, body.brokerServiceUrlTls) == ("pulsar://b-2:6650", "pulsar+ssl://b-2:6650")
    assert rig.targets.allows(("b-2", 6650)) and rig.metric("pulsar_lookups_total", outcome="connect") == 1


def test_connect_of_a_proxy_of_pulsars_leads_through_both() -> None:
    """It names the broker as it reaches it, by TLS or not."""
    rig = asking()
    rig.down(
        answer(
            LookupType.CONNECT, "pulsar+ssl://b-2:6651", brokerServiceUrlTls="pulsar+ssl://b-2:6651",
            proxy_through_service_url=True,
        )
    )  # fmt: skip
    body = parse(rig.client.data)
    assert body.proxy_through_service_url and body.brokerServiceUrl == "pulsar://b-2:6651"
    assert rig.targets.allows(("b-2", 6651)) and rig.targets.through(("b-2", 6651))


def test_a_failure_passes() -> None:
    """The broker's own words."""
    rig = asking()
    frame = answer(LookupType.FAILED, error=ServerError.TOPIC_NOT_FOUND, message="no")
    rig.down(frame)
    assert rig.client.data == frame and rig.metric("pulsar_lookups_total", outcome="failed") == 1


@pytest.mark.parametrize("url", ["", "pulsar+ssl://b:6651", "http://b:8080", "pulsar://b:6650,c:6650"])
def test_an_address_that_cannot_be_passed(url: str) -> None:
    """A broker that is reached with TLS only, or named in another way: the lookup fails."""
    rig = asking()
    rig.down(answer(LookupType.CONNECT, url, brokerServiceUrlTls="pulsar+ssl://b:6651"))
    body = parse(rig.client.data)
    assert body.response == LookupType.FAILED and body.error == ServerError.SERVICE_NOT_READY
    assert not body.brokerServiceUrl and "TLS" in body.message


class Broker:
    """A broker that speaks enough to be asked.

    Args:
        answers: what it says to each LOOKUP, called with the parsed body.
        refuses: it lets nobody in.
    """

    def __init__(self, answers: Callable[[Any], bytes | None], refuses: bool = False) -> None:
        self.answers, self.refuses = answers, refuses
        self.connects: list[Any] = []
        self.asked: list[Any] = []
        self.pongs = 0
        self.url = ""
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "Broker":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"pulsar://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)

        def take(kind: int, frame: bytes) -> None:
            if kind == frames.CONNECT:
                self.connects.append(parse(frame))
                if self.refuses:
                    writer.write(error(CONNECTION, ServerError.AUTHENTICATION, "no"))
                    writer.close()
                else:
                    writer.write(connected() + command(frames.PING))
            elif kind == frames.PONG:
                self.pongs += 1
            elif kind == frames.LOOKUP:
                self.asked.append(parse(frame))
                said = self.answers(self.asked[-1])
                if said is not None:
                    writer.write(said)

        splitter = Splitter(lambda data, unfinished: None, take, FRAME_OVERHEAD)
        splitter.wanted = frozenset(range(128))
        while data := await reader.read(1_000):
            splitter.feed(data)


async def soon(found: Callable[[], Any]) -> None:
    """Wait until it is so, for a few seconds at most."""
    async with asyncio.timeout(WAIT_S):
        await until(found)


async def told(rig: PulsarRig) -> Any:
    """What the client hears next."""
    await soon(lambda: rig.client.data)
    data, rig.client.data = rig.client.data, b""
    return parse(data)


async def redirected(rig: PulsarRig, number: int, url: str) -> Any:
    """What the client hears of a further question, as the broker sends it on."""
    rig.up(lookup(number))
    rig.down(answer(LookupType.REDIRECT, url, request_id=number))
    return await told(rig)


async def test_a_redirect_is_followed() -> None:
    """Over two brokers, in the client's name, with what each says of authority; the client sees the end."""
    async with (
        Broker(lambda asked: answer(LookupType.CONNECT, "pulsar://b-9:6650")) as last,
        Broker(lambda asked: answer(LookupType.REDIRECT, last.url, authoritative=False)) as middle,
    ):
        rig = asking()
        rig.down(answer(LookupType.REDIRECT, middle.url, authoritative=True))
        assert rig.client.data == b""
        body = await told(rig)
        assert body.response == LookupType.CONNECT and body.brokerServiceUrl == "pulsar://b-9:6650"
        assert body.proxy_through_service_url and body.request_id == 1
        assert [asked.authoritative for asked in (*middle.asked, *last.asked)] == [True, False]
        (login,) = middle.connects
        assert login.auth_data == b"bob:x" and not login.HasField("proxy_to_broker_url")
        # The next one takes the same connections, whose keep-alive is answered.
        middle.answers = lambda asked: answer(LookupType.CONNECT, "pulsar://b-9:6650", request_id=2)
        await redirected(rig, 2, middle.url)
        assert len(middle.connects) == 1 and middle.pongs == 1
        assert rig.metric("pulsar_redirects_total", result="followed") == 2
        rig.connection.end("tests")


@pytest.mark.parametrize("passed_on", [{}, {"original_auth_data": b"eve:x"}])
async def test_a_redirect_is_followed_with_the_newest_login(passed_on: dict[str, bytes]) -> None:
    """A token that was renewed since the client came; the old one may be over.

    Where another proxy has passed its client's on, that is renewed, and the proxy's own stays.
    """
    async with Broker(lambda asked: answer(LookupType.CONNECT, "pulsar://b-9:6650")) as other:
        rig = asking(**passed_on)
        challenge = command(frames.AUTH_CHALLENGE, challenge={"auth_method_name": "basic"})
        renewal = command(frames.AUTH_RESPONSE, response={"auth_data": b"bob:y"})
        rig.broker.data = b""
        rig.down(challenge)
        rig.up(renewal)
        assert (rig.client.data, rig.broker.data) == (challenge, renewal)
        rig.client.data = b""
        rig.down(answer(LookupType.REDIRECT, other.url))
        await told(rig)
        (login,) = other.connects
        said = login.auth_method_name, login.auth_data, login.original_auth_data
        assert said == (("basic", b"bob:x", b"bob:y") if passed_on else ("basic", b"bob:y", b""))
        rig.connection.end("tests")


async def test_redirects_that_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a circle, to a broker that refuses the login, is silent, away or has no plain address: it fails."""
    async with (
        Broker(lambda asked: None) as silent,
        Broker(lambda asked: None, refuses=True) as refusing,
        Broker(lambda asked: answer(LookupType.REDIRECT, circle.url)) as circle,
    ):
        away = "pulsar://127.0.0.1:1"
        for url in (silent.url, refusing.url, circle.url, away, "pulsar+ssl://b:6651"):
            monkeypatch.setattr("enforcer.pulsar.lookup.part.LOOKUP_TIMEOUT_MS", 200)
            monkeypatch.setattr("enforcer.pulsar.lookup.part.LOOKUP_HOPS_MAX", 5)
            rig = asking()
            rig.down(answer(LookupType.REDIRECT, url))
            body = await told(rig)
            assert body.response == LookupType.FAILED, url
            assert body.error == ServerError.SERVICE_NOT_READY and body.request_id == 1
            assert rig.metric("pulsar_redirects_total", result="failed") == 1
            rig.connection.end("tests")
        assert len(circle.asked) == 5
        rig = asking()
        # A name that cannot be asked for.
        rig.targets.learn = lambda _url, through, by: ("x" * 64, 6650)  # type: ignore[method-assign]
        rig.down(answer(LookupType.REDIRECT, "pulsar://x:6650"))
        assert (await told(rig)).response == LookupType.FAILED
        rig.connection.end("tests")


async def test_a_broker_that_fell_silent_is_asked_over_a_new_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its host went without a word: else whoever asks again and again would ask nobody for many minutes."""
    monkeypatch.setattr("enforcer.pulsar.lookup.part.LOOKUP_TIMEOUT_MS", 200)
    said = answer(LookupType.CONNECT, "pulsar://b-9:6650", request_id=2)
    async with Broker(lambda asked: said if len(other.connects) > 1 else None) as other:
        rig = asking()
        for number, outcome in ((1, LookupType.FAILED), (2, LookupType.CONNECT)):
            assert (await redirected(rig, number, other.url)).response == outcome
        # One that speaks, and only does not answer this one, is kept.
        other.answers = lambda asked: command(frames.PING)
        await redirected(rig, 3, other.url)
        other.answers = lambda asked: answer(LookupType.CONNECT, "pulsar://b-9:6650", request_id=4)
        await redirected(rig, 4, other.url)
        assert len(other.connects) == 2
        rig.connection.end("tests")


async def test_a_broker_that_is_being_asked_makes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a further one: all that its client waits for there would fail. One that nobody asks does."""
    monkeypatch.setattr("enforcer.pulsar.lookup.part._ASKED_MAX", 1)
    said = answer(LookupType.CONNECT, "pulsar://b-9:6650", request_id=3)
    async with Broker(lambda asked: None) as first, Broker(lambda asked: said) as second:
        rig = asking()
        rig.down(answer(LookupType.REDIRECT, first.url))
        await soon(lambda: first.asked)
        for number, response in ((2, LookupType.FAILED), (3, LookupType.CONNECT)):
            body = await redirected(rig, number, second.url)
            assert (body.request_id, body.response) == (number, response)
            if number == 2:
                first._writers[0].write(answer(LookupType.CONNECT, "pulsar://b-9:6650"))
                assert (await told(rig)).response == LookupType.CONNECT
        rig.connection.end("tests")


async def test_the_end_of_a_client_ends_its_questions() -> None:
    """Nothing is asked or said for who is gone; brokers that are not asked any more are let go."""
    async with Broker(lambda asked: None) as silent:
        rig = asking()
        (lookups,) = rig.connection._parts
        held = lookups.held_bytes
        rig.down(answer(LookupType.REDIRECT, silent.url))
        await soon(lambda: silent.asked)
        # It may be as large as a message, and there may be a thousand.
        assert lookups.held_bytes == held
        rig.connection.connection_lost(None)
        await asyncio.sleep(0.05)
        assert rig.client.data == b""
        rig = asking()
        silent.answers = lambda asked: answer(LookupType.CONNECT, "pulsar://b:1")
        rig.down(answer(LookupType.REDIRECT, silent.url))
        await told(rig)
        (others,) = [part._others for part in rig.connection._parts if hasattr(part, "_others")]
        rig.now = 9_000
        rig.connection.check(rig.now)
        assert len(others) == 1
        rig.now = 11_000
        rig.connection.check(rig.now)
        assert not others


async def test_a_mistake_while_a_redirect_is_followed_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client would wait for the answer as long as it waits for any."""
    rig = asking()
    monkeypatch.setattr("enforcer.pulsar.lookup.part.LookupClient.ask", lambda *_: 1 // 0)
    rig.down(answer(LookupType.REDIRECT, "pulsar://b:1"))
    await soon(lambda: rig.client.closed)
    assert rig.metric("proxy_closed_connections_total", reason="internal") == 1


def test_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A redirect of a lookup that was asked too long ago fails at once; nothing else is lost."""
    monkeypatch.setattr("enforcer.pulsar.lookup.part.LOOKUPS_MAX", 2)
    rig = asking()
    rig.up(lookup(2) + lookup(3))
    rig.down(answer(LookupType.REDIRECT, "pulsar://b:1", request_id=1))
    assert parse(rig.client.data).response == LookupType.FAILED
    assert rig.metric("pulsar_redirects_total", result="too_many") == 1
    rig.client.data = b""
    rig.down(answer(LookupType.CONNECT, "pulsar://b:1", request_id=3))
    assert parse(rig.client.data).response == LookupType.CONNECT


@pytest.mark.parametrize("kind", [frames.CLOSE_PRODUCER, frames.CLOSE_CONSUMER])
def test_the_next_broker_is_not_named(kind: int) -> None:
    """Clients look the topic up again; a close that names nobody is not touched."""
    rig = PulsarRig().open()
    plain = command(kind, request_id=CONNECTION)
    rig.down(plain)
    assert rig.client.data == plain
    rig.client.data = b""
    rig.down(command(kind, request_id=CONNECTION, assignedBrokerServiceUrl="pulsar://b:1"))
    body = parse(rig.client.data)
    assert not body.assignedBrokerServiceUrl and body.request_id == CONNECTION
    assert not rig.targets.allows(("b", 1)) and rig.metric("pulsar_moved_total", how="unnamed") == 1


def test_a_topic_that_was_migrated() -> None:
    """Its clients go to the proxy of the other cluster, or nowhere past this one."""
    frame = command(frames.TOPIC_MIGRATED, resource_id=1, brokerServiceUrl="pulsar://other:6650")
    rig = PulsarRig().open()
    rig.down(frame)
    assert rig.client.data == b"" and rig.client.closed
    assert rig.metric("proxy_closed_connections_total", reason="topic_migrated") == 1
    rig = PulsarRig(own={"migrated_url": "pulsar://weir-2:16650"}).open()
    rig.down(frame)
    body = parse(rig.client.data)
    assert body.brokerServiceUrl == body.brokerServiceUrlTls == "pulsar://weir-2:16650"
    assert body.resource_id == 1 and not rig.client.closed
