"""What the admin API's endpoints work with: policies, what was read of traffic, bodies of requests."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from enforcer.control import docs as admin_docs
from enforcer.control.access.auth import as_written, check_in_force, check_reach
from enforcer.control.access.tokens import Role, Tokens
from enforcer.control.backlog.table import BacklogTable
from enforcer.control.dispatch.table import DeliveryTable
from enforcer.control.docs import refusals
from enforcer.control.entities.view import ROWS_MAX, EntityView
from enforcer.control.groups import Changes, Entries, Holder, Place, Refusal
from enforcer.control.metrics import AdminMetrics
from enforcer.control.middleware import caller_of
from enforcer.control.settings import AdminSettings
from enforcer.control.store import PolicyStore
from enforcer.control.usage import UsageTable
from streaming.contract.events import REASON_MAX
from streaming.kafka_io.weir_topics import TopicFault
from streaming.policy.policy_set import PolicySet, Section
from streaming.policy.validation import Schema

BODY_TIMEOUT_MS: Final = 5_000
"""Limit for a body to arrive, then 408."""
BODY_MAX_BYTES: Final = 65_536
"""Largest body of a request; a larger one gets 413."""
CHANGES_A_MINUTE: Final = 120
"""Changes that tokens for a tenant may make there, then 429: each may be an entry that all readers keep."""
NO_CONTENT: Final = 204
Name = Annotated[str, Path(min_length=1)]
"""A part of a path."""
NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
TOPIC: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
REASON_HEADER: Final = "X-Weir-Reason"
Reason = Annotated[str, Header(alias=REASON_HEADER, description="why, for the log of changes")]
_MINUTE_S: Final = 60.0
_FLAGS: Final = {"true": True, "false": False}
Flag = Annotated[str, Query(json_schema_extra={"enum": ["true", "false"]})]
"""A parameter of a query that `flag` reads."""


class _Rest(PathConvertor):
    """What is left of a path, `{name:rest}`, with newlines in it, which Starlette's own `path` leaves out."""

    regex = "(?s:.*)"


register_url_convertor("rest", _Rest())

Decide = Callable[[Entries], Changes]
"""The entries as they are -> what to change."""


class ChangesAMinute:
    """How many changes each tenant has made, by its own tokens, in this minute."""

    def __init__(self) -> None:
        self._until_s = 0.0
        self._made: Counter[str] = Counter()

    def take(self, tenant: str) -> None:
        """Count one more; raises Refusal (429) if it is one too many."""
        now_s = time.monotonic()
        if now_s >= self._until_s:
            self._until_s, self._made = now_s + _MINUTE_S, Counter()
        if self._made[tenant] >= CHANGES_A_MINUTE:
            reason = f"{tenant} has made {CHANGES_A_MINUTE} changes in this minute, as many as it may"
            raise Refusal(429, reason, math.ceil(self._until_s - now_s))
        self._made[tenant] += 1


@dataclass(slots=True)
class Streams:
    """Answers that last.

    Attributes:
        open: how many there are.
        stopping: they are to end, since the process does.
    """

    open: int = 0
    stopping: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the application works with."""

    store: PolicyStore
    view: EntityView
    metrics: AdminMetrics
    settings: AdminSettings
    tokens: Tokens
    usage: UsageTable = field(default_factory=partial(UsageTable, ROWS_MAX))
    deliveries: DeliveryTable = field(default_factory=partial(DeliveryTable, ROWS_MAX))
    backlogs: BacklogTable = field(default_factory=partial(BacklogTable, ROWS_MAX))
    changes: ChangesAMinute = field(default_factory=ChangesAMinute)
    streams: Streams = field(default_factory=Streams)
    topic_faults: Callable[[], Sequence[TopicFault]] = tuple
    """What is wrong with Weir's topics."""
    beyond: ASGIApp | None = None
    """Gets what is not Weir's own, where it stands in front of another admin API."""

    def in_force(self) -> tuple[PolicySet, int]:
        """The policies in force now, made once for all who ask, and the time, ms; raises Unavailable."""
        _ = self.store.entries
        return self.view.policies, time.time_ns() // 1_000_000


async def namespace_holder(tenant: Name, namespace: Name) -> Holder:
    """The namespace that a path names."""
    return Holder(section=Section.NAMESPACES, name=f"{tenant}/{namespace}")


def topic_holder(tenant: str, namespace: str, topic: str) -> Holder:
    """The topic that a path names."""
    return Holder(section=Section.TOPICS, name=f"persistent://{tenant}/{namespace}/{topic}")


def flag(name: str, text: str) -> bool:
    """The value of a parameter; raises Refusal: 400, neither true nor false."""
    if text.lower() not in _FLAGS:
        raise Refusal(400, f"{name}: expected true or false")
    return _FLAGS[text.lower()]


async def topic_of_path(tenant: Name, namespace: Name, topic: Name, isGlobal: Flag = "false") -> Holder:
    """The topic that a path names; raises Refusal (400, 412) where policies of all clusters are asked for."""
    if flag("isGlobal", isGlobal):
        raise Refusal(
            412, "Policies here are those of one cluster; there are no global ones that others would follow"
        )
    return topic_holder(tenant, namespace, topic)


async def never() -> bool:
    """A namespace has nothing above it that would apply."""
    return False


async def if_applied(applied: Flag = "false") -> bool:
    """Whether it is asked what applies, not only what is set there."""
    return flag("applied", applied)


def add_changes(
    router: APIRouter,
    parts: Parts,
    path: str,
    place_of: Callable[..., Any],
    fields_of: Callable[[bytes, Any], Mapping[str, Any]],
    *,
    schema: Schema,
    summaries: tuple[str, str],
    **told: Any,
) -> None:
    """POST and DELETE of what stands at one kind of Place, which the dependency `place_of` tells.

    `fields_of` reads a body for a place; what is `told` besides is said of both.
    """
    of_path, refused = Depends(place_of), told.pop("refused", ())

    async def post(request: Request, place: Place = of_path) -> Decide:
        fields = fields_of(await body_of(request), place)
        return lambda entries: place.put(entries, fields)

    async def delete(place: Place = of_path) -> Decide:
        return place.delete

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

    `decision` is a dependency, and what it returns is asked for the changes; `refused`: what it answers else.
    """
    of_request = Depends(decision)
    if "{tenant}" in router.prefix + path:
        refused = (*refused, 429)

    async def change(request: Request, decide: Any = of_request, why: Reason = "") -> Response:
        def within_reach(entries: Entries) -> Changes:
            # By tokens and entries as they are now, and not only as they were when it was asked.
            check_in_force(parts.tokens.in_force(parts.metrics.token_reads), caller_of(request))
            check_reach(caller_of(request), request, lambda: entries)
            changes: Changes = decide(entries)
            return changes

        if len(request.headers.getlist(REASON_HEADER)) > 1:
            raise Refusal(400, f"{REASON_HEADER}: is there twice; expected one")
        caller = caller_of(request)
        if caller.role is Role.TENANT:
            parts.changes.take(request.path_params["tenant"])
        await parts.store.change(within_reach, caller.name, _reason(as_written(why)))
        return Response(status_code=status)

    router.add_api_route(
        path, change, methods=[method], status_code=status, response_class=Response,
        responses=refusals(400, *refused), name=decision.__name__, **told,
    )  # fmt: skip


def reach_check(parts: Parts) -> Callable[[Request], Awaitable[None]]:
    """A dependency that keeps a tenant's token to what is its own."""

    async def check(request: Request) -> None:
        check_reach(caller_of(request), request, lambda: parts.store.entries)

    return check


def _reason(sent: str) -> str:
    """The reason of a change."""
    if len(sent) > REASON_MAX:
        raise Refusal(400, f"{REASON_HEADER}: has {len(sent)} characters; expected at most {REASON_MAX}")
    return sent.strip()


async def body_of(request: Request) -> bytes:
    """The body, within its limits; raises Refusal: 413, too large; 408, too slow; 400, cut off."""
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
