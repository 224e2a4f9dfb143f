"""State of the dispatch law: a row per broker, topic and subscription, and the way of a batch through it.

The law itself is in law.py. Here names become row numbers and policies become rates. All rows of a
broker are in its shard: the broker is the routing key of its deliveries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np
import orjson
import pyarrow as pa

from streaming.columns.limit_index import LearntLimits
from streaming.columns.outputs import DecisionColumns
from streaming.contract.usage_events import DispatchUsage
from streaming.laws.dispatch.law import (
    COUNT_MAX,
    DIMENSIONS,
    FORGET_MS,
    LEVELS,
    NONE,
    NOT_LIMITED,
    Doubles,
    Flags,
    Integers,
    roll_rows,
    walk,
)
from streaming.laws.law import Batch, Decision, DecisionForm, Entry, LawState
from streaming.policy.derived import Derived, stretches
from streaming.policy.policy_set import UNLIMITED, PolicySet, Section
from streaming.policy.timeline import PolicyTimeline
from streaming.policy.topics import RateKind, dispatch_candidates
from streaming.state.subject_table import SubjectTable

Names = tuple[str, ...]
"""Whose counters a row holds: (broker,), (broker, topic) or (broker, topic, subscription)."""
MIN_LIFE_MS: Final = 1000
"""The shortest time for which a decision stands (docs/contract.md 1)."""
SEEN: Final = 3
DECISION: Final = DecisionForm(
    type="dispatch",
    subject=("topic", "subscription"),
    # Counters are kept per broker, which the subject does not name.
    standing=("broker", "topic", "subscription"),
    until=lambda decision: int(decision["ts"] + decision["throttle_time_ms"]),
)
MAX_CACHED: Final = 64
"""Sets of policies whose limits are remembered: those of a worker's shards."""


class Limit(NamedTuple):
    """Rates of one row's counters.

    Attributes:
        rate: messages and bytes per period; NOT_LIMITED where there is none.
        period_ms: its length.
    """

    rate: tuple[int, int]
    period_ms: int


NO_LIMIT: Final = Limit(rate=(NOT_LIMITED, NOT_LIMITED), period_ms=MIN_LIFE_MS)


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch of deliveries as columns; see `law.walk` for their meaning."""

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
    """What limits a broker, a topic or a subscription at one broker (docs/contract.md 2)."""
    if len(names) == 1:
        broker = policies.entries.get(Section.BROKER, {})
        return _limit(broker, "dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte")
    kind = RateKind.TOPIC if len(names) == 2 else RateKind.SUBSCRIPTION
    subscription = names[2] if len(names) == 3 else None
    for place in dispatch_candidates(policies, names[1], subscription, kind):
        if place.wins and place.value is not None:
            return _limit(place.value, "dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte")
    return NO_LIMIT


def _limit(value: Mapping[str, Any], msgs: str, size: str) -> Limit:
    msgs_rate, size_rate = (
        NOT_LIMITED if value.get(key, UNLIMITED) == UNLIMITED else min(int(value[key]), COUNT_MAX)
        for key in (msgs, size)
    )
    return Limit((msgs_rate, size_rate), int(value.get("ratePeriodInSecond", 1)) * 1000)


limits_of: Final = Derived(
    lambda policies: LearntLimits(lambda name: limit_of(policies, tuple(orjson.loads(name)))), MAX_CACHED
)
"""The limits of rows under a set of policies, by the rows' names."""


class DispatchTable(SubjectTable, LawState):
    """Counters of all brokers of a shard; the name of a row is a JSON list of Names.

    Fields: `last` ms of its last event, `rolled_at` ms up to which the periods are paid off, `acquired`
    messages and bytes, `seen` messages, bytes and entries that were delivered so far (of subscriptions only).
    """

    dtype = np.dtype(
        [
            ("last", np.int64),
            ("rolled_at", np.int64),
            ("acquired", np.int64, len(DIMENSIONS)),
            ("seen", np.int64, SEEN),
        ]
    )

    def fold(self, batch: Batch) -> DecisionColumns:
        """Decide deliveries in order: one decision each."""
        entries: list[Entry] = batch.events
        events: list[DispatchUsage] = [entry.event for entry in entries]
        columns = _Batch.of(events)
        self._assign_rows(events, columns)
        # A broker's time never goes back, so the policies that it is judged by do not either.
        last, rolled_at = self.state["last"], self.state["rolled_at"]
        newest = np.maximum(last[columns.rows[:, 0]], rolled_at[columns.rows].max(axis=1))
        np.maximum(columns.at, newest, out=columns.at)
        for order, at in stretches(columns.at, batch.timeline):
            self._walk_stretch(columns, order, at, batch.timeline)
        return DECISION.columns(
            [(entry.source, _decision(entry.event, i, columns)) for i, entry in enumerate(entries)]
        )

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Let the rows go that had no event for an hour and whose counters are paid off at `horizon`.

        Their leaving is neutral: averages that old are forgotten by the law, and a new row counts from 0. A
        debt stays, however old: a period may last a day. Changes of policy up to `horizon` are settled for
        all, so that the timeline may forget them.
        """
        self._settle(np.arange(len(self)), horizon, timeline)
        idle = np.flatnonzero(self.state["last"] < horizon - FORGET_MS)
        self._roll(idle, timeline.at(horizon), horizon)
        keep = np.ones(len(self), dtype=np.bool_)
        keep[idle] = self.state["acquired"][idle].any(axis=1)
        self.keep(keep)

    def _assign_rows(self, events: Sequence[DispatchUsage], columns: _Batch) -> None:
        """Fill `columns.rows`, adding rows for new names: nothing delivered yet."""
        numbers: dict[Names, int] = {}
        firsts: list[int] = []
        for i, event in enumerate(events):
            full = (event.broker, event.topic, event.subscription)
            for level in range(len(LEVELS)):
                number = numbers.setdefault(full[: level + 1], len(numbers))
                if number == len(firsts):
                    firsts.append(event.at)
                columns.rows[i, level] = number
        names = pa.array([orjson.dumps(each).decode() for each in numbers], type=pa.string())
        rows = self.rows(names)
        fresh = np.flatnonzero(rows == NONE)
        first = np.array(firsts, dtype=np.int64)[fresh]
        rows[fresh] = self.add(names.take(pa.array(fresh)), last=first, rolled_at=first)
        columns.rows[:] = rows[columns.rows]

    def _walk_stretch(self, columns: _Batch, order: Integers, at: int, timeline: PolicyTimeline) -> None:
        """Walk the deliveries of one stretch of time, which begin at `at` ms, without a change of policy."""
        policies = timeline.at(at)
        present = np.unique(columns.rows[order])
        self._settle(present, at, timeline)
        limits = limits_of(policies)
        number = limits.of(self.names.take(pa.array(present)))
        rate = np.zeros((len(self), len(DIMENSIONS)), dtype=np.int64)
        rate[present] = limits.field("rate", number, NO_LIMIT.rate)
        period_ms = np.full(len(self), MIN_LIFE_MS, dtype=np.int64)
        period_ms[present] = limits.field("period_ms", number, NO_LIMIT.period_ms)
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
            self.state["last"], self.state["rolled_at"], self.state["acquired"], rate, period_ms,
            self.state["seen"],
            columns.left, columns.throttle_ms, columns.freed_by, columns.to_read,
        )  # fmt: skip

    def _settle(self, rows: Integers, upto: int, timeline: PolicyTimeline) -> None:
        """Pay off the periods before each change up to `upto` by the rates before it, in these rows.

        So what was delivered before a change is paid by the rates of its time, whenever the next event is.
        Doing it twice does no harm.
        """
        rolled_at = self.state["rolled_at"]
        for change in timeline.changes(int(rolled_at[rows].min(initial=upto)), upto):
            self._roll(rows[rolled_at[rows] < change], timeline.at(change - 1), change - 1)

    def _roll(self, rows: Integers, policies: PolicySet, upto: int) -> None:
        """Pay off the periods of these rows up to `upto` by the rates of these policies."""
        limits = limits_of(policies)
        number = limits.of(self.names.take(pa.array(rows)))
        rate = limits.field("rate", number, NO_LIMIT.rate)
        period_ms = limits.field("period_ms", number, NO_LIMIT.period_ms)
        roll_rows(rows, self.state["acquired"], self.state["rolled_at"], rate, period_ms, upto)


def _decision(event: DispatchUsage, i: int, columns: _Batch) -> Decision:
    """The decision of docs/contract.md 3.3; it stands for the longest period that limits."""
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
