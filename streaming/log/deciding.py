"""A log through all laws in one process, some of it at a time."""

from collections.abc import Iterator

from streaming.columns.outputs import Decided, Outputs
from streaming.columns.records import Records
from streaming.laws.law import Batch, LawSpec, StepContext
from streaming.laws.registry import LAWS
from streaming.laws.shard import BatchContent, apply_policies, batch_of, read_batch
from streaming.policy.timeline import PolicyTimeline


class Replay:
    """A log on its way through all laws, every law in one shard, some of it at a time.

    What is decided together must be later than what was decided before: in the order of docs/contract.md 1,
    and no policy at a time of which something is decided.

    Args:
        context: a candidate's policies hold all the time, whatever the log says of policies.

    Attributes:
        timelines: by law, the policies so far.
    """

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._laws = LAWS.by_name.values()
        self.timelines = {law.name: PolicyTimeline(context.initial) for law in self._laws}
        self._tables = {law.name: law.table.from_columns({}) for law in self._laws}

    def read(self, records: Records, outputs: Outputs) -> BatchContent:
        """Read some of the log, in any order; `outputs` takes the dead letters."""
        return read_batch(self._laws, records, outputs, self._context, reporter=True)

    def decide(
        self, read: BatchContent, *, last: bool
    ) -> Iterator[tuple[LawSpec, Batch | None, Decided]]:
        """Decide some of the log: each law, what it was asked (None: that the log ends), what it decided.

        Args:
            read: what `read` gave.
            last: nothing more will come.

        Raises:
            Exception: whatever a law raised.
        """
        for law in self._laws:
            timeline, table = self.timelines[law.name], self._tables[law.name]
            if self._context.candidate is None:
                apply_policies(read.policies, law, timeline)
            context = self._context
            batch = batch_of(read.intakes[law.name], timeline, context, context.processed_ts, end=last)
            if batch is not None:
                yield law, batch, table.fold(batch)
            elif last and (decided := table.finish(timeline)) is not None:
                yield law, None, decided
