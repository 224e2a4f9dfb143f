"""State of the share law: a row per resource group and broker, and the way of a batch of events through it.

Rows are Arrow columns and stay so. A batch takes the groups that it concerns out, moves them event by event
(shares_group.py) and puts them back, so a batch of few reports costs little however many groups there are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contract.policy_timeline import PolicyTimeline
from streaming.contract.usage_events import DIMENSIONS, GroupReport, GroupUsage, Tick
from streaming.laws.law import Batch
from streaming.laws.shares_group import Decision, Group, Member

_RATES: Final = pa.list_(pa.float64(), len(DIMENSIONS))
_SCHEMA: Final = pa.schema(
    {
        "group": pa.string(),
        "broker": pa.string(),
        "end": pa.int64(),
        "every": pa.int64(),
        "newest": pa.int64(),
        "touched": pa.bool_(),
        "ts": pa.int64(),
        "used": _RATES,
        "throttled": pa.list_(pa.int8(), len(DIMENSIONS)),
        "shares": _RATES,
        "told": pa.bool_(),
    }
)
NO_SOURCE: Final = -1
"""Source of what the end of the input decides in a batch without events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What happens to a group: `report` in `event`, or a tick if there is none."""

    position: int
    source: int
    event: GroupUsage | Tick
    report: GroupReport | None


@dataclass(slots=True)
class _Inbox:
    """A batch by group: the steps of each, in order, the ticks, which concern all, and the last source."""

    reports: dict[str, list[_Step]] = field(default_factory=dict)
    ticks: list[_Step] = field(default_factory=list)
    last_source: int = NO_SOURCE

    @classmethod
    def of(cls, batch: Batch) -> Self:
        inbox = cls()
        for position, entry in enumerate(batch.entries):
            event: object = entry.event
            inbox.last_source = entry.source
            if isinstance(event, Tick):
                tick = _Step(position=position, source=entry.source, event=event, report=None)
                inbox.ticks.append(tick)
            elif isinstance(event, GroupUsage):
                for group, report in event.usage:
                    step = _Step(position=position, source=entry.source, event=event, report=report)
                    inbox.reports.setdefault(group, []).append(step)
        return inbox

    def steps(self, group: str) -> list[_Step]:
        own = self.reports.get(group, [])
        return sorted(own + self.ticks, key=attrgetter("position")) if self.ticks else own


class SharesTable:
    """Groups of a shard.

    Columns, a row per group and broker: `group`, `broker`; of the group, the same in all its rows: `end` and
    `every` of the open round, `newest` report and `touched`; of the broker: `ts`, `used`, `throttled`,
    `shares` and `told`. See Group and Member for their meaning.

    Attributes:
        stale_reports: reports of groups ignored as stale since this table was made (contract 3.2).
    """

    def __init__(self) -> None:
        self.stale_reports = 0
        self._rows: pa.RecordBatch = _record_batch([])

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    @classmethod
    def from_columns(cls, columns: Mapping[str, pa.Array]) -> Self:
        """The table that `columns` described; an empty mapping gives an empty table."""
        table = cls()
        if columns:
            table._rows = pa.RecordBatch.from_arrays(
                [columns[name] for name in _SCHEMA.names], schema=_SCHEMA
            )
        return table

    def columns(self) -> dict[str, pa.Array]:
        """The table as Arrow columns, for the checkpoint."""
        return dict(zip(_SCHEMA.names, self._rows.columns, strict=True))

    def fold(self, batch: Batch) -> list[tuple[int, Decision]]:
        """Take reports and ticks in order and close the rounds that they end.

        An event with several groups gives the same decisions as one event per group: groups do not touch
        each other. The homes of the entries are not looked at.

        Returns:
            (source, decision) in the order decided. What the batch's end decides has the source of the
            group's last report in this batch, else of the batch's last event, else NO_SOURCE.
        """
        inbox = _Inbox.of(batch)
        groups = self._take_out(self._concerned(inbox, batch.end))
        decided: list[tuple[int, int, Decision]] = []
        for name in sorted(groups.keys() | inbox.reports.keys()):
            group = groups.setdefault(name, Group(name))
            for step in inbox.steps(name):
                written = self._move(group, step, batch.timeline)
                decided += [(step.position, step.source, decision) for decision in written]
            if batch.end:
                own = inbox.reports.get(name)
                source = own[-1].source if own else inbox.last_source
                written = group.finish(batch.timeline)
                decided += [(len(batch.entries), source, decision) for decision in written]
        self._put_back(groups.values())
        decided.sort(key=lambda entry: entry[0])
        return [(source, decision) for _, source, decision in decided]

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Let brokers go that expired unseen: groups in which nobody has a share close their quiet rounds.

        A group with shares stays: its next round must tell whoever leaves.
        """
        busy = pc.unique(self._rows["group"].filter(pc.or_(self._rows["told"], self._rows["touched"])))
        idle = pc.invert(pc.is_in(self._rows["group"], value_set=busy))
        due = pc.and_(idle, pc.less_equal(self._rows["end"], horizon))
        groups = self._take_out(pc.unique(self._rows["group"].filter(due)))
        for group in groups.values():
            group.close_until(horizon, timeline)
        self._put_back(groups.values())

    def policies_from(self, horizon: int) -> int:
        """The time (ms, at most `horizon`) before which no policy is needed any more.

        Open rounds are judged by the policies of their end, which may be long past where no tick came.
        """
        earliest = pc.min(self._rows["end"]).as_py()
        return horizon if earliest is None else min(horizon, int(earliest))

    def _concerned(self, inbox: _Inbox, end: bool) -> pa.Array:
        """Names of the groups that the batch may change."""
        concerned = pc.is_in(self._rows["group"], value_set=pa.array(list(inbox.reports), type=pa.string()))
        if inbox.ticks:
            newest = max(step.event.at for step in inbox.ticks)
            concerned = pc.or_(concerned, pc.less_equal(self._rows["end"], newest))
        if end:
            concerned = pc.or_(concerned, self._rows["touched"])
        return pc.unique(self._rows["group"].filter(concerned))

    def _move(self, group: Group, step: _Step, timeline: PolicyTimeline) -> list[Decision]:
        if isinstance(step.event, Tick):
            return group.close_until(step.event.at, timeline)
        assert step.report is not None
        decisions = group.take(step.event, step.report, timeline)
        if decisions is None:
            self.stale_reports += 1
            return []
        return decisions

    def _take_out(self, names: pa.Array) -> dict[str, Group]:
        """Take these groups out of the table."""
        mask = pc.is_in(self._rows["group"], value_set=names)
        taken = self._rows.filter(mask)
        self._rows = self._rows.filter(pc.invert(mask))
        groups: dict[str, Group] = {}
        rows = zip(*(_values(column) for column in taken.columns), strict=True)
        for name, broker, end, every, newest, touched, ts, used, throttled, shares, told in rows:
            group = groups.get(name)
            if group is None:
                group = groups[name] = Group(name, end, every, newest, touched)
            group.members[broker] = Member(ts, used, throttled, shares, told)
        return groups

    def _put_back(self, groups: Iterable[Group]) -> None:
        """Put groups into the table; those without brokers are gone."""
        rows = [
            (g.name, broker, g.end, g.every, g.newest, g.touched, m.ts, m.used, m.throttled, m.shares, m.told)
            for g in groups
            for broker, m in g.members.items()
        ]
        if rows:
            self._rows = pa.concat_batches([self._rows, _record_batch(rows)])


def _values(column: pa.Array) -> list[Any]:
    """A column as Python values; by way of NumPy, which is many times faster than Arrow at it."""
    if pa.types.is_string(column.type):
        return list(column.to_pylist())
    if pa.types.is_fixed_size_list(column.type):
        flat = column.flatten().to_numpy(zero_copy_only=False)
        return list(flat.reshape(-1, len(DIMENSIONS)).tolist())
    return list(column.to_numpy(zero_copy_only=False).tolist())


def _record_batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ([] for _ in _SCHEMA.names)
    arrays = [pa.array(column, type=kind.type) for column, kind in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
