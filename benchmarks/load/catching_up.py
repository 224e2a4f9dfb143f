"""A job that finds all its work on Kafka and catches up: what it finds, and how fast it decides."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from benchmarks.kit.machine import cpu_s
from benchmarks.kit.stack import Stack
from benchmarks.load.events import packed_requests, requests
from benchmarks.load.writing import Record, RowCounter, produce

_OUTCOME: Final = 5
"""Place of the column `outcome` among those of an admission: a word of three, packed next to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a job finds.

    Attributes:
        rows: requests a packed record; 0: each one alone, as JSON.
        batch: requests in a batch.
        warm: batches that are not counted: for so long the JVM's compilers take a third of the processor, and
            a job runs for months.
        measured: batches that are.
        skew: exponent of Zipf's law by which principals are drawn; 0: all alike.
        target: decisions per second; 0: it is shown beside, nothing was aimed at.
    """

    rows: int
    batch: int
    warm: int
    measured: int
    skew: float = 0.0
    target: int = 0

    @property
    def total(self) -> int:
        """All requests."""
        return (self.warm + self.measured) * self.batch

    @property
    def records(self) -> int:
        """Records of a batch."""
        return self.batch // (self.rows or 1)

    @property
    def what(self) -> str:
        """For people."""
        packs = f"packs of {self.rows:,}" if self.rows else "single JSON"
        return f"{packs}, Zipf {self.skew}" if self.skew else packs

    @property
    def about(self) -> str:
        """The same with its batches."""
        return f"{self.what}: {self.measured} batches of {self.batch:,} after {self.warm} that warm up"

    def write(self, stack: Stack, partitions: int, principals: int) -> None:
        """Put all of it on Kafka beforehand: a producer would take processor time from what is measured."""
        records: Iterable[Record] = requests(self.total, principals)
        if self.rows:
            records = packed_requests(
                self.total, principals, partitions=partitions, rows=self.rows, skew=self.skew
            )
        produce(stack.bootstrap, stack.topics.requests, records, packed=bool(self.rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """What was seen after the warm-up.

    Attributes:
        events_s: decisions per second.
        job_us: processor time of the job with its JVM and workers, microseconds per decision.
        broker_us: the same of the broker.
    """

    events_s: float
    job_us: float
    broker_us: float


def catch_up(stack: Stack, load: Load, *, limit_s: float, done: Callable[[float], None]) -> CaughtUp:
    """Start the job of a stack, on whose topic all requests stand, and see it decide them; then stop it.

    Args:
        stack: with requests, without a job.
        load: that was written there.
        limit_s: for all of it.
        done: told now and then which part of the decisions there is.

    Raises:
        WeirError: the job ended, or did not decide all of them in time.
    """
    warm, total = load.warm * load.batch, load.total
    # Time, decisions, and processor time of job and broker: at the start, after the warm-up, at the end.
    seen: list[tuple[float, int, float, float]] = []
    with RowCounter(stack.bootstrap, stack.topics.decisions, _OUTCOME) as decisions:
        pid, broker = stack.start_job()["pid"], stack.kafka.pids[0]

        def note() -> None:
            seen.append((time.monotonic(), decisions.count, cpu_s(pid), cpu_s(broker)))

        def look() -> None:
            stack.check()
            if len(seen) == 1 and warm <= decisions.count < total:
                note()
            done(decisions.count / total)

        note()
        decisions.wait(total, limit_s, look)
        note()
    stack.stop("job")
    # Where all were there at one look, as in a smoke run, the warm-up counts.
    began, end = seen[-2:]
    took, events, job_s, broker_s = (after - before for before, after in zip(began, end, strict=True))
    return CaughtUp(events_s=events / took, job_us=job_s / events * 1e6, broker_us=broker_s / events * 1e6)
