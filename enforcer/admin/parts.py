"""What the admin API's endpoints work with: policies, what was read of traffic, bodies of requests."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Protocol

from fastapi import Path, Request
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from enforcer.admin.auth import Grant
from enforcer.admin.dispatch.table import DeliveryTable
from enforcer.admin.groups import Changes, Entries, Refused
from enforcer.admin.metrics import AdminMetrics
from enforcer.admin.settings import AdminSettings
from enforcer.admin.usage import UsageTable
from streaming.contract.errors import WeirError

NO_CONTENT: Final = 204
Name = Annotated[str, Path(min_length=1)]
"""A part of a path."""


class Unavailable(WeirError):
    """Policies cannot be read or changed now; a change may have been made all the same."""


class PolicyStore(Protocol):
    """Where policies are kept."""

    @property
    def entries(self) -> Entries:
        """Path -> value after all changes, those that take effect soon included.

        Raises:
            Unavailable: they have not been read yet.
        """

    async def change(self, decide: Callable[[Entries], Changes]) -> None:
        """Make a change, visible in `entries` when this returns.

        Args:
            decide: the entries as they are -> what to change; called again if somebody else came in between.

        Raises:
            Refused: by `decide`; nothing was changed.
            Unavailable: no answer within the limit.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the application works with."""

    store: PolicyStore
    usage: UsageTable
    deliveries: DeliveryTable
    metrics: AdminMetrics
    settings: AdminSettings
    grants: Sequence[Grant] = ()
    beyond: ASGIApp | None = None
    """Gets what is not Weir's own, where it stands in front of another admin API."""


async def body_of(request: Request, settings: AdminSettings) -> bytes:
    """The body, within its limits of size and time.

    Raises:
        Refused: 413, too large; 408, too slow; 400, cut off.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_timeout_ms / 1000):
            async for chunk in request.stream():
                body += chunk
                if len(body) > settings.body_max_bytes:
                    raise Refused(413, f"The body is larger than {settings.body_max_bytes} bytes")
    except TimeoutError:
        raise Refused(408, f"The body did not come within {settings.body_timeout_ms} ms") from None
    except ClientDisconnect:
        raise Refused(400, "The connection ended before the body did") from None
    return bytes(body)
