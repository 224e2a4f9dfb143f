"""Endpoints of backlogs: quotas of namespaces and topics; stats of topics, deliveries among them."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse

from enforcer.control.backlog import quotas
from enforcer.control.backlog.stats import (
    BacklogStats,
    PartitionedBacklog,
    SubscriptionBacklog,
    partitioned_backlog,
    topic_backlog,
)
from enforcer.control.dispatch.stats import SubscriptionStats, TopicStats, topic_stats
from enforcer.control.docs import refusals
from enforcer.control.groups import Holder, Refusal
from enforcer.control.parts import (
    NAMESPACE,
    TOPIC,
    Flag,
    Name,
    Parts,
    add_changes,
    flag,
    if_applied,
    namespace_holder,
    never,
    topic_holder,
    topic_of_path,
)
from streaming.policy.policy_set import PolicySet
from streaming.policy.topics import BacklogKind

_KINDS: Final = tuple(kind.value for kind in BacklogKind)
_Kind = Annotated[str, Query(json_schema_extra={"enum": list(_KINDS)})]


class WholeSubscription(SubscriptionBacklog, SubscriptionStats):
    """A subscription of which both is known."""


class WholeStats(BacklogStats, TopicStats):
    """A topic of which both is known; of its subscriptions perhaps one."""

    subscriptions: dict[str, WholeSubscription | SubscriptionStats | SubscriptionBacklog]  # type: ignore[assignment]


class WholePartitionedStats(PartitionedBacklog, TopicStats):
    """A partitioned topic of which both is known."""

    subscriptions: dict[str, WholeSubscription | SubscriptionStats | SubscriptionBacklog]  # type: ignore[assignment]


def quota_routes(parts: Parts) -> APIRouter:
    """Backlog quotas of namespaces and topics."""
    router = APIRouter()
    _add_quotas(router, parts, NAMESPACE, "Namespaces", namespace_holder, never)
    _add_quotas(router, parts, TOPIC, "Topics", topic_of_path, if_applied)
    return router


def stats_routes(parts: Parts) -> APIRouter:
    """Deliveries and backlogs of topics."""
    router = APIRouter(tags=["Topics"])

    @router.get(
        f"{TOPIC}/stats",
        response_model=WholeStats | TopicStats | BacklogStats,
        responses=refusals(404, 412),
        summary="Backlog and deliveries of a topic and its subscriptions, and what may be delivered now",
    )
    async def stats(tenant: Name, namespace: Name, topic: Name) -> Response:
        name, policies, now_ms = _asked(parts, tenant, namespace, topic)
        backlog = topic_backlog(parts.backlogs, name, policies, now_ms)
        if backlog is None and partitioned_backlog(parts.backlogs, name, policies, now_ms) is not None:
            raise Refusal(404, f"Topic {name} not found; it is partitioned: see partitioned-stats")
        found = joined(topic_stats(parts.deliveries, name, policies, now_ms), backlog)
        if found is None:
            raise Refusal(404, f"Topic {name} not found")
        return JSONResponse(found)

    @router.get(
        f"{TOPIC}/partitioned-stats",
        response_model=WholePartitionedStats | PartitionedBacklog,
        responses=refusals(400, 404, 412),
        summary="Backlog of a partitioned topic, its partitions together and each by itself; its deliveries",
    )
    async def partitioned(
        tenant: Name, namespace: Name, topic: Name, perPartition: Flag = "true"
    ) -> Response:
        each = flag("perPartition", perPartition)
        name, policies, now_ms = _asked(parts, tenant, namespace, topic)
        found = partitioned_backlog(parts.backlogs, name, policies, now_ms)
        if found is None:
            raise Refusal(404, f"Partitioned Topic {name} not found")
        answer = joined(topic_stats(parts.deliveries, name, policies, now_ms), found) or {}
        return JSONResponse(answer if each else {**answer, "partitions": {}})

    return router


def joined(deliveries: dict[str, Any] | None, backlog: dict[str, Any] | None) -> dict[str, Any] | None:
    """What is known of a topic, of subscriptions that only one side knows too; None: nothing."""
    if deliveries is None or backlog is None:
        return deliveries if backlog is None else backlog
    both = (deliveries["subscriptions"], backlog["subscriptions"])
    names = sorted({*both[0], *both[1]})
    subscriptions = {name: {**both[0].get(name, {}), **both[1].get(name, {})} for name in names}
    return {**deliveries, **backlog, "subscriptions": subscriptions}


def _asked(parts: Parts, tenant: str, namespace: str, topic: str) -> tuple[str, PolicySet, int]:
    holder = topic_holder(tenant, namespace, topic)
    holder.check()
    return holder.name, *parts.in_force()


def _add_quotas(
    router: APIRouter,
    parts: Parts,
    prefix: str,
    tag: str,
    holder_of: Callable[..., Awaitable[Holder]],
    applied_of: Callable[..., Awaitable[bool]],
) -> None:
    """GET, POST and DELETE of the quotas of one kind of holder."""
    of_path, of_type, asked = Depends(holder_of), Depends(_kind), Depends(applied_of)

    @router.get(
        f"{prefix}/{quotas.MAP}",
        tags=[tag],
        response_model=dict[str, quotas.QuotaView],
        responses=refusals(400, 412),
        summary="The backlog quotas by type",
    )
    async def get(holder: Holder = of_path, applied: bool = asked) -> Response:
        if applied:
            return JSONResponse(quotas.applied_quotas(parts.in_force()[0], holder))
        return JSONResponse(quotas.quotas_at(parts.store.entries, holder))

    async def place_of(holder: Holder = of_path, kind: BacklogKind = of_type) -> quotas.QuotaPlace:
        return quotas.QuotaPlace(holder=holder, kind=kind)

    add_changes(
        router, parts, f"{prefix}/backlogQuota", place_of, quotas.quota_fields,
        schema=quotas.QUOTA_SCHEMA, tags=[tag], refused=(404,),
        summaries=(
            "Set a backlog quota, in place of the one before of its type",
            "Remove a backlog quota, if there is one of this type",
        ),
    )  # fmt: skip


async def _kind(backlogQuotaType: _Kind = BacklogKind.SIZE.value) -> BacklogKind:
    if backlogQuotaType not in _KINDS:
        # Not 400, as in Pulsar.
        raise Refusal(404, f"backlogQuotaType: expected one of {', '.join(_KINDS)}")
    return BacklogKind(backlogQuotaType)
