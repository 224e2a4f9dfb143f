"""The admin API: Pulsar's REST for resource groups, as `pulsar-admin` speaks it, and PIP-82's own form of it.

The application knows no Kafka: policies come from and go to a `PolicyStore`. docs/admin_api.md lists the
endpoints with their answers.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, FastAPI, Path, Request, Response, Security
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from enforcer.admin import docs as admin_docs
from enforcer.admin.auth import ASKS_FIRST_HEADER, BEARER, Grant
from enforcer.admin.docs import refusals
from enforcer.admin.groups import (
    GROUP_FIELDS,
    PIP_82_NAMES,
    Changes,
    Entries,
    GroupView,
    Holder,
    Refused,
    attach,
    attached_group,
    delete_group,
    detach,
    group_fields,
    group_names,
    group_view,
    put_group,
)
from enforcer.admin.metrics import AdminMetrics
from enforcer.admin.middleware import QuotaCoordinator, reason_body
from enforcer.admin.settings import AdminSettings
from enforcer.admin.usage import Usage, UsageTable
from streaming.contract.errors import WeirError
from streaming.policy.groups import group_limits, round_rules
from streaming.policy.policy_set import PolicySet, Section

NO_CONTENT = 204
Name = Annotated[str, Path(min_length=1)]


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
    metrics: AdminMetrics
    settings: AdminSettings
    grants: Sequence[Grant] = ()


def create_app(parts: Parts) -> FastAPI:
    """The application, with its guard around it."""
    app = FastAPI(
        title="Weir admin API",
        version="2",
        description=admin_docs.DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Who may in is decided around all of it, pages and unknown paths too; here it is only told.
        dependencies=[Security(BEARER)],
        responses=refusals(401, 403, 503),
        exception_handlers={
            Refused: _refused,
            Unavailable: _unavailable,
            HTTPException: _http_error,
        },
    )
    for plural in (True, False):
        app.include_router(_group_routes(parts, plural=plural))
    for prefix, tag, holder in (
        ("/admin/v2/namespaces/{tenant}/{namespace}", "Namespaces", _namespace),
        ("/admin/v2/tenants/{tenant}", "Tenants", _tenant),
    ):
        app.include_router(_holder_routes(parts, prefix, tag, holder))

    @app.get("/", include_in_schema=False)
    @app.get("/docs", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(admin_docs.page(app.openapi()), headers=admin_docs.PAGE_HEADERS)

    admin_docs.complete(app.openapi())
    if origins := parts.settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=("GET", "PUT", "POST", "DELETE"),
            allow_headers=("authorization", "content-type", ASKS_FIRST_HEADER),
        )
    app.add_middleware(
        QuotaCoordinator, grants=parts.grants, metrics=parts.metrics, settings=parts.settings
    )
    return app


def _group_routes(parts: Parts, *, plural: bool) -> APIRouter:
    """Resource groups, under Pulsar's path or PIP-82's."""
    prefix = "/admin/v2/resourcegroups" if plural else "/admin/v2/resourcegroup"
    router = APIRouter(prefix=prefix, tags=["Resource groups" if plural else "Resource groups, as in PIP-82"])
    store = parts.store

    @router.get("/", include_in_schema=False)
    @router.get("", response_model=list[str], summary="Names of all resource groups")
    async def list_groups() -> Response:
        return JSONResponse(group_names(store.entries))

    @router.get(
        "/{rg}", response_model=GroupView, responses=refusals(404), summary="Limits of a resource group"
    )
    async def get_group(rg: Name) -> Response:
        view = group_view(store.entries, rg)
        if not plural:
            view |= {alias: view[name] for name, alias in PIP_82_NAMES.items()}
        return JSONResponse(view)

    @router.get(
        "/{rg}/usage",
        response_model=Usage,
        responses=refusals(404),
        summary="Members, their use, share and throttled time",
    )
    async def usage(rg: Name) -> Response:
        policies = PolicySet(store.entries)
        limits = group_limits(policies, rg)
        if limits is None:
            raise Refused(404, "ResourceGroup does not exist")
        now_ms = time.time_ns() // 1_000_000
        return JSONResponse(parts.usage.view(rg, limits, round_rules(policies), now_ms))

    _add_group_changes(router, parts, deleted=NO_CONTENT if plural else 200)  # 200 is PIP-82's own answer
    return router


def _add_group_changes(router: APIRouter, parts: Parts, *, deleted: int) -> None:
    store = parts.store

    @router.put(
        "/{rg}",
        status_code=NO_CONTENT,
        response_class=Response,
        responses=refusals(400, 408, 412, 413),
        openapi_extra=admin_docs.body(GROUP_FIELDS),
        summary="Create a resource group, or change the fields that are given",
    )
    async def put(rg: Name, request: Request) -> Response:
        fields = group_fields(await _body(request, parts.settings))
        await store.change(lambda entries: put_group(entries, rg, fields))
        return Response(status_code=NO_CONTENT)

    @router.delete(
        "/{rg}",
        status_code=deleted,
        response_class=Response,
        responses=refusals(404, 412),
        summary="Remove a resource group that nobody is attached to",
    )
    async def delete(rg: Name) -> Response:
        await store.change(lambda entries: delete_group(entries, rg))
        return Response(status_code=deleted)


def _tenant(tenant: Name) -> Holder:
    return Holder(section=Section.TENANTS, name=tenant)


def _namespace(tenant: Name, namespace: Name) -> Holder:
    return Holder(section=Section.NAMESPACES, name=f"{tenant}/{namespace}")


def _holder_routes(parts: Parts, prefix: str, tag: str, holder: Callable[..., Holder]) -> APIRouter:
    """Attaching tenants or namespaces to groups."""
    router = APIRouter(prefix=f"{prefix}/resourcegroup", tags=[tag])
    store, of_holder = parts.store, Depends(holder)

    @router.get(
        "",
        responses=admin_docs.BARE_NAME | refusals(412),
        summary="Name of the group; empty: none",
    )
    async def get(who: Holder = of_holder) -> Response:
        return PlainTextResponse(attached_group(store.entries, who) or "")

    async def attach_to(rg: Name, who: Holder = of_holder) -> Response:
        await store.change(lambda entries: attach(entries, who, rg))
        return Response(status_code=NO_CONTENT)

    # Pulsar has POST, PIP-82 PUT.
    for method in (router.post, router.put):
        method(
            "/{rg}",
            status_code=NO_CONTENT,
            response_class=Response,
            responses=refusals(412),
            summary="Attach to a group, in place of the one before",
        )(attach_to)

    @router.delete(
        "",
        status_code=NO_CONTENT,
        response_class=Response,
        responses=refusals(412),
        summary="Detach from the group, if there is one",
    )
    async def detach_it(who: Holder = of_holder) -> Response:
        await store.change(lambda entries: detach(entries, who))
        return Response(status_code=NO_CONTENT)

    return router


async def _body(request: Request, settings: AdminSettings) -> bytes:
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


def _answer(status: int, reason: str, headers: Any = None) -> Response:
    return Response(reason_body(reason), status, headers, "application/json")


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return _answer(error.status, error.reason)


async def _unavailable(_request: Request, error: Exception) -> Response:
    return _answer(503, str(error), {"Retry-After": "1"})


async def _http_error(_request: Request, error: Exception) -> Response:
    """Unknown paths and methods."""
    assert isinstance(error, HTTPException)
    return _answer(error.status_code, str(error.detail), error.headers)
