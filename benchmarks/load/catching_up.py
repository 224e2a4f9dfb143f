"""A job that finds all its work on Kafka and catches up: how fast it decides, seen from outside."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.kit.machine import cpu_s
from benchmarks.kit.stack import Stack
from benchmarks.load.writing import RowCounter

_OUTCOME: Final = 5
"""Place of the column `outcome` among those of an admission: a word of three, packed next to nothing."""


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


def catch_up(
    stack: Stack, *, warm: int, total: int, limit_s: float, done: Callable[[float], None]
) -> CaughtUp:
    """Start the job of a stack, on whose topic all requests stand, and see it decide them; then stop it.

    Args:
        stack: with requests, without a job.
        warm: decisions that are not counted: the JVM's compilers take a third of the processor at first.
        total: decisions that there will be.
        limit_s: for all of them.
        done: told now and then which part of them there is.

    Raises:
        WeirError: the job ended, or did not decide all of them in time.
    """
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
