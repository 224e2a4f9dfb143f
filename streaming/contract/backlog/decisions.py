"""Decisions on backlogs as those read them who act on them or show them (docs/contract.md 3.5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from streaming.contract.errors import BadEvent
from streaming.contract.fields import TS_MAX_MS, Fields, flag, integer, number, shown, text

TTL_MS: Final = 60_000
"""How long a backlog stands when nothing is heard."""
LISTED_MAX: Final = 100_000
"""Subscriptions that the plan of one topic may name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionPlan:
    """What one subscription is to lose.

    Attributes:
        subscription: its name.
        ledger, entry: the last entry to acknowledge, by the quota of size; None: by that of time.
        entries: how many those are; None: by the quota of time.
        before_publish_time: what was published earlier goes, ms since the epoch; None: by the quota of size.
    """

    subscription: str
    ledger: int | None = None
    entry: int | None = None
    entries: int | None = None
    before_publish_time: int | None = None

    @property
    def quota_type(self) -> str:
        """`size` or `time`."""
        return "time" if self.before_publish_time is not None else "size"


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogDecision:
    """What was decided on one topic.

    Attributes:
        id, ts: of the report that it is on; a repeated one keeps them.
        topic: full name.
        size: of the backlog, bytes.
        limit_size, limit_time: that were in force, bytes and seconds; -1: none.
        age: of the oldest message, seconds; -1: not known, or no backlog.
        oldest: the subscription that holds most back; None: nobody.
        exceeded: (`size` or `time`, policy) of each quota that was exceeded.
        evict: what must go.
        ttl_ms: how long it stands when nothing is heard.
        repeated: said before.
    """

    id: str
    ts: int
    topic: str
    size: float
    limit_size: int
    limit_time: int
    age: int
    oldest: str | None
    exceeded: tuple[tuple[str, str], ...]
    evict: tuple[EvictionPlan, ...]
    ttl_ms: int
    repeated: bool


def backlog_decision(fields: Fields) -> BacklogDecision:
    """A decision from its JSON object.

    Raises:
        BadEvent: it is none, or a number in it is out of range.
    """
    oldest = fields.get("oldestBacklogMessageSubscriptionName")
    return BacklogDecision(
        id=text(fields, "id", None),
        ts=integer(fields, "ts", None, maximum=TS_MAX_MS),
        topic=text(fields, "topic", None),
        size=number(fields, "backlogSize", None),
        limit_size=integer(fields, "backlogQuotaLimitSize", -1, minimum=-1),
        limit_time=integer(fields, "backlogQuotaLimitTime", -1, minimum=-1),
        # Negative where clocks disagree.
        age=integer(fields, "oldestBacklogMessageAgeSeconds", -1, minimum=-TS_MAX_MS),
        oldest=None if oldest is None else text(fields, "oldestBacklogMessageSubscriptionName", None),
        exceeded=tuple(
            (text(one, "quota_type", None), text(one, "policy", None)) for one in _objects(fields, "actions")
        ),
        evict=tuple(map(planned_of, _objects(fields, "evict"))),
        ttl_ms=integer(fields, "ttl_ms", TTL_MS, maximum=TS_MAX_MS),
        repeated=flag(fields, "repeat", False),
    )


def planned_of(fields: Mapping[str, Any]) -> EvictionPlan:
    """A line of a plan from its JSON object.

    Raises:
        BadEvent: it is none, or a number in it is out of range.
    """
    name = text(fields, "subscription", None)
    if fields.get("before_publish_time") is not None:
        before = integer(fields, "before_publish_time", None, minimum=-TS_MAX_MS, maximum=TS_MAX_MS)
        return EvictionPlan(subscription=name, before_publish_time=before)
    return EvictionPlan(
        subscription=name,
        ledger=integer(fields, "ledger", None),
        entry=integer(fields, "entry", None, minimum=-1),
        entries=integer(fields, "entries", None),
    )


def _objects(fields: Fields, key: str) -> list[Mapping[str, Any]]:
    found = fields.get(key, [])
    if type(found) is not list or not all(type(one) is dict for one in found):
        raise BadEvent(f"{key}: {shown(found)}; a list of objects was expected")
    if len(found) > LISTED_MAX:
        raise BadEvent(f"{key}: {len(found)} objects; at most {LISTED_MAX} were expected")
    return found
