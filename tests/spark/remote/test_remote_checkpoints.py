"""`weir job` on a checkpoint that is far away: it decides as the local engine does, whatever goes away."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from job_broker_kit import Broker, load
from job_kit import Job
from remote_kit import SECRET, Remote
from replayed_kit import check, crowd, limits, warm
from stack_kit import series_at

pytestmark = pytest.mark.soak

AWAY_S = 20.0
POLICIES = 6000
"""As many as make their note large enough to lie beside the body."""
MIB = 2**20


def segments_of(ready: dict[str, Any]) -> dict[str, float]:
    """What a job has counted: segments, and their bytes."""
    kinds = {"weir_job_segments_total{what=": "", "weir_job_segment_bytes_total{what=": "_bytes"}
    return {
        key.split('"')[1] + ending: value
        for key, value in series_at(ready["metrics"]).items()
        for kind, ending in kinds.items()
        if key.startswith(kind)
    }


def cached(folder: Path) -> dict[str, int]:
    """Names and sizes of what a cache holds."""
    return {path.stem: path.stat().st_size for path in folder.glob("*/*.arrow")}


def begin(
    make_job: Callable[..., Job], broker: Broker, **settings: Any
) -> tuple[Job, dict[str, Any], set[str]]:
    """A job with cold rows and a large note beside its checkpoint."""
    limits(broker)
    for number in range(POLICIES):
        broker.limit(f"somebody-of-many-{number}", 5)
    broker.flush()
    job = make_job("first", **settings)
    ready = job.start()
    warm(broker)
    names = crowd(broker, "first")
    broker.wait_for(names)
    return job, ready, names


def test_another_machine_goes_on(
    make_job: Callable[..., Job], broker: Broker, bootstrap: str, remote: Remote, tmp_path: Path
) -> None:
    """Killed, started with an empty cache: what rests is fetched once, nothing is decided otherwise."""
    job, ready, names = begin(make_job, broker)
    names |= load(broker, 0, 5.0)
    broker.wait_for(names)
    seen = segments_of(ready)
    assert seen["written"] >= 2 and seen["deleted"] >= 1, seen
    assert "fetched" not in seen, "a worker has what it wrote"
    sizes = remote.segments()
    assert max(sizes.values()) >= 256 * 1024
    assert {Path(path).stem for path in sizes} <= {*cached(tmp_path / "first")}
    job.end(signal.SIGKILL)
    other = make_job("second")
    ready = other.start()
    names |= crowd(broker, "second") | load(broker, len(names), 3.0)
    check(broker, bootstrap, names, tmp_path)
    seen = segments_of(ready)
    assert seen["fetched"] >= 1, seen
    assert seen["fetched_bytes"] <= sum(sizes.values()), "each of them once"
    assert other.end(signal.SIGTERM) == 0
    assert SECRET not in "".join(
        path.read_text() for name in ("first", "second") for path in (tmp_path / name).rglob("*.log")
    )


def test_it_may_be_away(
    make_job: Callable[..., Job], broker: Broker, bootstrap: str, remote: Remote, tmp_path: Path
) -> None:
    """For twenty seconds, under load: the job waits or ends with a reason; nothing is decided otherwise."""
    job, _, names = begin(make_job, broker)
    sending = threading.Thread(target=lambda: names.update(load(broker, 0, AWAY_S / 2)))
    sending.start()
    # Here: servers end with the thread that started them.
    remote.away(AWAY_S)
    sending.join()
    if job.status() is not None:
        assert "the query failed" in job.log.read_text()
        job = make_job("again")
        job.start()
    names |= crowd(broker, "second") | load(broker, len(names), 1.0)
    check(broker, bootstrap, names, tmp_path)


def test_what_is_damaged_is_named(make_job: Callable[..., Job], broker: Broker, remote: Remote) -> None:
    """The job ends, with the URI: deciding without those rows would forget debts."""
    job, _, _ = begin(make_job, broker)
    assert job.end(signal.SIGTERM) == 0
    for path in remote.segments():
        remote.damage(path)
    other = make_job("second")
    # What was written meanwhile may be its first batch, before it is ready.
    other.launch()
    crowd(broker, "second")
    assert other.ended(150) == 1
    said = other.log.read_text()
    assert "does not hold what its name says" in said and remote.checkpoint in said


def test_a_cache_stays_within_its_bound(
    make_job: Callable[..., Job], broker: Broker, bootstrap: str, tmp_path: Path
) -> None:
    """One MiB for more than that: what does not fit is fetched again, and decided the same."""
    job, ready, names = begin(make_job, broker, segment_cache_mb=1)
    for number in range(3):
        names |= crowd(broker, f"more{number}")
        broker.wait_for(names)
        assert 0 < sum(cached(tmp_path / "first").values()) <= MIB
    names |= load(broker, 0, 2.0)
    check(broker, bootstrap, names, tmp_path)
    assert segments_of(ready)["written_bytes"] > MIB
    assert job.end(signal.SIGTERM) == 0
