"""One job at a time on a checkpoint."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.contract.errors import WeirError
from streaming.job.process.lease import Lease


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Where a checkpoint would be."""
    return tmp_path / "v1"


@pytest.fixture
def jvm() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose command line looks like a Spark driver's."""
    command = [sys.executable, "-c", "import time; time.sleep(60)", "org.apache.spark.deploy.SparkSubmit"]
    with subprocess.Popen(command) as process:
        try:
            yield process
        finally:
            process.kill()


def note(checkpoint: Path, text: str) -> None:
    """What an earlier job left."""
    Path(f"{checkpoint}.pid").write_text(text)


def test_starts_are_counted_and_the_newest_user_is_named(checkpoint: Path) -> None:
    """The first start is no restart."""
    for restarts in range(3):
        with Lease(checkpoint, 1) as lease:
            assert lease.restarts == restarts
            lease.record(4_000_000 + restarts)
    assert json.loads(Path(f"{checkpoint}.pid").read_text()) == {
        "pid": os.getpid(),
        "jvm_pid": 4_000_002,
        "starts": 3,
    }


def test_a_second_job_gives_up_after_its_limit(checkpoint: Path) -> None:
    """It says who holds the checkpoint."""
    with Lease(checkpoint, 1) as lease:
        lease.record(0)
        with pytest.raises(WeirError, match=f"pid {os.getpid()}"):
            Lease(checkpoint, 0.2).__enter__()
    with Lease(checkpoint, 1):
        pass


def test_the_jvm_of_a_killed_job_is_waited_for(checkpoint: Path, jvm: subprocess.Popen[bytes]) -> None:
    """Not for ever; once it is gone the checkpoint is free."""
    note(checkpoint, json.dumps({"pid": 1, "jvm_pid": jvm.pid, "starts": 1}))
    with pytest.raises(WeirError, match=f"pid {jvm.pid}"):
        Lease(checkpoint, 0.3).__enter__()
    jvm.kill()
    with Lease(checkpoint, 5) as lease:
        assert lease.restarts == 1


def test_another_program_with_the_old_process_id_is_no_reason_to_wait(checkpoint: Path) -> None:
    """After a reboot the id may belong to anyone, here to the test itself."""
    note(checkpoint, json.dumps({"pid": 1, "jvm_pid": os.getpid(), "starts": 1}))
    with Lease(checkpoint, 0.2):
        pass


@pytest.mark.parametrize("text", ["", '{"pid": 1, "jv', "[]"])
def test_a_note_cut_short_by_a_crash_is_ignored(checkpoint: Path, text: str) -> None:
    """It is written before the query starts, so that job cannot have touched the checkpoint."""
    note(checkpoint, text)
    with Lease(checkpoint, 0.2) as lease:
        assert lease.restarts == 0


def test_a_lease_that_is_not_held_records_nothing(checkpoint: Path) -> None:
    """Neither before nor after."""
    with pytest.raises(WeirError):
        Lease(checkpoint, 1).record(1)
