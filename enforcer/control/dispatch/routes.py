"""Endpoints of dispatch limits: rates at each level, the broker's settings."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Final
from urllib.parse import unquote, unquote_plus

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import JSONResponse

from enforcer.control import docs as admin_docs
from enforcer.control.dispatch.broker import NAMES, delete_value, put_value, values
from enforcer.control.dispatch.rates import RATE_SCHEMA, RatePlace, applied_rate, rate_fields
from enforcer.control.docs import refusals
from enforcer.control.groups import Holder, Refusal
from enforcer.control.parts import (
    NAMESPACE,
    TOPIC,
    Decide,
    Name,
    Parts,
    add_change,
    add_changes,
    if_applied,
    namespace_holder,
    never,
    topic_of_path,
)
from streaming.policy.topics import RateKind

NAMES_PATH: Final = "/admin/v2/brokers/configuration"
_BEFORE_SUBSCRIPTION: Final = TOPIC.count("/") + 1
_TO_SUBSCRIPTION: Final = "{subscription:rest}"
# Names of consumer groups may hold what paths are made of.
_Subscription = Annotated[str, Path()]


def rate_routes(parts: Parts) -> APIRouter:
    """Dispatch rates on each level that has a name."""
    router = APIRouter()
    for kind in RateKind:
        _add_rates(router, parts, f"{NAMESPACE}/{kind}", "Namespaces", _of(namespace_holder, kind), never)
        _add_rates(router, parts, f"{TOPIC}/{kind}", "Topics", _of(topic_of_path, kind), if_applied)
    own = f"{TOPIC}/{_TO_SUBSCRIPTION}/{RateKind.TOPIC}"
    _add_rates(router, parts, own, "Topics", _of_subscription, if_applied)
    return router


def broker_routes(parts: Parts) -> APIRouter:
    """The broker's settings, as Pulsar's dynamic configuration; changes of it answer 200 there."""
    router = APIRouter(prefix=NAMES_PATH, tags=["Brokers"])
    store = parts.store

    @router.get("", response_model=list[str], summary="Names of all settings")
    async def names() -> Response:
        return JSONResponse(list(NAMES))

    @router.get("/values", response_model=dict[str, str], summary="The settings that are set, as texts")
    async def held() -> Response:
        return JSONResponse(values(store.entries))

    async def put(name: Name, value: Name) -> Decide:
        return lambda entries: put_value(entries, name, value)

    async def delete(name: Name) -> Decide:
        return lambda entries: delete_value(entries, name)

    sets = "Set a setting for all brokers"
    add_change(router, parts, "POST", "/{name}/{value}", put, (400, 412), 200, summary=sets)
    add_change(router, parts, "DELETE", "/{name}", delete, (412,), 200, summary="Back to the default")
    return router


def _add_rates(
    router: APIRouter,
    parts: Parts,
    path: str,
    tag: str,
    place_of: Callable[..., Awaitable[RatePlace]],
    applied_of: Callable[..., Awaitable[bool]],
) -> None:
    """GET, POST and DELETE of the rates at one kind of place."""
    store, of_path, asked = parts.store, Depends(place_of), Depends(applied_of)

    @router.get(
        path,
        responses=admin_docs.or_empty(RATE_SCHEMA) | refusals(400, 412),
        summary="The dispatch rate; empty: none",
        tags=[tag],
        response_class=Response,
    )
    async def get(place: RatePlace = of_path, applied: bool = asked) -> Response:
        rate = applied_rate(parts.in_force()[0], place) if applied else place.at(store.entries)
        # As JSON: of an empty text pulsar-admin's client makes nothing, and waits for ever.
        return Response(media_type="application/json") if rate is None else JSONResponse(rate)

    add_changes(
        router, parts, path, place_of, lambda body, _place: rate_fields(body), schema=RATE_SCHEMA, tags=[tag],
        summaries=(
            "Set the dispatch rate, in place of the one before", "Remove the dispatch rate, if there is one",
        ),
    )  # fmt: skip


def _of(holder_of: Callable[..., Awaitable[Holder]], kind: RateKind) -> Callable[..., Awaitable[RatePlace]]:
    async def place(holder: Annotated[Holder, Depends(holder_of)]) -> RatePlace:
        return RatePlace(holder=holder, kind=kind)

    return place


async def _of_subscription(
    request: Request, subscription: _Subscription, holder: Annotated[Holder, Depends(topic_of_path)]
) -> RatePlace:
    # As it was sent: pulsar-admin writes a space as a plus, which only Pulsar reads so in a path.
    sent = "/".join(request.scope["raw_path"].decode("ascii", "replace").split("/")[_BEFORE_SUBSCRIPTION:-1])
    if unquote(sent) != subscription:
        raise Refusal(412, "Topic name is not valid")
    return RatePlace(holder=holder, kind=RateKind.SUBSCRIPTION, subscription=unquote_plus(sent))
