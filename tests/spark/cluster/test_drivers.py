"""The driver of a job on a cluster: killed and started on another host, on more workers, on other numbers."""

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from job_broker_kit import Broker, load
from replayed_kit import check, crowd, crowded, limits, replayed, warm
from spark_cluster_kit import WatchedCluster

pytestmark = pytest.mark.soak


@pytest.fixture
def other_host(tmp_path: Path) -> Sequence[str]:
    """What runs a command as on another host: another name, another kernel; the network stays."""
    boot, hosts = tmp_path / "boot_id", tmp_path / "hosts"
    boot.write_text("another kernel\n")
    hosts.write_text("127.0.0.1 localhost elsewhere\n")
    script = f"mount --bind {boot} /proc/sys/kernel/random/boot_id && mount --bind {hosts} /etc/hosts"
    script += ' && hostname elsewhere && exec "$@"'
    words = ("unshare", "--mount", "--uts", "sh", "-c", script, "sh")
    allowed = shutil.which("unshare") and not subprocess.run([*words, "true"], check=False).returncode
    assert allowed, "this user may not make another host of a process; run this as root, with unshare"
    return words


def test_a_driver_is_killed_and_another_host_takes_over(
    make_job: Callable[..., Any], broker: Broker, bootstrap: str, other_host: Sequence[str], tmp_path: Path
) -> None:
    """While it lives the other host refuses and names it; once it is silent the other goes on."""
    first = make_job()
    names = crowded(broker, first)
    other = {"spark_conf": {"spark.driver.host": "localhost"}}
    refused = make_job("refused", other_host, **other)
    with pytest.raises(AssertionError, match=rf"on host {os.uname().nodename}\) uses the checkpoint"):
        refused.start()
    names |= load(broker, 0, 2.0)
    first.end(signal.SIGKILL)
    names |= load(broker, len(names), 2.0)
    second = make_job("second", other_host, **other)
    ready = second.start()
    assert "to be gone from the checkpoint" in second.log.read_text()
    names |= load(broker, len(names), 2.0) | crowd(broker, "second")
    check(broker, bootstrap, names, tmp_path)
    note = next((tmp_path / "checkpoint").glob("v*.pid"))
    found = orjson.loads(note.read_bytes())
    assert (found["host"], found["pid"], found["starts"]) == ("elsewhere", ready["pid"], 2)
    assert second.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("cluster", [1], indirect=True)
def test_a_worker_is_added_and_gets_its_part(
    cluster: WatchedCluster, make_job: Callable[..., Any], broker: Broker, bootstrap: str, tmp_path: Path
) -> None:
    """Two shards on one worker, then on two, by the same query and on the same checkpoint."""
    job = make_job()
    names = crowded(broker, job)
    loading = threading.Thread(target=lambda: names.update(load(broker, 0, 15.0)))
    loading.start()
    cluster.add_worker()
    loading.join()
    names |= crowd(broker, "second")
    check(broker, bootstrap, names, tmp_path)
    assert cluster.python_workers(0) and cluster.python_workers(1)
    assert len(list((tmp_path / "checkpoint").glob("v*-partitions2-*/commits"))) == 1
    assert job.end(signal.SIGTERM) == 0


def test_other_numbers_begin_anew_and_say_so(
    make_job: Callable[..., Any], broker: Broker, bootstrap: str, tmp_path: Path
) -> None:
    """Nothing is lost: all is read again and decided alike, a second time; back on the old one it goes on."""
    limits(broker)
    names: set[str] = set()
    for tasks, written in ((1, 1), (2, 2), (1, 2)):
        job = make_job(f"job{len(names)}", shuffle_partitions=tasks)
        job.start()
        if not names:
            warm(broker)
        new = load(broker, len(names), 1.0)
        names |= new
        broker.wait_for(new)
        assert job.end(signal.SIGTERM) == 0
        said = [line for line in job.log.read_text().splitlines() if "BEGINS ANEW" in line]
        assert len(said) == (tasks == 2), said
        if said:
            assert "job.shuffle_partitions 1, now 2" in said[0] and "records of the topics" in said[0]
            first = len(names) - len(new)
        times = [orjson.loads(value)["id"] for value in broker.values("weir.decisions")]
        assert times.count("warm") == written
    check(broker, bootstrap, names, tmp_path)
    assert first and len(replayed(bootstrap, tmp_path)) == len(names) + 1


def test_two_drivers_without_a_lease_are_told_apart_by_spark(
    make_job: Callable[..., Any], broker: Broker, bootstrap: str, tmp_path: Path
) -> None:
    """Where a checkpoint is no folder of ours: one of them fails, and no decision is lost or different."""
    (tmp_path / "store").mkdir()
    spark = {
        "spark.hadoop.fs.viewfs.mounttable.default.link./store": f"file://{tmp_path}/store",
        # Each on half of the cores.
        "spark.executor.instances": "1",
    }
    limits(broker)
    jobs = [
        make_job(name, checkpoint="viewfs:/store", spark_conf=spark) for name in ("first", "second")
    ]
    jobs[0].start()
    warm(broker)
    # Which of them fails, and when, is chance: whoever comes second with a batch.
    with suppress(AssertionError):
        jobs[1].start()
    names = load(broker, 0, 6.0)
    ended = [job for job in jobs if job.status() is not None]
    assert [job.ended(1) for job in ended] == [1]
    said = ended[0].log.read_text()
    assert "Multiple streaming queries are concurrently using" in said or "CONCURRENT_STREAM_LOG" in said
    names |= load(broker, len(names), 1.0)
    check(broker, bootstrap, names, tmp_path)
