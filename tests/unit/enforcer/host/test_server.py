"""The process around the connections: what ends in it is told, and a stop waits for its clients."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from enforcer.core.settings import ProxySettings
from enforcer.host import server
from enforcer.host.doors.listening import listen_at
from enforcer.host.server import Host, ProxyConfig
from enforcer.host.sockets import Address
from streaming.contract.events import ANONYMOUS


class BareHost(Host[Any]):
    """One whose clients say nothing."""

    def __init__(self, kafka: Address = ("127.0.0.1", 1), **settings: Any) -> None:
        config = ProxyConfig(kafka=(kafka,), listen=("127.0.0.1", 0))
        super().__init__(config, made := ProxySettings(**settings), made, None)
        self.enforcement = cast(Any, SimpleNamespace(start=self.nothing, stop=self.nothing, work=tuple))
        self.came = asyncio.Event()

    async def nothing(self) -> None:
        """No laws."""

    def accept(self) -> asyncio.Protocol:
        """Somebody came."""
        self.came.set()
        return asyncio.Protocol()

    def look(self) -> int:
        """No broker."""
        return 0


class IdleHost(BareHost):
    """One to which nobody can come."""

    def __init__(self, *given: Address, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self._listener.close()


class Client:
    """A client's connection that notes what is done to it."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.user = ANONYMOUS
        self.unread: dict[int, bool] = {}
        self.drop = self.end = self.said.append

    def check(self, _now_ms: float) -> None:
        """See server.Client."""
        self.said.append("check")

    def notice(self) -> None:
        """See server.Client."""
        self.said.append("notice")

    def drain(self, why: str = "stop") -> None:
        """See server.Client."""
        self.said.append(f"drain {why}")


async def test_kafka_by_ipv6_is_reached_by_its_port() -> None:
    """librdkafka finds none in ::1:9092, and takes all of it for an address."""
    host = IdleHost(("::1", 9092))
    assert host.cluster.bootstrap == "[::1]:9092"


async def test_a_connection_that_cannot_be_looked_at_ends_no_watch(caplog: pytest.LogCaptureFixture) -> None:
    """The others are looked at in the same second, and it is logged and counted."""
    host, bad, good = IdleHost(), cast(Any, None), Client()
    # In this order.
    host.connections = cast(Any, [bad, good, bad])
    host._look_at_connections()
    assert good.said == ["check"]
    assert caplog.text.count("could not be looked at") == 2
    assert host.metrics.bad_frames.labels("internal")._value.get() == 2


async def test_a_look_of_the_proxy_that_fails_ends_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are looked at a second later all the same."""
    monkeypatch.setattr(server, "_TICK_S", 0.0)
    host, one, checked = IdleHost(), Client(), asyncio.Semaphore(0)
    one.check = lambda _now_ms: checked.release()  # type: ignore[method-assign]
    host.look = cast(Any, None)  # type: ignore[method-assign]
    host.connections = cast(Any, [one])
    host.spawn(host._tick())
    async with asyncio.timeout(5):
        for _ in range(2):
            await checked.acquire()
    host._tasks.cancel()


async def test_an_end_that_cannot_be_told_ends_no_watch(caplog: pytest.LogCaptureFixture) -> None:
    """The others hear of theirs: else nobody would be looked at any more, until the process is restarted."""
    host, clients = IdleHost(), [Client(), Client(), Client()]
    host.connections = cast(Any, clients)
    ends = [socket.socketpair() for _ in clients]
    for client, (ours, theirs) in zip(clients, ends, strict=True):
        client.unread = {ours.fileno(): False}
        theirs.close()
    # Whichever is told first, another one stands behind it.
    clients[0].notice = clients[2].notice = cast(Any, None)
    host._look_at_connections()
    assert clients[1].said == ["check", "notice"]
    for ours, _ in ends:
        ours.close()
    assert caplog.text.count("could not be looked at") == 2


@pytest.mark.parametrize("in_time", [True, False])
async def test_a_stop_waits_for_clients(in_time: bool) -> None:
    """So long as they may take; who comes meanwhile is not let in, and who stays is dropped."""
    host, one = BareHost(stop_timeout_ms=5_000 if in_time else 10), Client()
    await host.start()
    _, writer = await asyncio.open_connection(*host.listen)
    await asyncio.wait_for(host.came.wait(), 5)
    assert not host.admit(one) and host.metrics.traffic.connections == 1
    if in_time:
        one.drain = lambda _why="stop": host.forget(one)  # type: ignore[method-assign]
    await host.stop()
    assert one.said == ([] if in_time else ["drain stop", "stop"])
    assert host.admit(Client()) == "too_many_connections"
    with pytest.raises(OSError):
        await asyncio.open_connection(*host.listen)
    writer.close()


async def test_a_socket_of_the_turn_of_a_stop_is_closed() -> None:
    """A broker became known in the last answer: what lets its clients in has not begun."""
    host, late = BareHost(), listen_at(("127.0.0.1", 0))
    await host.start()
    host.spawn(host.serve(late, host.accept))
    await host.stop()
    assert late.fileno() == -1


@pytest.mark.parametrize("age_max_s", [100, 0])
async def test_an_old_connection_is_drained_then_dropped(age_max_s: int) -> None:
    """A young one is let be, and where nothing bounds the age all are."""
    host, one = IdleHost(connection_age_max_s=age_max_s), Client()
    assert not host.admit(one)
    came_ms = host.now_ms()
    for later_ms in (89_000, 101_000, 131_000):
        host.now_ms = lambda now_ms=came_ms + later_ms: now_ms  # type: ignore[method-assign,misc]
        host._look_at_connections()
    said = ["check", "check", "drain age", "check", "age"]
    assert one.said == (said if age_max_s else ["check"] * 3)
    host.forget(one)
    assert not host._ends_ms


@pytest.mark.parametrize("login_timeout_s", [5, 0])
async def test_who_does_not_log_in_is_dropped(login_timeout_s: int) -> None:
    """Who has is let be, and where nobody must all are."""
    host, nobody, alice = IdleHost(login_timeout_s=login_timeout_s), Client(), Client()
    shown = Client()
    shown.user = "of a certificate"
    assert not any(map(host.admit, (nobody, alice, shown))) and host.identify(alice, "alice")
    came_ms = host.now_ms()
    for later_ms in (4_000, 6_000):
        host.now_ms = lambda now_ms=came_ms + later_ms: now_ms  # type: ignore[method-assign,misc]
        host._look_at_connections()
    assert nobody.said == (["check", "check", "no_login"] if login_timeout_s else ["check"] * 2)
    assert alice.said == shown.said == ["check"] * 2


async def test_who_is_sent_away_has_a_place_until_it_is_gone() -> None:
    """Its end may take seconds: names that no broker has held descriptors beyond all bounds."""
    host, clients = BareHost(connections_max=2, connections_per_user=1), [Client() for _ in range(4)]
    host._listener.close()
    clients[0].user = clients[1].user = "alice"
    assert [host.admit(client) for client in clients[:2]] == ["", "connections_per_user"]
    assert host._free() == 0 and host.admit(clients[2]) == "too_many_connections"
    host.forget(clients[1])
    assert host.admit(clients[3], "unknown_user") == "unknown_user" and host._free() == 0
    host.forget(clients[3])
    assert host._free() == 1 and host.connections == {clients[0]}


async def test_a_user_has_so_many_connections() -> None:
    """A login again by the same is none more; ANONYMOUS has no bound, and who is gone makes room."""
    host, clients = IdleHost(connections_per_user=2), [Client() for _ in range(6)]
    assert not any(map(host.admit, clients))
    by_alice = [host.identify(client, "alice") for client in (*clients[:2], *clients[:3])]
    assert by_alice == [True, True, True, True, False]
    assert host.identify(clients[2], "bob") and host.identify(clients[0], ANONYMOUS)
    assert host.identify(clients[3], "alice") and not host.identify(clients[4], "alice")
    host.forget(clients[3])
    late = Client()
    late.user = "alice"
    assert not host.admit(late)
    clients[5].user = "alice"
    assert host.admit(clients[5]) == "connections_per_user"
    for client in (*clients, late):
        host.forget(client)
    assert not host._users._counts and not host._users._user_of
