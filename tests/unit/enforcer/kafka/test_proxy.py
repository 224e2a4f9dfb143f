"""The process around the connections: what ends in it is told."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from enforcer.kafka.proxy import KafkaProxy, ProxyConfig


def made() -> KafkaProxy:
    """A proxy that is not started."""
    return KafkaProxy(ProxyConfig(kafka=(("127.0.0.1", 1),), listen=("127.0.0.1", 0)))


def test_a_connection_that_cannot_be_looked_at_ends_no_watch(caplog: pytest.LogCaptureFixture) -> None:
    """The others are looked at in the same second, and it is logged."""
    seen: list[str] = []

    def connection(name: str) -> Any:
        def check(_now_ms: float) -> None:
            seen.append(name)
            if name != "good":
                raise ValueError("a mistake")

        return SimpleNamespace(check=check, held=2, watched=None, ending=SimpleNamespace(gone=True))

    async def look() -> None:
        proxy = made()
        # In this order.
        proxy._connections = cast(Any, [connection(name) for name in ("bad", "good", "worse")])
        proxy._look_at_connections()
        assert (proxy.metrics.traffic.held, proxy.metrics.traffic.departed) == (6, 3)
        proxy._listener.close()

    asyncio.run(look())
    assert seen == ["bad", "good", "worse"] and caplog.text.count("could not be looked at") == 2
