"""State of the dispatch law: a row per broker, topic and subscription, and the way of a batch through it.

The law itself is in dispatch.py. Here names become row numbers and policies become rates. All rows of a
broker are in its shard: the broker is the routing key of its deliveries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.outputs import DecisionColumns
from streaming.contract.usage_events import DispatchUsage
from streaming.laws.dispatch.law import (
    BYTES,
    COUNT_MAX,
    DIMENSIONS,
    FORGET_MS,
    LEVELS,
    MSGS,
    NONE,
    NOT_LIMITED,
    Doubles,
    Flags,
    Integers,
    roll_row,
    walk,
)
from streaming.laws.law import Batch, Decision, DecisionForm, Entry, LawState
from streaming.policy.policy_set import UNLIMITED, PolicySet, Section
from streaming.policy.timeline import PolicyTimeline
from streaming.policy.topics import RateKind, dispatch_candidates

Names = tuple[str, ...]
"""Whose counters a row holds: (broker,), (broker, topic) or (broker, topic, subscription)."""
MIN_LIFE_MS: Final = 1000
"""The shortest time for which a decision stands (contract section 1)."""
SEEN: Final = 3
DECISION: Final = DecisionForm(
    type="dispatch",
    subject=("topic", "subscription"),
    # Counters are kept per broker, which the subject does not name.
    standing=("broker", "topic", "subscription"),
    until=lambda decision: int(decision["ts"] + decision["throttle_time_ms"]),
)
_COUNTERS: Final = pa.list_(pa.int64(), len(DIMENSIONS))
_SEEN: Final = pa.list_(pa.int64(), SEEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Rates of one row's counters; NOT_LIMITED where there is none.

    Attributes:
        msgs: messages per period.
        bytes: bytes per period.
        period_ms: its length.
    """

    msgs: int
    bytes: int
    period_ms: int


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch of deliveries as columns; see `dispatch.walk` for their meaning."""

    at: Integers
    delivered: Integers
    published: Doubles
    charged: Flags
    precise: Flags
    by_entry: Flags
    rows: Integers
    left: Integers
    throttle_ms: Integers
    freed_by: Integers
    to_read: Integers
    life_ms: Integers

    @classmethod
    def of(cls, events: Sequence[DispatchUsage]) -> Self:
        count = len(events)
        return cls(
            at=np.array([e.at for e in events], dtype=np.int64),
            delivered=np.array([(e.msgs, e.bytes, e.entries) for e in events], dtype=np.int64),
            published=np.array([e.avg_publish_entry_bytes or 0.0 for e in events]),
            charged=np.array([e.backlog for e in events], dtype=np.bool_),
            precise=np.zeros(count, dtype=np.bool_),
            by_entry=np.zeros(count, dtype=np.bool_),
            rows=np.zeros((count, len(LEVELS)), dtype=np.int64),
            left=np.zeros((count, len(DIMENSIONS)), dtype=np.int64),
            throttle_ms=np.zeros(count, dtype=np.int64),
            freed_by=np.full(count, NONE, dtype=np.int64),
            to_read=np.zeros(count, dtype=np.int64),
            life_ms=np.full(count, MIN_LIFE_MS, dtype=np.int64),
        )


def limit_of(policies: PolicySet, names: Names) -> Limit:
    """What limits a broker, a topic or a subscription at one broker (contract section 2, precedence)."""
    if len(names) == 1:
        broker = policies.entries.get(Section.BROKER, {})
        return _limit(broker, "dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte")
    kind = RateKind.TOPIC if len(names) == 2 else RateKind.SUBSCRIPTION
    subscription = names[2] if len(names) == 3 else None
    for place in dispatch_candidates(policies, names[1], subscription, kind):
        if place.wins and place.value is not None:
            return _limit(place.value, "dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte")
    return Limit(msgs=NOT_LIMITED, bytes=NOT_LIMITED, period_ms=1000)


def _limit(value: Mapping[str, Any], msgs: str, size: str) -> Limit:
    rates = [NOT_LIMITED if value.get(k, UNLIMITED) == UNLIMITED else int(value[k]) for k in (msgs, size)]
    return Limit(
        msgs=min(rates[MSGS], COUNT_MAX),
        bytes=min(rates[BYTES], COUNT_MAX),
        period_ms=int(value.get("ratePeriodInSecond", 1)) * 1000,
    )


class DispatchTable(LawState):
    """Counters of all brokers of a shard.

    Columns: `key` the names of the row as a JSON list, `last` ms of its last event, `rolled_at` ms up to
    which the periods are paid off, `acquired` messages and bytes, `seen` messages, bytes and entries that
    were delivered so far (of subscriptions only).
    """

    def __init__(self) -> None:
        self.keys: pa.Array = pa.array([], type=pa.string())
        self.last: Integers = np.empty(0, dtype=np.int64)
        self.rolled_at: Integers = np.empty(0, dtype=np.int64)
        self.acquired: Integers = np.empty((0, len(DIMENSIONS)), dtype=np.int64)
        self.seen: Integers = np.empty((0, SEEN), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.last)

    @classmethod
    def from_columns(cls, columns: Mapping[str, pa.Array]) -> Self:
        """The table that `columns` described; an empty mapping gives an empty table."""
        table = cls()
        if not columns:
            return table
        table.keys = columns["key"]
        # Copies: Arrow's memory is read-only and belongs to the checkpoint's bytes.
        table.last = columns["last"].to_numpy(zero_copy_only=False).copy()
        table.rolled_at = columns["rolled_at"].to_numpy(zero_copy_only=False).copy()
        for name, width in (("acquired", len(DIMENSIONS)), ("seen", SEEN)):
            values = columns[name].flatten().to_numpy(zero_copy_only=False)
            setattr(table, name, values.copy().reshape(-1, width))
        return table

    def columns(self) -> dict[str, pa.Array]:
        """The table as Arrow columns, for the checkpoint."""
        return {
            "key": self.keys,
            "last": pa.array(self.last),
            "rolled_at": pa.array(self.rolled_at),
            "acquired": pa.FixedSizeListArray.from_arrays(
                pa.array(self.acquired.reshape(-1)), type=_COUNTERS
            ),
            "seen": pa.FixedSizeListArray.from_arrays(pa.array(self.seen.reshape(-1)), type=_SEEN),
        }

    def fold(self, batch: Batch) -> DecisionColumns:
        """Decide deliveries in order: one decision each."""
        entries: list[Entry] = batch.events
        events: list[DispatchUsage] = [entry.event for entry in entries]
        columns = _Batch.of(events)
        names = self._assign_rows(events, columns)
        # A broker's time never goes back, so the policies that it is judged by do not either.
        newest = np.maximum(self.last[columns.rows[:, 0]], self.rolled_at[columns.rows].max(axis=1))
        np.maximum(columns.at, newest, out=columns.at)
        first, last = int(columns.at.min()), int(columns.at.max())
        changes = np.array(batch.timeline.changes(first, last), dtype=np.int64)
        stretch = np.searchsorted(changes, columns.at, side="right")
        for number in np.unique(stretch):
            self._walk_stretch(columns, np.flatnonzero(stretch == number), names, batch.timeline)
        return DECISION.columns(
            [(entry.source, _decision(entry.event, i, columns)) for i, entry in enumerate(entries)]
        )

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Let the rows go that had no event for an hour and whose counters are paid off at `horizon`.

        Their leaving is neutral: averages that old are forgotten by the law, and a new row counts from 0. A
        debt stays, however old: a period may last a day. Changes of policy up to `horizon` are settled for
        all, so that the timeline may forget them.
        """
        changes = timeline.changes(int(self.rolled_at.min(initial=horizon)), horizon)
        if changes:
            for row in np.flatnonzero(self.rolled_at < changes[-1]):
                self._settle(int(row), self._names_of(int(row)), changes, timeline)
        policies = timeline.at(horizon)
        keep = np.ones(len(self), dtype=np.bool_)
        for row in np.flatnonzero(self.last < horizon - FORGET_MS):
            self._roll(int(row), limit_of(policies, self._names_of(int(row))), horizon)
            keep[row] = self.acquired[row].any()
        if not keep.all():
            self.keys = self.keys.filter(pa.array(keep))
            self.last, self.rolled_at = self.last[keep], self.rolled_at[keep]
            self.acquired, self.seen = self.acquired[keep], self.seen[keep]

    def _assign_rows(self, events: Sequence[DispatchUsage], columns: _Batch) -> dict[int, Names]:
        """Fill `columns.rows`, adding rows for new names; returns the names of these rows."""
        numbers: dict[Names, int] = {}
        firsts: list[int] = []
        for i, event in enumerate(events):
            full = (event.broker, event.topic, event.subscription)
            for level in range(len(LEVELS)):
                number = numbers.setdefault(full[: level + 1], len(numbers))
                if number == len(firsts):
                    firsts.append(event.at)
                columns.rows[i, level] = number
        keys = pa.array([orjson.dumps(names).decode() for names in numbers], type=pa.string())
        found = pc.index_in(keys, value_set=self.keys).fill_null(NONE)
        rows: Integers = found.to_numpy(zero_copy_only=False).astype(np.int64)
        fresh = np.flatnonzero(rows == NONE)
        rows[fresh] = len(self) + np.arange(len(fresh))
        self._add(keys.take(pa.array(fresh)), np.array(firsts, dtype=np.int64)[fresh])
        columns.rows[:] = rows[columns.rows]
        return dict(zip(rows.tolist(), numbers, strict=True))

    def _add(self, keys: pa.Array, at: Integers) -> None:
        """Append rows as their first event, at `at`, finds them: nothing delivered yet."""
        count = len(at)
        self.keys = pa.concat_arrays([self.keys, keys])
        self.last = np.concatenate([self.last, at])
        self.rolled_at = np.concatenate([self.rolled_at, at])
        self.acquired = np.concatenate([self.acquired, np.zeros((count, len(DIMENSIONS)), dtype=np.int64)])
        self.seen = np.concatenate([self.seen, np.zeros((count, SEEN), dtype=np.int64)])

    def _walk_stretch(
        self, columns: _Batch, order: Integers, names: Mapping[int, Names], timeline: PolicyTimeline
    ) -> None:
        """Walk the deliveries of one stretch of time without a change of policy."""
        at = int(columns.at[order].min())
        policies = timeline.at(at)
        present = np.unique(columns.rows[order])
        changes = timeline.changes(int(self.rolled_at[present].min()), at)
        rate = np.zeros((len(self), len(DIMENSIONS)), dtype=np.int64)
        period_ms = np.full(len(self), MIN_LIFE_MS, dtype=np.int64)
        for row in present.tolist():
            if changes and self.rolled_at[row] < changes[-1]:
                self._settle(row, names[row], changes, timeline)
            limit = limit_of(policies, names[row])
            rate[row] = limit.msgs, limit.bytes
            period_ms[row] = limit.period_ms
        broker = policies.entries.get(Section.BROKER, {})
        columns.precise[order] = broker.get("preciseDispatcherFlowControl", False)
        columns.by_entry[order] = broker.get("dispatchThrottlingOnBatchMessageEnabled", False)
        if broker.get("dispatchThrottlingOnNonBacklogConsumerEnabled", True):
            columns.charged[order] = True
        periods = np.where(rate.any(axis=1), period_ms, MIN_LIFE_MS)
        columns.life_ms[order] = np.maximum(periods[columns.rows[order]].max(axis=1), MIN_LIFE_MS)
        walk(
            order, columns.at, columns.delivered, columns.published, columns.charged, columns.precise,
            columns.by_entry, columns.rows,
            self.last, self.rolled_at, self.acquired, rate, period_ms, self.seen,
            columns.left, columns.throttle_ms, columns.freed_by, columns.to_read,
        )  # fmt: skip

    def _settle(self, row: int, names: Names, changes: Sequence[int], timeline: PolicyTimeline) -> None:
        """Pay off the periods before each change by the rates before it; doing it twice does no harm.

        So what was delivered before a change is paid by the rates of its time, whenever the next event is.
        """
        for change in changes:
            if change > self.rolled_at[row]:
                self._roll(row, limit_of(timeline.at(change - 1), names), change - 1)

    def _roll(self, row: int, limit: Limit, upto: int) -> None:
        rate = np.array([limit.msgs, limit.bytes], dtype=np.int64)
        roll_row(self.acquired[row], rate, limit.period_ms, int(self.rolled_at[row]), upto)
        self.rolled_at[row] = upto

    def _names_of(self, row: int) -> Names:
        return tuple(orjson.loads(self.keys[row].as_py()))


def _decision(event: DispatchUsage, i: int, columns: _Batch) -> Decision:
    """The decision of contract 3.3; it stands for the longest period that limits."""
    freed_by = int(columns.freed_by[i])
    limited_by = None
    if freed_by != NONE:
        level, dimension = divmod(freed_by, len(DIMENSIONS))
        limited_by = {"level": LEVELS[level], "dimension": DIMENSIONS[dimension]}
    return {
        "type": "dispatch",
        "id": event.id,
        "ts": event.ts,
        "broker": event.broker,
        "topic": event.topic,
        "subscription": event.subscription,
        "available": {name: _number(columns.left[i, place]) for place, name in enumerate(DIMENSIONS)},
        "throttle_time_ms": int(columns.throttle_ms[i]),
        "limited_by": limited_by,
        "entries_to_read": _number(columns.to_read[i]),
        "shadow": False,
        "ttl_ms": int(columns.life_ms[i]),
    }


def _number(count: np.int64) -> int | None:
    return None if count == NONE else int(count)
