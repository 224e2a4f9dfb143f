"""`weir job` on a standalone cluster: it decides as one process does, whatever is killed meanwhile."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from job_broker_kit import Broker, load
from replayed_kit import check, crowd, crowded
from spark_cluster_kit import WatchedCluster

from weir.stack.process import wait_until_gone

CRASH_S = 12.0
"""How long requests come while something is killed: the first seconds before, the rest after it."""


@pytest.mark.soak
@pytest.mark.parametrize("what", ["executor", "python", "worker", "all executors"])
def test_nothing_is_lost_with_what_is_killed(
    what: str,
    cluster: WatchedCluster,
    make_job: Callable[..., Any],
    broker: Broker,
    bootstrap: str,
    tmp_path: Path,
) -> None:
    """SIGKILL under load: the query goes on, by the same driver, and decides as one process does.

    On two executors, with cold rows on a folder that they share.
    """
    job = make_job()
    names = crowded(broker, job)
    assert list((tmp_path / "checkpoint").glob("v*/segments/*/*.arrow"))
    assert all(cluster.python_workers(number) for number in range(2)), "each executor has its part"
    killer = threading.Timer(CRASH_S / 3, lambda: kill(cluster, what))
    killer.start()
    names |= load(broker, 0, CRASH_S)
    killer.join()
    names |= crowd(broker, "second")
    check(broker, bootstrap, names, tmp_path)
    # The driver is still the one that was started: nothing was begun again.
    assert job.end(signal.SIGTERM) == 0
    assert "restart" not in job.log.read_text()


def kill(cluster: WatchedCluster, what: str) -> None:
    """SIGKILL to what the first worker has, or to itself, or to every executor."""
    if what == "worker":
        cluster.workers[0].kill()
        return
    whose = range(2) if what == "all executors" else range(1)
    found = [cluster.python_workers(n) if what == "python" else cluster.executors(n) for n in whose]
    for pid in (pid for each in found for pid in each):
        os.kill(pid, signal.SIGKILL)
        assert wait_until_gone(pid, 5)
