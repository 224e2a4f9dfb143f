"""What a job counts while it decides: workers add, the driver reads.

Through an accumulator and not by `DataFrame.observe`: its nodes and their aggregates are analysed, optimised
and planned anew for every batch.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from pyspark.accumulators import AccumulatorParam

from streaming.columns.byte_strings import Integers
from streaming.columns.outputs import Decided, DecisionRows, Outputs
from streaming.columns.records import Records

BATCHES_KEPT: Final = 100
"""As many as Spark keeps reports of."""
SUBJECTS_MAX: Final = 1000
"""Subjects that differences are counted of one by one: users come from the network. The others share one."""
OTHER_SUBJECTS: Final = "<other>"
"""Nobody's name: subjects write `<` as %3C."""
_DIFFERENCES: Final = "differences"
_OUTCOME: Final = "outcome"
_LAW: Final = "law"
"""The field of a decision that says what the law would have decided."""
Totals = Counter[tuple[str, ...]]
"""By the counter of `JobMetrics` that shows it, and the values of its labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """What was counted since the start of the query; a task that is tried again counts once.

    Attributes:
        totals: see there.
        oldest: time of the oldest decision's event by time of the batch, ms; of the newest batches.
    """

    totals: Totals = field(default_factory=Counter)
    oldest: dict[int, int] = field(default_factory=dict)


def tried_counts(candidate: str, law: str, outputs: Outputs) -> BatchCounts:
    """The decisions of one step by policies that are only tried; an outcome is empty where a law has none."""
    found: Totals = Counter()
    for decided in outputs.columns:
        if isinstance(decided, DecisionRows):
            said = decided.rows["outcome"].to_pylist() if _OUTCOME in decided.rows.schema.names else ()
            outcomes = said or [""] * len(decided)
            found.update(("candidate_decisions", candidate, law, outcome) for outcome in outcomes)
    return BatchCounts(totals=found)


def counts_of(
    law: str, records: Records, outputs: Outputs, batch_ms: int, segments: Totals | None = None
) -> BatchCounts:
    """One step's part: records for all shards are no events, each shard would count them."""
    decided = [int(ts.min()) for ts in map(_times, outputs.columns) if len(ts)]
    own = 0 if records.broadcast is None else int(np.count_nonzero(~np.asarray(records.broadcast)))
    totals = _differences(outputs) + (segments or Counter())
    totals.update({
        ("events", law): own,
        ("decisions",): len(outputs) - len(outputs.letters),
        ("dead_letters",): len(outputs.letters),
        ("withheld_decisions",): outputs.withheld,
        ("copies",): records.copies,
    })  # fmt: skip
    return BatchCounts(totals=_bounded(totals), oldest={batch_ms: min(decided)} if decided else {})


def _times(decided: Decided) -> Integers:
    """When what was decided happened; what is said again says nothing of how late the batch is."""
    if isinstance(decided, DecisionRows) and "repeat" in decided.rows.schema.names:
        fresh: Integers = decided.ts[decided.rows["repeat"].is_null().to_numpy(zero_copy_only=False)]
        return fresh
    return decided.ts


def _differences(outputs: Outputs) -> Totals:
    """Of the subjects of decisions that say `law`."""
    found: Totals = Counter()
    for columns in outputs.columns:
        if isinstance(columns, DecisionRows) and _LAW in columns.rows.schema.names:
            for decided in columns.pieces():
                differs = decided.rows[_LAW].is_valid()
                subjects = decided.column("key").filter(differs).to_pylist()
                found.update((_DIFFERENCES, subject) for subject in subjects)
    return found


def _bounded(totals: Totals) -> Totals:
    """The same with no more than SUBJECTS_MAX subjects and OTHER_SUBJECTS: those counted first stay."""
    for key in [key for key in totals if key[0] == _DIFFERENCES][SUBJECTS_MAX:]:
        # First, since it may be that one itself.
        count = totals.pop(key)
        totals[_DIFFERENCES, OTHER_SUBJECTS] += count
    return totals


class CountsParam(AccumulatorParam[Any]):
    """How Spark adds tallies up."""

    def zero(self, value: BatchCounts) -> BatchCounts:
        """Nothing counted."""
        return BatchCounts()

    def addInPlace(self, value1: BatchCounts, value2: BatchCounts) -> BatchCounts:
        """A new one: another thread may be reading the old."""
        oldest = dict(value1.oldest)
        for batch_ms, ts in value2.oldest.items():
            oldest[batch_ms] = min(ts, oldest.get(batch_ms, ts))
        kept = {batch_ms: oldest[batch_ms] for batch_ms in sorted(oldest)[-BATCHES_KEPT:]}
        return BatchCounts(totals=_bounded(value1.totals + value2.totals), oldest=kept)
