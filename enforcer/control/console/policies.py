"""Policies over HTTP as a policy file has them: every entry, checked and changed, and who changed what."""

from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from enforcer.control import docs as admin_docs
from enforcer.control.access.tokens import Role
from enforcer.control.answers.routes import TOTAL_HEADER, Offset, Rows
from enforcer.control.docs import refusals
from enforcer.control.groups import Changes, Entries, Holder, Refusal, attach, delete_group, object_of
from enforcer.control.middleware import caller_of
from enforcer.control.parts import Decide, Parts, add_change, body_of
from streaming.contract.errors import BadEvent
from streaming.kafka_io.policy_topic import newest_rows
from streaming.policy.files import check_entry
from streaming.policy.policy_set import Section, parse_path

PREFIX: Final = "/weir/v1/policies"
_EXAMPLE: Final = '{"entry":"quotas[user=alice]","value":{"controller_mutation_rate":5}}'
_SCHEMA: Final = {
    "type": "object",
    "description": "value: as in a policy file; null removes the entry",
    "properties": {"entry": {"type": "string"}, "value": {"type": ["object", "string", "null"]}},
    "required": ["entry", "value"],
    "additionalProperties": False,
}


class Entry(BaseModel):
    """One entry, and by which way it was set."""

    entry: str
    value: dict[str, Any] | str
    origin: str


class Policies(BaseModel):
    """Entries in force or soon to be, and whether who asks may change them."""

    version: int
    may_change: bool
    entries: list[Entry]


class Change(BaseModel):
    """One change of an entry; `old_known` is false where nobody can tell what was there before."""

    at: int
    actor: str
    entry: str
    old: dict[str, Any] | str | None
    new: dict[str, Any] | str | None
    reason: str
    version: int
    old_known: bool = True


class Checked(BaseModel):
    """All that is wrong with an entry."""

    problems: list[str]


def policy_routes(parts: Parts) -> APIRouter:
    """The endpoints."""
    router = APIRouter(prefix=PREFIX, tags=["Policies"])

    @router.get("", response_model=Policies, responses=refusals(400), summary="Entries, sorted by name")
    async def policies(
        request: Request, offset: Offset, limit: Rows, entry: str = "", like: str = ""
    ) -> Response:
        log = parts.store.log
        held = log.entries
        wanted = [entry] if entry in held else [] if entry else sorted(path for path in held if like in path)
        shown = [
            {"entry": path, "value": held[path], "origin": log.origins.get(path, "")}
            for path in wanted[offset : offset + limit]
        ]
        may = caller_of(request).role is Role.OPERATOR
        answer = {"version": log.newest_version, "may_change": may, "entries": shown}
        return JSONResponse(answer, headers={TOTAL_HEADER: str(len(wanted))})

    @router.get("/log", response_model=list[Change], responses=refusals(400), summary="Changes, newest first")
    async def changes(offset: Offset, limit: Rows, entry: str | None = None) -> Response:
        told = {path: tuple(each) for path, each in parts.store.log.told.items() if entry in (None, path)}
        total = sum(map(len, told.values()))
        # In a thread, with a copy: of a hundred thousand entries it takes a fifth of a second and more.
        page = await run_in_threadpool(newest_rows, told, offset, limit) if offset < total else []
        return JSONResponse(page, headers={TOTAL_HEADER: str(total)})

    @router.post(
        "/check",
        response_model=Checked,
        responses=refusals(400, 408, 413),
        openapi_extra=admin_docs.body(_SCHEMA),
        summary="What is wrong with an entry, without setting it",
    )
    async def check(request: Request) -> Response:
        (entry, value), entries = _wanted(await body_of(request)), parts.store.entries
        try:
            change_of(entries, entry, value)
        except Refusal as refused:
            return JSONResponse({"problems": refused.reason.split(" | ")})
        return JSONResponse({"problems": []})

    async def put(request: Request) -> Decide:
        entry, value = _wanted(await body_of(request))
        return lambda entries: change_of(entries, entry, value)

    add_change(
        router, parts, "PUT", "", put, (400, 404, 408, 412, 413),
        openapi_extra=admin_docs.body(_SCHEMA), summary="Set an entry, or remove it",
    )  # fmt: skip
    return router


def change_of(entries: Entries, entry: str, value: Mapping[str, Any] | str | None) -> Changes:
    """What setting an entry changes; the same is refused as by a policy file.

    Raises:
        Refusal: 400, all that is wrong with it; 404, there is none to remove; 412, a group that is not there
            or in use.
    """
    try:
        check_entry(entry, value)
        path = parse_path(entry)
    except BadEvent as bad:
        raise Refusal(400, bad.reason) from None
    if value is None:
        if path.section is Section.RESOURCE_GROUPS:
            return delete_group(entries, path.name)
        if entry not in entries:
            raise Refusal(404, f"There is no entry {entry}")
    elif isinstance(value, Mapping) and (group := value.get("resourcegroup")):
        attach(entries, Holder(section=path.section, name=path.name), group)
    return {entry: dict(value) if isinstance(value, Mapping) else value}


def _wanted(body: bytes) -> tuple[str, dict[str, Any] | str | None]:
    given = object_of(body, _EXAMPLE)
    entry, value = given.get("entry"), given.get("value")
    if set(given) != {"entry", "value"} or not isinstance(entry, str):
        raise Refusal(400, f"The body has other fields than an entry and its value; expected {_EXAMPLE}")
    if value is not None and not isinstance(value, dict | str):
        raise Refusal(400, "value: is no object; expected one as in a policy file (a text for mode), or null")
    return entry, value
