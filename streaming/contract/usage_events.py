"""Events on `weir.usage` that shares and dispatch are decided from (docs/contract.md 3.2 and 3.3).

Read as strictly as the events on `weir.requests`: a count that is negative, a float or true, a field that is
missing, a topic without its tenant and namespace make a BadEvent that names field, value and expectation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from streaming.contract.errors import BadEvent
from streaming.contract.events import Event
from streaming.contract.fields import Fields, applied_ts, flag, full_topic_in, integer, number, shown, text

DIMENSIONS: Final = ("publishRateInMsgs", "publishRateInBytes", "dispatchRateInMsgs", "dispatchRateInBytes")
"""What a resource group limits, in the order of its policy entry."""
COUNTS: Final = ("publishedMsg", "publishedBytes", "dispatchedMsg", "dispatchedBytes")
"""The count that each dimension is measured by, same order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """What one broker used of one resource group in a period.

    Attributes:
        counts: messages or bytes of the period, in the order of DIMENSIONS.
        throttled_ms: how long the broker held traffic back in each dimension; None: not reported.
    """

    counts: tuple[int, ...]
    throttled_ms: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupUsage(Event):
    """A broker's report of what it used of resource groups (PIP-82, docs/contract.md 3.2).

    Attributes:
        broker: who meters: a proxy or a broker.
        period_ms: the time that the counts cover, up to `ts`.
        usage: (group, report), in the order of the record.
    """

    broker: str
    period_ms: int
    usage: tuple[tuple[str, GroupReport], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchUsage(Event):
    """A delivery to a subscription (docs/contract.md 3.3).

    Attributes:
        broker: who delivered.
        topic: full name of the topic, or of one partition of it.
        subscription: name of the subscription.
        msgs: messages delivered.
        bytes: their size.
        entries: the entries (batches) that held them.
        backlog: whether a consumer of the subscription has a backlog.
        avg_publish_entry_bytes: mean size of a published entry; None: not known.
        proxy: the one that delivered for the broker, and goes on from the decision; None: the broker itself.
    """

    broker: str
    topic: str
    subscription: str
    msgs: int
    bytes: int
    entries: int
    backlog: bool
    avg_publish_entry_bytes: float | None
    proxy: str | None = None


def group_usage(fields: Fields, name: str, ts: int) -> GroupUsage:
    """Read a `group_usage`.

    Counts that a group's report leaves out are 0, as in PIP-82's own example, which has no dispatch; one
    of the four at least must be there, so that a misspelt report is not taken for silence.

    Raises:
        BadEvent: with the reason for the dead letter.
    """
    if "usage" not in fields:
        raise BadEvent("usage: missing; an object of reports by group was expected")
    usage = fields["usage"]
    if type(usage) is not dict:
        raise BadEvent(f"usage: {shown(usage)}; an object of reports by group was expected")
    return GroupUsage(
        id=name,
        ts=ts,
        at=applied_ts(fields, ts),
        broker=text(fields, "broker", None),
        period_ms=integer(fields, "period_ms", None, minimum=1),
        usage=tuple((group, _report(group, report)) for group, report in usage.items()),
    )


def dispatch_usage(fields: Fields, name: str, ts: int) -> DispatchUsage:
    """Read a `dispatch_usage`.

    Raises:
        BadEvent: with the reason for the dead letter.
    """
    topic = full_topic_in(fields)
    if "backlog" not in fields:
        raise BadEvent("backlog: missing; true or false was expected")
    average = None
    if "avg_publish_entry_bytes" in fields:
        average = number(fields, "avg_publish_entry_bytes", None)
    return DispatchUsage(
        id=name,
        ts=ts,
        at=applied_ts(fields, ts),
        broker=text(fields, "broker", None),
        topic=topic,
        subscription=text(fields, "subscription", None),
        msgs=integer(fields, "msgs", None),
        bytes=integer(fields, "bytes", None),
        entries=integer(fields, "entries", None),
        backlog=flag(fields, "backlog", True),
        # A broker that has seen nothing published yet reports 0, which says nothing about sizes.
        avg_publish_entry_bytes=average or None,
        proxy=text(fields, "proxy", None) if "proxy" in fields else None,
    )


def split_group_usage(value: bytes, part_of: Callable[[str], int]) -> list[tuple[int, bytes]]:
    """One smaller report per part, so that each shard reads only the groups that are its own.

    >>> split_group_usage(b'{"broker":"b1","period_ms":1,"usage":{"rg1":{"publishedMsg":6}}}', len)
    [(3, b'{"broker":"b1","period_ms":1,"usage":{"rg1":{"publishedMsg":6}}}')]

    Args:
        value: a record that `group_usage` has read already: one that cannot be used, in any of its groups,
            must become one dead letter as a whole.
        part_of: the part that a group belongs to.

    Returns:
        (part, record with that part's usage alone), parts and groups in the order of the record; together
        they say what the record says.
    """
    fields: Any = orjson.loads(value)
    parts: dict[int, dict[str, Any]] = {}
    for group, report in fields["usage"].items():
        parts.setdefault(part_of(group), {})[group] = report
    return [(part, orjson.dumps({**fields, "usage": usage})) for part, usage in parts.items()]


def _report(group: str, report: Any) -> GroupReport:
    if type(report) is not dict:
        raise BadEvent(f"usage.{group}: {shown(report)}; an object was expected")
    if not any(key in report for key in COUNTS):
        raise BadEvent(f"usage.{group}: no counts; some of {', '.join(COUNTS)} were expected")
    throttled = report.get("throttledMs", {})
    if type(throttled) is not dict:
        raise BadEvent(f"usage.{group}.throttledMs: {shown(throttled)}; an object was expected")
    try:
        counts = tuple(integer(report, key, 0) for key in COUNTS)
    except BadEvent as error:
        raise BadEvent(f"usage.{group}.{error.reason}") from error
    try:
        times = tuple(integer(throttled, key, None) if key in throttled else None for key in DIMENSIONS)
    except BadEvent as error:
        raise BadEvent(f"usage.{group}.throttledMs.{error.reason}") from error
    return GroupReport(counts=counts, throttled_ms=times)
