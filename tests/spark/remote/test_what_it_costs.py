"""What a checkpoint far away costs, one kind after the other (docs/operate/checkpoints.md).

Measured, not asserted: run it alone, with `-s`.
"""

import signal
import statistics
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from job_broker_kit import USERS, Broker, load
from job_kit import Job
from remote_kit import REMOTES, Remote
from stack_kit import series_at

pytestmark = pytest.mark.soak

WARM_S, MEASURED_S = 20.0, 60.0
PHASES = ("find_offsets", "plan", "log_offsets", "run", "commit", "total")


def phases(metrics: str) -> dict[str, tuple[float, float]]:
    """Sum and count of the seconds of each phase of all batches so far."""
    shown, name = series_at(metrics), "weir_job_batch_seconds"
    labels = {phase: f'{{phase="{phase}"}}' for phase in PHASES}
    return {phase: (shown[f"{name}_sum{of}"], shown[f"{name}_count{of}"]) for phase, of in labels.items()}


def waits_ms(broker: Broker, names: set[str]) -> list[float]:
    """From each request's record to its decision's, by the times of the records."""
    asked = {orjson.loads(record.value)["id"]: record.ts for record in broker.records("weir.requests")}
    waits = {}
    for record in broker.records("weir.decisions"):
        name = orjson.loads(record.value)["id"]
        if name in names:
            waits[name] = record.ts - asked[name]
    return sorted(waits.values())


@pytest.mark.parametrize("place", ["local", *REMOTES])
def test_what_it_costs(place: str, bootstrap: str, broker: Broker, tmp_path: Path) -> None:
    """All is decided, on each of them; how late, and what of it goes where, is printed."""
    for user in range(USERS):
        broker.limit(f"u{user}", 5)
    broker.flush()
    where: Any = REMOTES[place](tmp_path / "remote") if place in REMOTES else nullcontext()
    with where as remote, started(remote, bootstrap, tmp_path) as job:
        metrics = job.start()["metrics"]
        names = load(broker, 0, WARM_S)
        before = phases(metrics)
        measured = load(broker, len(names), MEASURED_S)
        broker.wait_for(measured)
        time.sleep(1)
        means = {
            phase: 1000 * (seconds - before[phase][0]) / max(1.0, count - before[phase][1])
            for phase, (seconds, count) in phases(metrics).items()
        }
        assert job.end(signal.SIGTERM) == 0
    waits = waits_ms(broker, measured)
    assert len(waits) == len(measured)
    costs = ", ".join(f"{phase} {mean:.0f}" for phase, mean in means.items())
    p50, p99 = statistics.median(waits), waits[len(waits) * 99 // 100]
    sys.stderr.write(f"\n{place}: p50 {p50:.0f} ms, p99 {p99:.0f}; {costs}\n")


def started(remote: Remote | None, bootstrap: str, folder: Path) -> Job:
    """A job with that checkpoint, or one in a folder."""
    given = {"segment_cache_dir": str(folder / "cache"), **remote.settings} if remote else {}
    checkpoint = remote.checkpoint if remote else None
    return Job(folder, bootstrap, settings=yaml.safe_dump({"job": given}), checkpoint=checkpoint)
