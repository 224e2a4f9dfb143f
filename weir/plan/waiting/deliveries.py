"""Deliveries to subscriptions that get nothing while one of their counters has nothing left; see `loop`."""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers
from streaming.columns.compiled import machine
from streaming.columns.outputs import DecisionRows
from streaming.laws.dispatch.deliveries import Deliveries
from streaming.laws.dispatch.law import LEVELS, SEEN_BYTES, SEEN_ENTRIES, SEEN_MSGS
from streaming.laws.dispatch.table import SEEN, DispatchTable
from streaming.laws.law import Batch
from streaming.policy.dispatch_limits import NOT_LIMITED
from streaming.policy.policy_set import Section
from streaming.policy.timeline import PolicyTimeline
from weir.plan.verdicts import THROTTLED, Verdicts
from weir.plan.waiting.queues import HELD_MAX, NOBODY, Waiting, deliver

_deliver = machine(deliver)
_GIVEN: Final = np.dtype(
    [
        ("own_at", np.int64), ("delivered", np.int64, SEEN), ("backlog", np.bool_),
        ("rows", np.int64, len(LEVELS)),
    ]
)  # fmt: skip
"""What is known of a delivery: when it was made, what it held, to whom, and in whose counters it counts."""


class DeliveriesThatWait(Waiting):
    """One delivery of a subscription at a broker after the other.

    Args:
        timeline: the policies, which go on while the log does.

    Attributes:
        beyond: so many were made early since more than HELD_MAX waited.
    """

    def __init__(self, timeline: PolicyTimeline) -> None:
        self.beyond = 0
        self._timeline, self._counters, self._since = timeline, DispatchTable(), 0
        self._held = np.zeros(0, dtype=_GIVEN)
        self._verdicts: Verdicts | None = None

    def step(
        self, batch: Batch | None, decided: DecisionRows | None, recorded: Verdicts | None, upto: int
    ) -> tuple[Verdicts | None, Integers]:
        """See `queues.Waiting`."""
        held, verdicts = self._held, self._verdicts
        if batch is not None and recorded is not None:
            held = np.concatenate([held, self._given(batch.events)])
            verdicts = recorded.behind(verdicts)
        if verdicts is None:
            return None, NOBODY
        outcome, delay_ms = np.zeros(len(held), dtype=np.int8), np.zeros(len(held), dtype=np.int64)
        waits = self._deliver(held, upto, outcome, delay_ms)
        # What is of that very time is not due yet: nothing holds it up.
        beyond = np.flatnonzero(waits & (held["own_at"] < upto))[HELD_MAX:]
        waits[beyond], outcome[beyond], delay_ms[beyond] = False, THROTTLED, upto - held["own_at"][beyond]
        self.beyond += len(beyond)
        said = replace(verdicts, outcome=outcome, delay_ms=delay_ms).only(~waits)
        self._held, self._verdicts = held[waits], verdicts.only(waits) if waits.any() else None
        return said, verdicts.source[waits]

    def _given(self, given: Deliveries) -> NDArray[np.void]:
        """What comes next."""
        rows = np.zeros(len(given.at), dtype=_GIVEN)
        rows["own_at"], rows["delivered"], rows["backlog"] = given.at, given.delivered, given.backlog
        rows["rows"] = self._counters.rows_of(given)
        return rows

    def _deliver(
        self, held: NDArray[np.void], upto: int, outcome: NDArray[np.int8], delay_ms: Integers
    ) -> NDArray[np.bool_]:
        """Deliver all that are made before a time; which ones still wait."""
        since, waits = max(self._since, int(held["own_at"].min())), np.ones(len(held), dtype=np.bool_)
        for end in (*sorted({at for at, _ in self._timeline.changed(since, upto - 1)}), upto):
            # What is not due yet holds nobody up, or all would be looked through at every change.
            which = np.flatnonzero(waits & (held["own_at"] < end))
            said, waited = outcome[which], delay_ms[which]
            waits[which] = self._deliver_some(held[which], since, end, said, waited)
            outcome[which], delay_ms[which], since = said, waited, end
        self._since = upto
        return waits

    def _deliver_some(
        self, held: NDArray[np.void], since: int, upto: int, outcome: NDArray[np.int8], delay_ms: Integers
    ) -> NDArray[np.bool_]:
        """The same from a time on, after which no policy changes."""
        if not len(held):
            return np.zeros(0, dtype=np.bool_)
        present, counters, policies = np.unique(held["rows"]), self._counters, self._timeline.at(since)
        rate, period_ms = counters.limits_at(since, present, self._timeline)
        if policies.tracks:
            rate[present] = NOT_LIMITED
        own = {name: np.ascontiguousarray(held[name]) for name in held.dtype.names or ()}
        broker, waits = policies.entries.get(Section.BROKER, {}), np.ones(len(held), dtype=np.bool_)
        by_entry = broker.get("dispatchThrottlingOnBatchMessageEnabled", False)
        all_charged = broker.get("dispatchThrottlingOnNonBacklogConsumerEnabled", True)
        counted = SEEN_ENTRIES if by_entry else SEEN_MSGS
        units, size = (own["delivered"][:, place].copy() for place in (counted, SEEN_BYTES))
        _deliver(
            since, upto, own["rows"][:, -1].copy(), own["own_at"], units, size, own["backlog"] | all_charged,
            own["rows"], rate, period_ms, counters.column("acquired"), counters.column("rolled_at"), outcome,
            delay_ms, waits,
        )  # fmt: skip
        return waits
