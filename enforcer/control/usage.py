"""What each broker uses of each resource group, and the share it has: `GET .../{rg}/usage`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from pydantic import BaseModel

from streaming.contract.decisions import Share
from streaming.contract.names import GROUP_PREFIXES
from streaming.contract.usage_events import DIMENSIONS, GroupUsage
from streaming.kafka_io.newest import Newest
from streaming.policy.groups import GroupLimits, RoundRules
from streaming.policy.policy_set import UNLIMITED

_NONE: Final = (0,) * len(DIMENSIONS)


class Member(BaseModel):
    """A broker of a group; rates per second by dimension, times in ms since the epoch."""

    broker: str
    usage: dict[str, float]
    share: dict[str, float] | None
    share_ts: int | None
    throttledMs: dict[str, int]
    throttledTotalMs: dict[str, int]
    period_ms: int
    reported_ts: int | None


class Usage(BaseModel):
    """What a group's members use and may use together."""

    group: str
    limits: dict[str, float]
    shadow: bool
    round_ms: int
    usage: dict[str, float]
    share: dict[str, float]
    throttledMs: dict[str, int]
    members: list[Member]


@dataclass(slots=True)
class _Row:
    """One broker in one group; times in ms since the epoch, 0: never."""

    reported_ts: int = 0
    period_ms: int = 1
    counts: tuple[int, ...] = _NONE
    throttled_ms: tuple[int, ...] = _NONE
    throttled_total_ms: list[int] = field(default_factory=lambda: [0] * len(DIMENSIONS))
    share: Share | None = None
    share_ts: int = 0

    def holds(self, now_ms: int) -> bool:
        """Whether its share is still in force."""
        return self.share is not None and now_ms < self.share_ts + self.share.ttl_ms


class UsageTable:
    """The newest report and share of each pair of group and broker; beyond so many the silent go first."""

    def __init__(self, rows_max: int) -> None:
        self.rows: Newest[tuple[str, str], _Row] = Newest(rows_max, group=itemgetter(0))

    def take_report(self, event: GroupUsage) -> None:
        """Take a broker's report in; a stale one, older than its last, is ignored as the job does."""
        for group, report in event.usage:
            if group.startswith(GROUP_PREFIXES):
                continue
            row = self.rows.heard((group, event.broker), _Row)
            if event.ts < row.reported_ts:
                continue
            row.reported_ts, row.period_ms, row.counts = event.ts, event.period_ms, report.counts
            row.throttled_ms = tuple(time_ms or 0 for time_ms in report.throttled_ms)
            for position, time_ms in enumerate(row.throttled_ms):
                row.throttled_total_ms[position] += time_ms

    def take_share(self, share: Share, ts: int) -> None:
        """Take a share in, written or repeated at `ts`; one with `limits` None ends the broker's share."""
        if share.group.startswith(GROUP_PREFIXES):
            return
        row = self.rows.heard((share.group, share.broker), _Row)
        row.share, row.share_ts = (None if share.limits is None else share), ts

    def view(self, group: str, limits: GroupLimits, rules: RoundRules, now_ms: int) -> dict[str, Any]:
        """What the API answers: rates per second, times in ms.

        Members are the brokers whose last report is not older than the policies let it be, or whose share
        is in force. `usage` and `share` of the group are the sums over its members.
        """
        oldest = now_ms - (rules.expiry_rounds + 1) * rules.interval_ms
        rows = {broker: row for (_, broker), row in sorted(self.rows.of_group(group), key=itemgetter(0))}
        rows = {name: row for name, row in rows.items() if row.reported_ts >= oldest or row.holds(now_ms)}
        members = [_member(broker, row, now_ms) for broker, row in rows.items()]
        return {
            "group": group,
            "limits": {
                name: UNLIMITED if rate is None else rate
                for name, rate in zip(DIMENSIONS, limits.rates, strict=True)
            },
            "shadow": limits.shadow,
            "round_ms": rules.interval_ms,
            "usage": _sums([member["usage"] for member in members]),
            "share": _sums([member["share"] for member in members if member["share"]]),
            "throttledMs": _sums([member["throttledMs"] for member in members]),
            "members": members,
        }


def _member(broker: str, row: _Row, now_ms: int) -> dict[str, Any]:
    share = row.share if row.holds(now_ms) else None
    return {
        "broker": broker,
        "usage": _named([count * 1000.0 / row.period_ms for count in row.counts]),
        "share": None if share is None else dict(share.limits or {}),
        "share_ts": None if share is None else share.ts,
        "throttledMs": _named(row.throttled_ms),
        "throttledTotalMs": _named(row.throttled_total_ms),
        "period_ms": row.period_ms,
        "reported_ts": row.reported_ts or None,
    }


def _named(values: Any) -> dict[str, Any]:
    return dict(zip(DIMENSIONS, values, strict=True))


def _sums(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return folded(parts, dict.fromkeys(DIMENSIONS, sum))


def folded(
    parts: Sequence[Mapping[str, Any]], rules: Mapping[str, Callable[[list[Any]], Any]]
) -> dict[str, Any]:
    """Several views as one: of each field what its rule makes of the views that have it.

    >>> folded([{"a": 1, "b": 5}, {"a": 2}, {}], {"a": sum, "b": min, "c": max})
    {'a': 3, 'b': 5}
    """
    values = {name: [part[name] for part in parts if name in part] for name in rules}
    return {name: rules[name](found) for name, found in values.items() if found}


def newest(times: Sequence[int | None]) -> int | None:
    """The newest of the times that are known; None: none is."""
    return max((time for time in times if time is not None), default=None)
