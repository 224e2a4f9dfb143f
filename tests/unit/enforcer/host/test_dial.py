"""Connections to brokers: one that cannot be made is told, and nothing is sent into the middle of a frame."""

import asyncio
from typing import Any, cast

from connection_kit import FakeTransport

from enforcer.core.settings import ProxySettings
from enforcer.host.dial import Upstream


class Owner:
    """A connection that notes what it is told."""

    def __init__(self) -> None:
        self.failed = asyncio.get_running_loop().create_future()

    def upstream_failed(self, reason: str) -> None:
        """See dial.Owner."""
        self.failed.set_result(reason)

    def upstream_changed(self) -> None:
        """See dial.Owner."""


async def test_an_address_that_is_none_is_a_failure_like_any_other() -> None:
    """Its client is told; names with parts of more than 63 characters cannot be asked for at all."""
    owner: Any = Owner()
    upstream = Upstream(owner, ProxySettings())
    upstream.dial(("x" * 64, 6650))
    assert await asyncio.wait_for(owner.failed, 5) == "refused" and upstream.closed


async def test_nothing_is_sent_into_the_middle_of_a_request() -> None:
    """What the proxy itself sends waits for the rest of a request that is passing."""
    owner: Any = Owner()
    upstream, broker = Upstream(owner, ProxySettings()), FakeTransport()
    upstream.connection_made(cast(asyncio.Transport, broker))
    assert upstream.pass_on(b"begin", True) and upstream.send(b"own", b"4")
    assert upstream.pass_on(b"more", True) and broker.data == b"beginmore"
    assert upstream.pass_on(b"end", False) and upstream.send(b"next", b"5")
    assert broker.data == b"beginmoreend4own5next"
    upstream.send(bytes(300_000), b"6")
    assert broker.data.endswith(b"next6" + bytes(300_000))
