"""What time it is for a batch of the live job, and what is too late to be said in it (docs/contract.md 1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from streaming.columns.byte_strings import Integers
from streaming.columns.outputs import Decided, DecisionRows
from streaming.columns.records import Records
from streaming.contract.decisions import LATE_MS

CLOCK_MS: Final = 10_000
"""So far at most a host's clock is taken to be ahead of the brokers' before a tick has said how far it is."""
_NO_TIME: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The time of one batch.

    Attributes:
        ahead_ms: the brokers' clock less that of the job's host; None: nothing is known of it.
        now: the brokers' time when the batch began, ms since the epoch; None in a replay.
        reached: the time of the newest record in that partition which is furthest behind, ms; None: nothing
            is too late. Members of one group report in several partitions: while one of these is read hours
            behind the others, its members look as if they had left.
    """

    ahead_ms: int | None
    now: int | None
    reached: int | None

    @classmethod
    def of(
        cls, records: Records, processed_ts: int | None, *, timely: bool, known_ms: int | None,
        told_ms: int | None, policies: Sequence[int],
    ) -> Self:  # fmt: skip
        """The time of a batch.

        What is known of the brokers' clock is never more than the truth: records were written before the
        batch began, and a tick tells what acknowledgements have shown. So the greater is the nearer; but what
        a tick tells takes the place of all before it, since clocks are set.

        Args:
            records: of the batch.
            processed_ts: when it began by the clock of the job's host, ms since the epoch; None in a replay.
            timely: see DecisionForm.
            known_ms: `ahead_ms` as the batch before left it.
            told_ms: what the batch's newest tick says of it; None: none says anything.
            policies: which records are changes of policy: they are of another topic.
        """
        ahead_ms = known_ms if told_ms is None else told_ms
        if processed_ts is None:
            return cls(ahead_ms=ahead_ms, now=None, reached=None)
        times = records.times()
        newest = int(times.max(initial=_NO_TIME))
        if newest == _NO_TIME:
            return cls(ahead_ms=ahead_ms, now=processed_ts + (ahead_ms or 0), reached=None)
        ahead_ms = max(-CLOCK_MS if ahead_ms is None else ahead_ms, newest - processed_ts)
        reached = _reached(records, times, policies) if timely else None
        return cls(ahead_ms=ahead_ms, now=processed_ts + ahead_ms, reached=reached)

    @property
    def behind(self) -> bool:
        """Whether what stands is not to be said again yet: the batch is still about a time that is past."""
        return self.reached is not None and self.now is not None and self.reached + LATE_MS < self.now

    def in_time(self, decided: Decided) -> Decided:
        """Those of some decisions whose life time, counted from their own time, is not over."""
        if self.reached is None or self.now is None:
            return decided
        assert isinstance(decided, DecisionRows)
        lives = np.maximum(decided.rows["ttl_ms"].to_numpy(), LATE_MS)
        holds = np.minimum(decided.ts, self.reached) + lives >= self.now
        return decided if holds.all() else decided.take(np.flatnonzero(holds))


def _reached(records: Records, times: Integers, policies: Sequence[int]) -> int | None:
    own = times != _NO_TIME
    own[list(policies)] = False
    if not own.any():
        return None
    partitions = np.asarray(records.partition, dtype=np.int64)[own]
    newest = np.full(int(partitions.max()) + 1, _NO_TIME, dtype=np.int64)
    np.maximum.at(newest, partitions, times[own])
    return int(newest[newest != _NO_TIME].min())
