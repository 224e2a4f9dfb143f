"""A broker that cannot even be looked for."""

import asyncio
from typing import Any

from enforcer.core.settings import ProxySettings
from enforcer.pulsar.upstream import Upstream


class Owner:
    """A connection that notes what it is told."""

    def __init__(self) -> None:
        self.failed = asyncio.get_running_loop().create_future()

    def broker_failed(self, reason: str) -> None:
        """See upstream.Owner."""
        self.failed.set_result(reason)


def test_an_address_that_is_none_is_a_failure_like_any_other() -> None:
    """Its client is told; names with parts of more than 63 characters cannot be asked for at all."""

    async def scene() -> None:
        owner: Any = Owner()
        upstream = Upstream(owner, ProxySettings())
        upstream.dial(("x" * 64, 6650))
        assert await asyncio.wait_for(owner.failed, 5) == "refused" and upstream.closed

    asyncio.run(scene())
