"""State of the dispatch law: a row per broker, topic and subscription, and the way of a batch through it.

The law itself is in law.py. Here names become row numbers and policies become rates. All rows of a
broker are in its shard: the broker is the routing key of its deliveries.
"""

from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import unquote

import numpy as np
import orjson
import pyarrow as pa

from streaming.columns.compiled import machine
from streaming.columns.limit_index import LearntLimits
from streaming.columns.outputs import DecisionRows
from streaming.laws.dispatch import law
from streaming.laws.dispatch.deliveries import Deliveries
from streaming.laws.dispatch.law import DIMENSIONS, FORGET_MS, LEVELS, NONE, Flags, Integers
from streaming.laws.law import FOR_EVER, Batch, Decision, DecisionForm, LawState
from streaming.laws.row_fields import ends_of, worded
from streaming.policy.derived import PolicyCache, stretches
from streaming.policy.dispatch_limits import NO_LIMIT, NOT_LIMITED, limit_of
from streaming.policy.policy_set import PolicySet, Section
from streaming.policy.timeline import PolicyTimeline
from streaming.state.subject_table import SubjectTable

roll_rows, walk = machine(law.roll_rows), machine(law.walk)
Names = tuple[str, ...]
"""Whose counters a row holds: (broker,), (broker, topic) or (broker, topic, subscription)."""
MIN_LIFE_MS: Final = 1000
"""The shortest time for which a decision stands (docs/contract.md 3.3)."""
REPEAT_MS: Final = 30_000
"""A debt may last for days, and who starts reads back much less (docs/contract.md 3.3)."""
SEEN: Final = 3


def _paid_at(decision: Decision) -> int:
    """Event time (ms) from which all counters of a decision are 0."""
    # A debt beyond all times must not overflow where times are kept.
    return min(FOR_EVER, int(decision.get("applied_ts", decision["ts"]) + decision["ttl_ms"]))


DECISION: Final = DecisionForm(
    type="dispatch",
    subject=("topic", "subscription"),
    # Counters are kept per broker, which the subject does not name.
    standing=("broker", "topic", "subscription"),
    # Those of all its topics tell of the broker's own counters: the last one counts.
    routing="broker",
    until=_paid_at,
    repeat_ms=REPEAT_MS,
)
_OPTIONAL: Final = frozenset({"proxy", "acquired", "applied_ts"})
MAX_ROWS: Final = 131_072
"""Rows of a shard; beyond it those without a delivery for longest start afresh, debtors last: who owes for
days is silent for days."""


@dataclass(frozen=True, slots=True)
class _Results:
    """What is found out about a batch of deliveries, a row each; see `law.walk` for all but the last two.

    Attributes:
        limited: which levels limit.
        shadow: nobody acts on it.
    """

    left: Integers
    throttle_ms: Integers
    freed_by: Integers
    to_read: Integers
    counted: Integers
    owed_ms: Integers
    limited: Flags
    shadow: Flags

    @classmethod
    def of(cls, count: int) -> Self:
        return cls(
            left=np.zeros((count, len(DIMENSIONS)), dtype=np.int64),
            throttle_ms=np.zeros(count, dtype=np.int64),
            freed_by=np.full(count, NONE, dtype=np.int64),
            to_read=np.zeros(count, dtype=np.int64),
            counted=np.zeros((count, len(LEVELS), len(DIMENSIONS)), dtype=np.int64),
            owed_ms=np.zeros(count, dtype=np.int64),
            limited=np.zeros((count, len(LEVELS)), dtype=np.bool_),
            shadow=np.zeros(count, dtype=np.bool_),
        )


limits_of: Final = PolicyCache(
    lambda policies: LearntLimits(lambda name: limit_of(policies, tuple(orjson.loads(name))))
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

    def fold(self, batch: Batch) -> DecisionRows:
        """Decide deliveries in order: one decision each."""
        deliveries: Deliveries = batch.events
        rows, at = self.rows_of(deliveries), deliveries.at
        # A broker's time never goes back, so the policies that it is judged by do not either.
        last, rolled_at = self.state["last"], self.state["rolled_at"]
        at = np.maximum(at, np.maximum(last[rows[:, 0]], rolled_at[rows].max(axis=1)))
        results = _Results.of(len(at))
        for order, since in stretches(at, batch.timeline):
            self._walk_stretch(deliveries, at, rows, order, since, batch.timeline, results)
        if len(self) > MAX_ROWS and not batch.replay:
            now, present = int(at.max(initial=0)), np.zeros(len(self), dtype=np.bool_)
            present[rows] = True

            def needed(some: Integers) -> Flags:
                names = self.names.take(pa.array(some))
                return np.asarray(present[some] | self._owe(some, names, now, batch.timeline))

            # A sixteenth at a time: sorting so many rows takes longer than deciding a batch.
            self.bound(MAX_ROWS - MAX_ROWS // 16, needed)
        return _decisions(deliveries, at, results)

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Let the rows go that had no event for an hour and whose counters are paid off at `horizon`.

        Their leaving is neutral: averages that old are forgotten by the law, and a new row counts from 0. A
        debt stays, however old: a period may last a day. Changes of policy up to `horizon` are settled for
        all, so that the timeline may forget them.
        """
        self.settle(np.arange(len(self)), horizon, timeline)
        idle = np.flatnonzero(self.state["last"] < horizon - FORGET_MS)
        self._roll(idle, timeline, horizon)
        keep = np.ones(len(self), dtype=np.bool_)
        keep[idle] = self.state["acquired"][idle].any(axis=1)
        self.keep(keep)

    def stand(self, subjects: pa.Array, over: Flags, now: int, timeline: PolicyTimeline) -> Flags:
        """Those whose counters are not paid off: later than their decision said where a rate was lowered.

        A counter that another delivery has moved since is that one's to tell.
        """
        stands = ~over
        if not over.any() or not len(self):
            return stands
        levels = [list(map(unquote, key.split(" "))) for key in subjects.filter(pa.array(over)).to_pylist()]
        texts = [orjson.dumps(own[: level + 1]).decode() for own in levels for level in range(len(LEVELS))]
        names = pa.array(texts, pa.string())
        rows = self.rows(names)
        last, known, owes = (
            column.reshape(-1, len(LEVELS))
            for column in (self.state["last"][rows], rows != NONE, self._owe(rows, names, now, timeline))
        )
        owes &= known
        stands[over] = (owes & known[:, -1:] & (last == last[:, -1:])).any(axis=1)
        return stands

    def _owe(self, rows: Integers, names: pa.Array, now: int, timeline: PolicyTimeline) -> Flags:
        """Which of these rows, with these names, are not paid off at `now`, ms."""
        # Apart: what is decided next is of a time before now, maybe.
        owing = DispatchTable()
        every = owing.append(names, self.state[rows])
        owing.settle(every, now, timeline)
        owing._roll(every, timeline, now)
        return np.asarray(owing.state["acquired"].any(axis=1))

    def rows_of(self, deliveries: Deliveries) -> Integers:
        """The rows of each delivery's broker, topic and subscription; new ones have delivered nothing yet."""
        names = pa.concat_arrays(deliveries.names)
        rows = self.rows(names)
        fresh = np.flatnonzero(rows == NONE)
        first = deliveries.at[np.concatenate(deliveries.first)[fresh]]
        rows[fresh] = self.add(names.take(pa.array(fresh)), last=first, rolled_at=first)
        begins = np.cumsum([0, *map(len, deliveries.names[:-1])])
        found: Integers = rows[deliveries.places + begins]
        return found

    def _walk_stretch(
        self, deliveries: Deliveries, at: Integers, rows: Integers, order: Integers, since: int,
        timeline: PolicyTimeline, results: _Results,
    ) -> None:  # fmt: skip
        """Walk the deliveries of one stretch of time without a change of policy.

        Args:
            deliveries: the batch.
            at: when each is applied, ms; filled in.
            rows: of each one's broker, topic and subscription.
            order: which are of this stretch.
            since: when it begins, ms.
            timeline: the policies.
            results: filled in.
        """
        policies = timeline.at(since)
        present = np.flatnonzero(np.bincount(rows[order].ravel(), minlength=len(self)))
        rate, period_ms = self.limits_at(since, present, timeline)
        broker = policies.entries.get(Section.BROKER, {})
        all_charged = broker.get("dispatchThrottlingOnNonBacklogConsumerEnabled", True)
        results.limited[order] = (rate != NOT_LIMITED).any(axis=1)[rows[order]]
        results.shadow[order] = policies.tracks
        walk(
            order, at, deliveries.delivered, deliveries.published, deliveries.backlog | all_charged,
            broker.get("preciseDispatcherFlowControl", False),
            broker.get("dispatchThrottlingOnBatchMessageEnabled", False),
            rows,
            self.column("last"), self.column("rolled_at"), self.column("acquired"), rate, period_ms,
            self.column("seen"),
            results.left, results.throttle_ms, results.freed_by, results.to_read, results.counted,
            results.owed_ms,
        )  # fmt: skip

    def limits_at(self, at: int, rows: Integers, timeline: PolicyTimeline) -> tuple[Integers, Integers]:
        """Settle these rows up to a time, ms; rates and periods (ms) from then on, of all rows by number."""
        self.settle(rows, at, timeline)
        rate = np.zeros((len(self), len(DIMENSIONS)), dtype=np.int64)
        period_ms = np.zeros(len(self), dtype=np.int64)
        rate[rows], period_ms[rows] = self._limits(rows, timeline.at(at))
        return rate, period_ms

    def settle(self, rows: Integers, upto: int, timeline: PolicyTimeline) -> None:
        """Pay off the periods before each change up to `upto` by the rates before it, in these rows.

        So what was delivered before a change is paid by the rates of its time, whenever the next event is.
        Doing it twice does no harm.
        """
        rolled_at = self.state["rolled_at"]
        for change in timeline.changes(int(rolled_at[rows].min(initial=upto)), upto):
            self._roll(rows[rolled_at[rows] < change], timeline, change - 1)

    def _roll(self, rows: Integers, timeline: PolicyTimeline, upto: int) -> None:
        """Pay off the periods of these rows up to `upto` by the rates of then."""
        # Most owe nothing, and by a set of policies each limit is found out one by one.
        rows = rows[self.state["acquired"][rows].any(axis=1)]
        if len(rows):
            limits = self._limits(rows, timeline.at(upto))
            roll_rows(rows, self.column("acquired"), self.column("rolled_at"), *limits, upto)

    def _limits(self, rows: Integers, policies: PolicySet) -> tuple[Integers, Integers]:
        """Rates and periods (ms) of these rows."""
        limits = limits_of(policies)
        number = limits.of(self.names.take(pa.array(rows)))
        period_ms = limits.field("period_ms", number, NO_LIMIT.period_ms)
        return limits.field("rate", number, NO_LIMIT.rate), period_ms


def _decisions(deliveries: Deliveries, at: Integers, results: _Results) -> DecisionRows:
    """The decisions of docs/contract.md 3.3; each stands until its counters are 0."""
    rows, count = deliveries.rows, len(deliveries.at)
    level, dimension = np.divmod(results.freed_by, len(DIMENSIONS))
    free = results.freed_by == NONE
    ts = rows["ts"].to_numpy()
    columns = {
        "id": rows["id"],
        "ts": rows["ts"],
        "proxy": rows["proxy"],
        "broker": rows["broker"],
        "topic": rows["topic"],
        "subscription": rows["subscription"],
        "available": pa.StructArray.from_arrays(
            [_numbers(results.left[:, place]) for place in range(len(DIMENSIONS))], list(DIMENSIONS)
        ),
        "acquired": _acquired(results, rows["proxy"].is_null()),
        "throttle_time_ms": pa.array(results.throttle_ms),
        "limited_by": pa.StructArray.from_arrays(
            [worded(level, pa.array(LEVELS), free), worded(dimension, pa.array(DIMENSIONS), free)],
            ["level", "dimension"],
            mask=pa.array(free),
        ),
        "entries_to_read": _numbers(results.to_read),
        "shadow": pa.array(results.shadow),
        "ttl_ms": pa.array(np.maximum(results.owed_ms, MIN_LIFE_MS)),
        "applied_ts": pa.array(at, mask=at == ts),
    }
    # What only events of proxies and late ones say is mostly no column at all.
    said = {
        name: column for name, column in columns.items()
        if name not in _OPTIONAL or column.null_count < count
    }  # fmt: skip
    return DecisionRows(
        type=DECISION.type,
        rows=pa.RecordBatch.from_pydict(said),
        source=rows["source"].to_numpy(),
        keys=deliveries.keys,
        key=deliveries.places[:, -1],
    )


def _acquired(results: _Results, unsaid: pa.Array) -> pa.MapArray:
    """The state of each one's counters, by level that limits; null where it is `unsaid`."""
    chosen = results.limited & ~unsaid.to_numpy(zero_copy_only=False)[:, np.newaxis]
    ends, counts = pa.array(ends_of(chosen.sum(axis=1)), pa.int32()), results.counted[chosen]
    columns = [pa.array(counts[:, place]) for place in range(len(DIMENSIONS))]
    levels = pa.array(LEVELS).take(pa.array(np.nonzero(chosen)[1]))
    items = pa.StructArray.from_arrays(columns, list(DIMENSIONS))
    return pa.MapArray.from_arrays(ends, levels, items, mask=unsaid)


def _numbers(counts: Integers) -> pa.Array:
    return pa.array(counts, mask=counts == NONE)
