"""The admin API: Pulsar's REST for quotas, as `pulsar-admin` speaks it; of resource groups PIP-82's form too.

Policies come from and go to a `PolicyStore`. docs/admin_api.md lists the endpoints with their answers.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Request, Response, Security
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Match
from starlette.types import Scope

from enforcer.control import docs as admin_docs
from enforcer.control import groups
from enforcer.control.access.auth import ASKS_FIRST_HEADER, BEARER, groups_seen
from enforcer.control.answers.routes import TOTAL_HEADER, entity_routes
from enforcer.control.answers.stream import stream_routes
from enforcer.control.backlog.routes import quota_routes, stats_routes
from enforcer.control.console.pages import page_routes
from enforcer.control.console.policies import policy_routes
from enforcer.control.dispatch.broker import NAMES
from enforcer.control.dispatch.routes import NAMES_PATH, broker_routes, rate_routes
from enforcer.control.docs import refusals
from enforcer.control.groups import GroupView, Holder, Refusal
from enforcer.control.middleware import AccessControl, caller_of, reason_answer
from enforcer.control.parts import (
    NAMESPACE,
    NO_CONTENT,
    REASON_HEADER,
    Decide,
    Name,
    Parts,
    add_change,
    body_of,
    namespace_holder,
    reach_check,
)
from enforcer.control.usage import Usage
from enforcer.wire.http.paths import BadPath, plain, segments_of
from streaming.policy.groups import group_limits, round_rules
from streaming.policy.policy_set import Section

_ENTITIES: Final = "/weir/v1/entities/"


def create_app(parts: Parts) -> FastAPI:
    """The application, with its guard around it."""
    app = FastAPI(
        title="Weir admin API",
        version="2",
        description=admin_docs.DESCRIPTION,
        openapi_url=None,  # see admin_docs.add_to
        redirect_slashes=False,
        # Who may in is decided around all of it, unknown paths too; here, how far a tenant's token reaches.
        dependencies=[Security(BEARER), Depends(reach_check(parts))],
        responses=refusals(401, 403, 503),
        exception_handlers={
            Refusal: _refused,
            HTTPException: _http_error,
        },
    )
    for plural in (True, False):
        app.include_router(_group_routes(parts, plural=plural))
    for prefix, tag, holder in (
        (NAMESPACE, "Namespaces", namespace_holder),
        ("/admin/v2/tenants/{tenant}", "Tenants", _tenant),
    ):
        app.include_router(_holder_routes(parts, prefix, tag, holder))

    for routes in (
        rate_routes, quota_routes, broker_routes, entity_routes, stream_routes, policy_routes
    ):  # fmt: skip
        app.include_router(routes(parts))
    if parts.beyond is None:
        app.include_router(stats_routes(parts))
    app.include_router(page_routes())

    admin_docs.add_to(app)
    _allow_pages(app, parts.settings.allowed_origins)
    app.add_middleware(
        AccessControl, tokens=parts.tokens, metrics=parts.metrics, settings=parts.settings,
        beyond=parts.beyond, ours=partial(_is_ours, app), check=partial(_check_spelling, app),
    )  # fmt: skip
    return app


def _allow_pages(app: FastAPI, origins: Sequence[str]) -> None:
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=("GET", "PUT", "POST", "DELETE"),
            allow_headers=("authorization", "content-type", ASKS_FIRST_HEADER, REASON_HEADER),
            expose_headers=(TOTAL_HEADER,),
        )


def _is_ours(app: FastAPI, scope: Scope) -> bool:
    """Whether a request is for an endpoint of Weir's, in whatever way its path is written."""
    return _answers(app, scope, _meant(scope)) or _answers(app, scope, scope["path"])


def _check_spelling(app: FastAPI, scope: Scope) -> None:
    """Raises Refusal (400) for one of Weir's own whose path servers cut into parts in several ways."""
    sent = scope["raw_path"].decode("latin-1")
    if sent == plain(sent) and _meant(scope).startswith(_ENTITIES):
        return  # whatever follows is one name, and nothing that it may be read as is Pulsar's
    # A consumer group's name, the last but one, may hold a slash: its endpoint looks at what was sent.
    *names, _, last = ["", "", *_segments(scope)]
    plainly = sent == plain(sent) and "//" not in sent and not any("/" in name for name in (*names, last))
    # Else it is by a slash within a segment that it has so many.
    of_as_many = _answers(app, scope, _meant(scope))
    if not plainly or not of_as_many or not _answers(app, scope, scope["path"]):
        raise Refusal(400, "This path may be read in several ways; write it as the description does")


def _meant(scope: Scope) -> str:
    """The path with its segments as they were sent, a slash within one encoded."""
    return "/" + "/".join(quote(segment, safe="") for segment in _segments(scope))


def _meant_method(scope: Scope) -> str:
    """The method; where a browser asks on behalf of a page (CORS), the one that it would send."""
    method: str = scope["method"].upper()
    asked = Headers(scope=scope).get("access-control-request-method", method)
    return asked.upper() if method == "OPTIONS" else method


def _segments(scope: Scope) -> tuple[str, ...]:
    try:
        return segments_of(plain(scope["raw_path"].decode("latin-1")))
    except BadPath as bad:
        raise Refusal(400, str(bad)) from None


def _answers(app: FastAPI, scope: Scope, path: str) -> bool:
    """Whether an endpoint of Weir's answers at a path; not so for the settings of another broker."""
    read = {**scope, "path": path, "method": _meant_method(scope)}
    if not any(route.matches(read)[0] is Match.FULL for route in app.router.routes):
        return False
    if not path.startswith(NAMES_PATH):
        return True
    name, _, _ = path.removeprefix(NAMES_PATH).removeprefix("/").partition("/")
    return name in NAMES


def _group_routes(parts: Parts, *, plural: bool) -> APIRouter:
    """Resource groups, under Pulsar's path or PIP-82's."""
    prefix = "/admin/v2/resourcegroups" if plural else "/admin/v2/resourcegroup"
    router = APIRouter(prefix=prefix, tags=["Resource groups" if plural else "Resource groups, as in PIP-82"])
    store = parts.store

    @router.get("/", include_in_schema=False)
    @router.get("", response_model=list[str], summary="Names of all resource groups")
    async def list_groups(request: Request) -> Response:
        return JSONResponse(groups_seen(caller_of(request), store.entries))

    @router.get(
        "/{rg}", response_model=GroupView, responses=refusals(404), summary="Limits of a resource group"
    )
    async def get_group(rg: Name) -> Response:
        view = groups.group_view(store.entries, rg)
        if not plural:
            view |= {alias: view[name] for name, alias in groups.PIP_82_NAMES.items()}
        return JSONResponse(view)

    @router.get(
        "/{rg}/usage",
        response_model=Usage,
        responses=refusals(404),
        summary="Members, their use, share and throttled time",
    )
    async def usage(rg: Name) -> Response:
        groups.group_view(store.entries, rg)
        policies, now_ms = parts.in_force()
        limits = group_limits(policies, rg)
        if limits is None:
            raise Refusal(404, "No group is in force: the mode is off")
        return JSONResponse(parts.usage.view(rg, limits, round_rules(policies), now_ms))

    async def put(rg: Name, request: Request) -> Decide:
        fields = groups.group_fields(await body_of(request))
        return lambda entries: groups.put_group(entries, rg, fields)

    async def delete(rg: Name) -> Decide:
        return lambda entries: groups.delete_group(entries, rg)

    add_change(
        router, parts, "PUT", "/{rg}", put, (400, 408, 412, 413),
        openapi_extra=admin_docs.body(groups.GROUP_FIELDS.schema),
        summary="Create a resource group, or change the fields that are given",
    )  # fmt: skip
    add_change(
        router, parts, "DELETE", "/{rg}", delete, (404, 412),
        NO_CONTENT if plural else 200,  # 200 is PIP-82's own answer
        summary="Remove a resource group that nobody is attached to",
    )  # fmt: skip
    return router


async def _tenant(tenant: Name) -> Holder:
    return Holder(section=Section.TENANTS, name=tenant)


def _holder_routes(
    parts: Parts, prefix: str, tag: str, holder: Callable[..., Awaitable[Holder]]
) -> APIRouter:
    """Attaching tenants or namespaces to groups."""
    router = APIRouter(prefix=f"{prefix}/resourcegroup", tags=[tag])
    store, of_holder = parts.store, Depends(holder)

    @router.get(
        "",
        responses=admin_docs.BARE_NAME | refusals(412),
        summary="Name of the group; empty: none",
    )
    async def get(who: Holder = of_holder) -> Response:
        return PlainTextResponse(groups.attached_group(store.entries, who) or "")

    async def attach_to(rg: Name, who: Holder = of_holder) -> Decide:
        return lambda entries: groups.attach(entries, who, rg)

    async def detach_it(who: Holder = of_holder) -> Decide:
        return lambda entries: groups.detach(entries, who)

    attaches = "Attach to a group, in place of the one before"
    # Pulsar has POST, PIP-82 PUT.
    for method in ("POST", "PUT"):
        add_change(router, parts, method, "/{rg}", attach_to, (412,), summary=attaches)
    detaches = "Detach from the group, if there is one"
    add_change(router, parts, "DELETE", "", detach_it, (412,), summary=detaches)
    return router


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    if error.status == HTTPStatus.FORBIDDEN:
        raise error  # for the guard around all of it, which tells the log
    later = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s else None
    return reason_answer(error.status, error.reason, later)


async def _http_error(_request: Request, error: Exception) -> Response:
    """Unknown paths and methods."""
    assert isinstance(error, HTTPException)
    return reason_answer(error.status_code, str(error.detail), error.headers)
