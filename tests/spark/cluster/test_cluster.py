"""`weir job` on a standalone cluster: it decides as one process does, whatever is killed meanwhile."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from job_broker_kit import USERS, WAIT_S, Broker, load
from spark_cluster_kit import SparkCluster

from streaming.laws.mutation.table import WARM_ROWS
from weir.stack.process import wait_until_gone

CRASH_S = 12.0
"""How long requests come while something is killed: the first seconds before, the rest after it."""


def replayed(bootstrap: str, folder: Path) -> dict[str, bytes]:
    """What the local engine makes of what stands on the topics: the decisions as they are written, by id."""
    dump, policies, out = folder / "dump.jsonl", folder / "none.yaml", folder / "decisions.jsonl"
    policies.write_text("version: 1\n")
    weir("dump", "--kafka", bootstrap, "--out", str(dump))
    weir("replay", "--policies", str(policies), "--events", str(dump), "--out", str(out))
    return {orjson.loads(line)["id"]: line for line in out.read_bytes().splitlines()}


def weir(*words: str) -> None:
    """A command that must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "weir", *words], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, done.stderr


def limits(broker: Broker) -> None:
    """Each user's quota, before anything else: as in a dump, where they have to stand first."""
    broker.limit("<default>", 5)
    for user in range(USERS):
        broker.limit(f"u{user}", 1 + user)
    broker.flush()


def warm(broker: Broker) -> None:
    """Have the first batch decided."""
    broker.request("warm", "u0", 0)
    broker.flush()
    broker.wait_for({"warm"})


def crowd(broker: Broker, name: str) -> set[str]:
    """One request each of so many users that every shard lays rows to rest beside the checkpoint."""
    names = {f"{name}-{number}" for number in range(5 * WARM_ROWS)}
    for number, each in enumerate(sorted(names)):
        broker.request(each, f"many{number}", number % 9)
    broker.flush()
    return names


def check(broker: Broker, bootstrap: str, names: set[str], folder: Path) -> None:
    """Every request is decided, repeats are equal, and all of it is what the local engine says."""
    live = broker.wait_for(names)
    expected = replayed(bootstrap, folder)
    assert {orjson.loads(value)["outcome"] for value in live} == {"allow", "reject"}
    assert {orjson.loads(value)["id"] for value in live} == names | {"warm"}
    assert set(live) == set(expected.values())


def test_a_cluster_decides_as_one_process_does(
    cluster: SparkCluster, make_job: Callable[..., Any], broker: Broker, bootstrap: str, tmp_path: Path
) -> None:
    """Two executors, cold rows on a folder that they share; every Python worker of one is killed once."""
    limits(broker)
    job = make_job()
    job.start()
    warm(broker)
    names = crowd(broker, "first")
    broker.wait_for(names)
    assert list((tmp_path / "checkpoint").glob("v*/segments/*/*.arrow"))
    workers = [cluster.python_workers(number) for number in range(2)]
    assert all(workers), "each executor has its part"
    for pid in workers[0]:
        os.kill(pid, signal.SIGKILL)
    names |= crowd(broker, "second") | load(broker, 0, 1.0)
    check(broker, bootstrap, names, tmp_path)
    assert job.end(signal.SIGTERM) == 0


@pytest.mark.soak
@pytest.mark.parametrize("what", ["executor", "python", "worker", "all executors"])
def test_nothing_is_lost_with_what_is_killed(
    what: str,
    cluster: SparkCluster,
    make_job: Callable[..., Any],
    broker: Broker,
    bootstrap: str,
    tmp_path: Path,
) -> None:
    """SIGKILL under load: the query goes on, by the same driver, and decides as if nothing had been."""
    limits(broker)
    job = make_job()
    job.start()
    warm(broker)
    names = crowd(broker, "first")
    broker.wait_for(names)
    killer = threading.Timer(CRASH_S / 3, lambda: kill(cluster, what))
    killer.start()
    names |= load(broker, 0, CRASH_S)
    killer.join()
    names |= crowd(broker, "second")
    check(broker, bootstrap, names, tmp_path)
    # The driver is still the one that was started: nothing was begun again.
    assert job.end(signal.SIGTERM) == 0
    assert "restart" not in job.log.read_text()


def kill(cluster: SparkCluster, what: str) -> None:
    """SIGKILL to what the first worker has, or to itself, or to every executor."""
    if what == "worker":
        cluster.workers[0].kill()
        return
    whose = range(2) if what == "all executors" else range(1)
    found = [cluster.python_workers(n) if what == "python" else cluster.executors(n) for n in whose]
    for pid in (pid for each in found for pid in each):
        os.kill(pid, signal.SIGKILL)
        assert wait_until_gone(pid, 5)
