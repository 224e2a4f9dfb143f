"""What a job counts while it decides: workers add, the driver reads.

Through an accumulator and not by `DataFrame.observe`: its nodes and their aggregates are analysed, optimised
and planned anew for every batch.
"""

from collections import Counter
from dataclasses import dataclass, field, fields
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
BYTES: Final = "_bytes"
"""Ends the names of those counts of segments that are bytes."""
_OUTCOME: Final = "outcome"
_LAW: Final = "law"
"""The field of a decision that says what the law would have decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """Totals since the start of the query; a task that is tried again counts once.

    Attributes:
        events: read, by law.
        decisions: written.
        dead_letters: written, those of outputs that were too large too.
        withheld: decisions that were not written, since their life time was over.
        copies: records left out, since their producer had sent them before.
        oldest: time of the oldest decision's event by time of the batch, ms; of the newest batches.
        differences: decisions of proxies that the law would have made otherwise, by subject.
        tried: decisions by candidates, by candidate, law and outcome.
        segments: written, fetched, found in the cache and deleted, of a remote checkpoint, and their bytes.
    """

    events: Counter[str] = field(default_factory=Counter)
    decisions: int = 0
    dead_letters: int = 0
    withheld: int = 0
    copies: int = 0
    oldest: dict[int, int] = field(default_factory=dict)
    differences: Counter[str] = field(default_factory=Counter)
    segments: Counter[str] = field(default_factory=Counter)
    tried: Counter[tuple[str, str, str]] = field(default_factory=Counter)


def tried_counts(candidate: str, law: str, outputs: Outputs) -> Counter[tuple[str, str, str]]:
    """The decisions of one step by policies that are only tried; an outcome is empty where a law has none."""
    found = Counter[tuple[str, str, str]]()
    for decided in outputs.columns:
        if isinstance(decided, DecisionRows):
            said = decided.rows["outcome"].to_pylist() if _OUTCOME in decided.rows.schema.names else ()
            found.update((candidate, law, outcome) for outcome in said or [""] * len(decided))
    return found


def counts_of(
    law: str, records: Records, outputs: Outputs, batch_ms: int, segments: Counter[str] | None = None
) -> BatchCounts:
    """One step's part: records for all shards are no events, each shard would count them."""
    decided = [int(ts.min()) for ts in map(_times, outputs.columns) if len(ts)]
    own = 0 if records.broadcast is None else int(np.count_nonzero(~np.asarray(records.broadcast)))
    return BatchCounts(
        events=Counter({law: own}),
        decisions=len(outputs) - len(outputs.letters),
        dead_letters=len(outputs.letters),
        withheld=outputs.withheld,
        copies=records.copies,
        oldest={batch_ms: min(decided)} if decided else {},
        differences=_bounded(_differences(outputs)),
        segments=segments or Counter(),
    )


def _times(decided: Decided) -> Integers:
    """When what was decided happened; what is said again says nothing of how late the batch is."""
    if isinstance(decided, DecisionRows) and "repeat" in decided.rows.schema.names:
        fresh: Integers = decided.ts[decided.rows["repeat"].is_null().to_numpy(zero_copy_only=False)]
        return fresh
    return decided.ts


def _differences(outputs: Outputs) -> Counter[str]:
    """The subjects of decisions that say `law`."""
    found = Counter[str]()
    for decided in outputs.columns:
        if isinstance(decided, DecisionRows) and _LAW in decided.rows.schema.names:
            differs = decided.rows[_LAW].is_valid()
            found.update(decided.column("key").filter(differs).to_pylist())
    return found


def _bounded(differences: Counter[str]) -> Counter[str]:
    """The same of no more than SUBJECTS_MAX subjects and OTHER_SUBJECTS: those counted first stay."""
    if len(differences) <= SUBJECTS_MAX:
        return differences
    kept = Counter[str]()
    for subject, count in differences.items():
        kept[subject if len(kept) < SUBJECTS_MAX else OTHER_SUBJECTS] += count
    return kept


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
        names = {each.name for each in fields(BatchCounts)} - {"oldest"}
        sums: dict[str, Any] = {name: getattr(value1, name) + getattr(value2, name) for name in names}
        sums["differences"] = _bounded(sums["differences"])
        kept = {batch_ms: oldest[batch_ms] for batch_ms in sorted(oldest)[-BATCHES_KEPT:]}
        return BatchCounts(oldest=kept, **sums)
