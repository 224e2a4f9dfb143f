"""What the admin API's endpoints work with: policies, what was read of traffic, bodies of requests."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Protocol

from fastapi import Path, Query, Request
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from enforcer.control.auth import Grant
from enforcer.control.backlog.table import BacklogTable
from enforcer.control.dispatch.table import DeliveryTable
from enforcer.control.groups import Changes, Entries, Holder, Refused
from enforcer.control.metrics import AdminMetrics
from enforcer.control.settings import AdminSettings
from enforcer.control.usage import UsageTable
from streaming.contract.errors import WeirError
from streaming.policy.policy_set import Section

NO_CONTENT: Final = 204
Name = Annotated[str, Path(min_length=1)]
"""A part of a path."""
NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
TOPIC: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_FLAGS: Final = {"true": True, "false": False}
Flag = Annotated[str, Query(json_schema_extra={"enum": ["true", "false"]})]
"""A parameter of a query that `flag` reads."""


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
    backlogs: BacklogTable
    metrics: AdminMetrics
    settings: AdminSettings
    grants: Sequence[Grant] = ()
    beyond: ASGIApp | None = None
    """Gets what is not Weir's own, where it stands in front of another admin API."""


def namespace_holder(tenant: Name, namespace: Name) -> Holder:
    """The namespace that a path names."""
    return Holder(section=Section.NAMESPACES, name=f"{tenant}/{namespace}")


def topic_holder(tenant: str, namespace: str, topic: str) -> Holder:
    """The topic that a path names."""
    return Holder(section=Section.TOPICS, name=f"persistent://{tenant}/{namespace}/{topic}")


def flag(name: str, text: str) -> bool:
    """The value of a parameter.

    Raises:
        Refused: 400, neither true nor false.
    """
    if text.lower() not in _FLAGS:
        raise Refused(400, f"{name}: expected true or false")
    return _FLAGS[text.lower()]


def not_global(text: str) -> None:
    """Raises Refused (400, 412) where policies of all clusters are asked for."""
    if flag("isGlobal", text):
        raise Refused(
            412, "Policies here are those of one cluster; there are no global ones that others would follow"
        )


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
