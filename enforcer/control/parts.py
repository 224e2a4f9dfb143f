"""What the admin API's endpoints work with: policies, what was read of traffic, bodies of requests."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Protocol

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from enforcer.control import docs as admin_docs
from enforcer.control.auth import Grant
from enforcer.control.backlog.table import BacklogTable
from enforcer.control.dispatch.table import DeliveryTable
from enforcer.control.docs import refusals
from enforcer.control.groups import Changes, Entries, Holder, Refusal
from enforcer.control.metrics import AdminMetrics
from enforcer.control.settings import AdminSettings
from enforcer.control.usage import UsageTable
from streaming.contract.errors import WeirError
from streaming.policy.policy_set import Section
from streaming.policy.validation import Schema

BODY_TIMEOUT_MS: Final = 5_000
"""Limit for a body to arrive, then 408."""
BODY_MAX_BYTES: Final = 65_536
"""Largest body of a request; a larger one gets 413."""
NO_CONTENT: Final = 204
Name = Annotated[str, Path(min_length=1)]
"""A part of a path."""
NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
TOPIC: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_FLAGS: Final = {"true": True, "false": False}
Flag = Annotated[str, Query(json_schema_extra={"enum": ["true", "false"]})]
"""A parameter of a query that `flag` reads."""


Decide = Callable[[Entries], Changes]
"""The entries as they are -> what to change."""


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

    async def change(self, decide: Decide) -> None:
        """Make a change, visible in `entries` when this returns.

        Args:
            decide: the entries as they are -> what to change; called again if somebody else came in between.

        Raises:
            Refusal: by `decide`; nothing was changed.
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
        Refusal: 400, neither true nor false.
    """
    if text.lower() not in _FLAGS:
        raise Refusal(400, f"{name}: expected true or false")
    return _FLAGS[text.lower()]


def not_global(text: str) -> None:
    """Raises Refusal (400, 412) where policies of all clusters are asked for."""
    if flag("isGlobal", text):
        raise Refusal(
            412, "Policies here are those of one cluster; there are no global ones that others would follow"
        )


def never() -> bool:
    """A namespace has nothing above it that would apply."""
    return False


def if_applied(applied: Flag = "false") -> bool:
    """Whether it is asked what applies, not only what is set there."""
    return flag("applied", applied)


def add_changes(
    router: APIRouter,
    parts: Parts,
    path: str,
    place_of: Callable[..., Any],
    fields_of: Callable[[bytes, Any], Mapping[str, Any]],
    put: Callable[[Entries, Any, Mapping[str, Any]], Changes],
    remove: Callable[[Entries, Any], Changes],
    *,
    schema: Schema,
    summaries: tuple[str, str],
    **told: Any,
) -> None:
    """POST and DELETE of what stands at one kind of place.

    Args:
        router, parts: where they are added, and what they work with.
        path: theirs.
        place_of: a dependency.
        fields_of: reads a body for a place.
        put, remove: (entries, place, what was read) -> changes; without the last.
        schema: of the body.
        summaries: of both.
        told: what else is said of both.
    """
    of_path, refused = Depends(place_of), told.pop("refused", ())

    async def post(request: Request, place: Any = of_path) -> Decide:
        fields = fields_of(await body_of(request, parts.settings), place)
        return lambda entries: put(entries, place, fields)

    async def delete(place: Any = of_path) -> Decide:
        return lambda entries: remove(entries, place)

    described = {**told, "openapi_extra": admin_docs.body(schema), "summary": summaries[0]}
    add_change(router, parts, "POST", path, post, (400, *refused, 408, 412, 413), **described)
    add_change(router, parts, "DELETE", path, delete, (400, *refused, 412), summary=summaries[1], **told)


def add_change(
    router: APIRouter,
    parts: Parts,
    method: str,
    path: str,
    decision: Callable[..., Any],
    refused: Sequence[int],
    status: int = NO_CONTENT,
    **told: Any,
) -> None:
    """An endpoint that changes policies and answers nothing.

    Args:
        router, parts, path: see add_changes.
        method: its method.
        decision: a dependency; what it returns is asked for the changes.
        refused: statuses that it may answer with instead.
        status: its answer's.
        told: what else is said of it.
    """
    of_request = Depends(decision)

    async def change(decide: Any = of_request) -> Response:
        await parts.store.change(decide)
        return Response(status_code=status)

    router.add_api_route(
        path, change, methods=[method], status_code=status, response_class=Response,
        responses=refusals(*refused), name=decision.__name__, **told,
    )  # fmt: skip


async def body_of(request: Request, settings: AdminSettings) -> bytes:
    """The body, within its limits of size and time.

    Raises:
        Refusal: 413, too large; 408, too slow; 400, cut off.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_MS / 1000):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_MAX_BYTES:
                    raise Refusal(413, f"The body is larger than {BODY_MAX_BYTES} bytes")
    except TimeoutError:
        raise Refusal(408, f"The body did not come within {BODY_TIMEOUT_MS} ms") from None
    except ClientDisconnect:
        raise Refusal(400, "The connection ended before the body did") from None
    return bytes(body)
