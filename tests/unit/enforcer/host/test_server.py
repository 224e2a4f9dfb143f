"""The process around the connections: what ends in it is told, and a stop waits for its clients."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from enforcer.core.settings import ProxySettings
from enforcer.host.server import Host, ProxyConfig


class BareHost(Host[Any]):
    """One whose clients say nothing."""

    def __init__(self, **settings: Any) -> None:
        config = ProxyConfig(kafka=(("127.0.0.1", 1),), listen=("127.0.0.1", 0))
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


class Client:
    """A client's connection that notes what is done to it."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.unread: dict[int, bool] = {}
        self.drop = self.said.append

    def check(self, _now_ms: float) -> None:
        """See server.Client."""
        self.said.append("check")

    def drain(self, why: str = "stop") -> None:
        """See server.Client."""
        self.said.append(f"drain {why}")


async def test_a_connection_that_cannot_be_looked_at_ends_no_watch(caplog: pytest.LogCaptureFixture) -> None:
    """The others are looked at in the same second, and it is logged."""
    host, bad, good = BareHost(), cast(Any, None), Client()
    # In this order.
    host.connections = cast(Any, [bad, good, bad])
    host._look_at_connections()
    assert good.said == ["check"]
    host._listener.close()
    assert caplog.text.count("could not be looked at") == 2


@pytest.mark.parametrize("in_time", [True, False])
async def test_a_stop_waits_for_clients(in_time: bool) -> None:
    """So long as they may take; who comes meanwhile is not let in, and who stays is dropped."""
    host, one = BareHost(stop_timeout_ms=5_000 if in_time else 10), Client()
    await host.start()
    _, writer = await asyncio.open_connection(*host.listen)
    await asyncio.wait_for(host.came.wait(), 5)
    assert host.admit(one) and host.metrics.traffic.connections == 1
    if in_time:
        one.drain = lambda _why="stop": host.forget(one)  # type: ignore[method-assign]
    await host.stop()
    assert one.said == ([] if in_time else ["drain stop", "stop"]) and not host.admit(Client())
    with pytest.raises(OSError):
        await asyncio.open_connection(*host.listen)
    writer.close()


@pytest.mark.parametrize("age_max_s", [100, 0])
async def test_an_old_connection_is_drained_then_dropped(age_max_s: int) -> None:
    """A young one is let be, and where nothing bounds the age all are."""
    host, one = BareHost(connection_age_max_s=age_max_s), Client()
    host._listener.close()
    assert host.admit(one)
    came_ms = host.now_ms()
    for later_ms in (89_000, 101_000, 131_000):
        host.now_ms = lambda now_ms=came_ms + later_ms: now_ms  # type: ignore[method-assign,misc]
        host._look_at_connections()
    said = ["check", "check", "drain age", "check", "age"]
    assert one.said == (said if age_max_s else ["check"] * 3)
    host.forget(one)
    assert not host._ages._ends_ms
