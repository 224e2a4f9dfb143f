"""`GET /weir/v1/...`: the one view over all laws, and what is wrong with Weir's own topics."""

import time
from dataclasses import asdict
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel

from enforcer.control.answers.reach import check_seen, seen_by
from enforcer.control.answers.shown import BY, LIMIT, LIMIT_MAX, one, page, summary
from enforcer.control.docs import refusals
from enforcer.control.entities.laws import NAMES, Entity, Law
from enforcer.control.groups import Refusal
from enforcer.control.middleware import caller_of
from enforcer.control.parts import Parts

TOTAL_HEADER: Final = "X-Total-Count"
_OFFSET_MAX: Final = 2**31
Name = Annotated[str, Query(description="what is in an entity's name, as it is written there")]
_Order = Annotated[str, Query(json_schema_extra={"enum": list(BY)})]
_LawName = Annotated[str, Query(json_schema_extra={"enum": ["", *NAMES]})]
_Size = Annotated[str, Query(description=f"rows of a page, 1 to {LIMIT_MAX}")]
_Before = Annotated[str, Query(description="rows before the page's first")]


async def _by(by: _Order = "used") -> str:
    if by not in BY:
        raise Refusal(400, f"by: {by[:40]!r}; expected one of {', '.join(BY)}")
    return by


async def _law(law: _LawName = "") -> Law | None:
    return law_of(law) if law else None


async def _limit(limit: _Size = str(LIMIT)) -> int:
    return _whole("limit", limit, 1, LIMIT_MAX)


async def _offset(offset: _Before = "0") -> int:
    return _whole("offset", offset, 0, _OFFSET_MAX)


# Each answers 400 where it cannot be that.
By = Annotated[str, Depends(_by)]
"""What a list is sorted by."""
OfLaw = Annotated[Law | None, Depends(_law)]
"""Whose entities are asked for; None: those of all laws."""
Rows = Annotated[int, Depends(_limit)]
Offset = Annotated[int, Depends(_offset)]


class Fault(BaseModel):
    """One thing that is wrong with a topic, and the command that mends it."""

    topic: str
    fault: str
    what: str
    mend: str


def entity_routes(parts: Parts) -> APIRouter:
    """The list, an entity, and how all is."""
    router = APIRouter(prefix="/weir/v1", tags=["Who waits, and why"])

    @router.get(
        "/entities",
        response_model=list[dict[str, Any]],
        responses=refusals(400),
        summary="Entities of all laws, by how much of their limit they use, wait, or are refused",
    )
    async def entities(
        request: Request, by: By, law: OfLaw, offset: Offset, limit: Rows, name: Name = ""
    ) -> Response:
        seen = seen_by(caller_of(request), parts.store.entries)
        rows, total = page(
            parts.view, now_ms(), seen=seen, by=by, law=law, name=name, offset=offset, limit=limit
        )
        return _json(rows, {TOTAL_HEADER: str(total)})

    @router.get(
        "/entities/{law}/{entity:rest}",
        response_model=dict[str, Any],
        responses=refusals(400, 404),
        summary="One of them: why, its ladder of levels, shares, newest decisions, and what would help",
    )
    async def entity(request: Request, law: str, entity: str) -> Response:
        asked = Entity(law_of(law), entity)
        check_seen(caller_of(request), parts.store.entries, asked)
        found = one(parts.view, parts.deliveries, asked, now_ms())
        if found is None:
            raise Refusal(404, f"Nothing was heard of {entity} in {law}")
        return _json(found)

    @router.get(
        "/summary",
        response_model=dict[str, Any],
        summary="How many wait and for how long, and whether all parts live",
    )
    async def all_of_it(request: Request) -> Response:
        return _json(summary(parts.view, now_ms(), seen_by(caller_of(request), parts.store.entries)))

    @router.get(
        "/topics",
        response_model=list[Fault],
        summary="What is wrong with Weir's own topics, and what mends it",
    )
    async def topics() -> Response:
        return _json([asdict(each) for each in parts.topic_faults()])

    return router


def now_ms() -> int:
    """Now, ms since the epoch."""
    return time.time_ns() // 1_000_000


def law_of(text: str) -> Law:
    """A law by its name; raises Refusal (400): there is none."""
    if text not in NAMES:
        raise Refusal(400, f"law: {text[:40]!r}; expected one of {', '.join(NAMES)}")
    return Law(NAMES.index(text))


def _whole(name: str, text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and least <= int(text) <= most):
        raise Refusal(400, f"{name}: {text[:40]!r}; expected a whole number from {least} to {most}")
    return int(text)


def _json(said: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(said), 200, headers, "application/json")
