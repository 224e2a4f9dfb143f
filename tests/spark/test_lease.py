"""One job at a time on a checkpoint, of one host and of several that share a folder."""

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from streaming.contract.errors import WeirError
from streaming.job.process import lease as lease_module
from streaming.job.process.lease import Lease
from streaming.job.process.lease_note import Note, Notes, ProcessIdentity

SILENCE_S = 1.0
"""Of a host that counts as gone: the note is renewed every fifth of it."""
HERE = ProcessIdentity.here()
THERE = ProcessIdentity(host="far", boot="another kernel", pid_space="pid:[1]")
BESIDE = replace(HERE, host="container", pid_space="pid:[2]")
"""Another container of this machine."""


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


def lease(
    checkpoint: Path,
    timeout_s: float = 1,
    place: ProcessIdentity = HERE,
    jvm: int = 0,
    silence_s: float = SILENCE_S,
) -> Lease:
    """One that is not taken yet."""
    return Lease(checkpoint, timeout_s, silence_s, jvm, place)


def note(checkpoint: Path, text: str) -> None:
    """What an earlier job left."""
    Path(f"{checkpoint}.pid").write_text(text)


def noted(checkpoint: Path) -> dict[str, Any]:
    """What stands beside the checkpoint."""
    found: dict[str, Any] = json.loads(Path(f"{checkpoint}.pid").read_text())
    return found


def left_by(place: ProcessIdentity, **fields: Any) -> str:
    """The note of a job that was killed there."""
    killed = {"pid": 1, "jvm_pid": 0, "starts": 1, "holder": "a", "beat": 7, "left": False, "weir": "1.0.0"}
    return json.dumps(asdict(place) | killed | fields)


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks."""

    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.fixture
def locks_of_one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system whose locks nobody sees from another host, as a mount with `nolock`."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)


def test_starts_are_counted_and_the_newest_user_is_named(checkpoint: Path) -> None:
    """The first start is no restart; who ends in order says so, and where it was."""
    for restarts in range(3):
        with lease(checkpoint, jvm=4_000_000 + restarts) as held:
            assert held.restarts == restarts
            assert not noted(checkpoint)["left"]
    found = noted(checkpoint)
    assert (found["pid"], found["jvm_pid"], found["starts"]) == (os.getpid(), 4_000_002, 3)
    assert found["left"] and found["host"] == HERE.host and found["boot"] == HERE.boot


def test_a_second_job_gives_up_after_its_limit(checkpoint: Path) -> None:
    """It says who holds the checkpoint."""
    with lease(checkpoint), pytest.raises(WeirError, match=rf"\(pid {os.getpid()}\) uses the checkpoint"):
        lease(checkpoint, 0.2).__enter__()
    with lease(checkpoint):
        pass


def test_the_jvm_of_a_killed_job_is_waited_for(checkpoint: Path, jvm: subprocess.Popen[bytes]) -> None:
    """Not for ever; once it is gone the checkpoint is free."""
    note(checkpoint, left_by(HERE, jvm_pid=jvm.pid))
    with pytest.raises(WeirError, match=f"pid {jvm.pid}"):
        lease(checkpoint, 0.3).__enter__()
    jvm.kill()
    with lease(checkpoint, 5) as held:
        assert held.restarts == 1


def test_our_own_jvm_is_not_that_of_the_last_job(checkpoint: Path, jvm: subprocess.Popen[bytes]) -> None:
    """In a container that begins anew it has the same number, and runs before the lease is taken."""
    note(checkpoint, left_by(HERE, jvm_pid=jvm.pid))
    with lease(checkpoint, 0.3, jvm=jvm.pid) as held:
        assert held.restarts == 1


def test_another_program_with_the_old_process_id_is_no_reason_to_wait(checkpoint: Path) -> None:
    """After a reboot the id may belong to anyone, here to the test itself."""
    note(checkpoint, left_by(HERE, jvm_pid=os.getpid()))
    with lease(checkpoint, 0.2):
        pass


def test_a_machine_that_is_too_busy_to_tell_of_the_jvm_is_asked_again(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as a JVM is waited for."""
    answers = [subprocess.TimeoutExpired("ps", 5.0)] * 2

    def ps(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if answers:
            raise answers.pop()
        return subprocess.CompletedProcess(command, 1, stdout="")

    note(checkpoint, left_by(HERE, jvm_pid=1))
    monkeypatch.setattr(lease_module.subprocess, "run", ps)
    with lease(checkpoint):
        assert not answers


@pytest.mark.parametrize("text", ["", '{"pid": 1, "jv', "[]", '{"pid": Infinity}', 100_000 * "["])
def test_a_note_cut_short_by_a_crash_is_ignored(checkpoint: Path, text: str) -> None:
    """It is written before the query starts, so that job cannot have touched the checkpoint."""
    note(checkpoint, text)
    with lease(checkpoint, 0.2) as held:
        assert held.restarts == 0


def test_a_disk_that_is_full_for_a_moment_takes_no_start(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark is up by then; for longer than others are waited for it is said."""
    full, write = [2], Notes.write

    def written(notes: Notes, note: Note) -> None:
        full[0] -= 1
        if full[0] >= 0:
            raise OSError(28, "No space left on device")
        write(notes, note)

    monkeypatch.setattr(Notes, "write", written)
    with lease(checkpoint):
        assert noted(checkpoint)["pid"] == os.getpid()
    full[0] = 10**9
    with pytest.raises(WeirError, match="No space left"):
        lease(checkpoint, 0.2).__enter__()


@pytest.mark.parametrize("locks", ["no_locks", "locks_of_one_host"])
def test_a_job_on_another_host_keeps_its_checkpoint(
    locks: str, checkpoint: Path, request: pytest.FixtureRequest
) -> None:
    """Whatever locks are worth there: its note goes on, and the second job names its host and the way out."""
    request.getfixturevalue(locks)
    with lease(checkpoint, place=THERE) as held:
        with pytest.raises(WeirError, match=r"on host far\) uses the checkpoint; stop.*delete .*v1.pid"):
            lease(checkpoint, 2 * SILENCE_S).__enter__()
        assert not held.lost
    # Ended in order: nobody waits.
    begun = time.monotonic()
    with lease(checkpoint):
        assert time.monotonic() - begun < SILENCE_S


@pytest.mark.parametrize("locks", ["no_locks", "locks_of_one_host"])
def test_a_killed_job_of_another_host_is_taken_over_when_it_is_silent(
    locks: str, checkpoint: Path, request: pytest.FixtureRequest
) -> None:
    """A process id of another host says nothing, here it is one that runs; the limit bends for silence."""
    request.getfixturevalue(locks)
    note(checkpoint, left_by(THERE, pid=os.getpid(), jvm_pid=os.getpid()))
    begun = time.monotonic()
    with lease(checkpoint, 0.6 * SILENCE_S) as held:
        assert SILENCE_S <= time.monotonic() - begun < 2 * SILENCE_S
        assert held.restarts == 1


def test_a_lock_that_a_server_keeps_for_a_dead_host_does_not_count(checkpoint: Path) -> None:
    """Its note is silent; a living one of the same kernel is never passed over, however silent it is."""
    note(checkpoint, left_by(THERE))
    with Path(f"{checkpoint}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with lease(checkpoint, 0.1):
            pass
        note(checkpoint, left_by(BESIDE))
        with pytest.raises(WeirError, match="host container"):
            lease(checkpoint, 2 * SILENCE_S).__enter__()


def test_the_jvm_in_another_container_of_this_machine_gets_its_time_to_end(checkpoint: Path) -> None:
    """The lock says that the job is gone; its JVM cannot be seen, and ends within two seconds."""
    note(checkpoint, left_by(BESIDE))
    begun = time.monotonic()
    with lease(checkpoint, 5):
        assert 2 < time.monotonic() - begun < 5


def test_who_was_taken_over_ends_its_jvm_at_once(
    checkpoint: Path, jvm: subprocess.Popen[bytes], locks_of_one_host: None
) -> None:
    """A host that comes back after it was taken for dead: the note is another's."""
    with lease(checkpoint, place=THERE, jvm=jvm.pid) as held:
        note(checkpoint, left_by(HERE, holder="b", pid=77))
        assert jvm.wait(5) < 0
        assert held.lost == f"the job (pid 77 on host {HERE.host}) has taken the checkpoint over"
    # It is not the loser's to say that nobody is there.
    assert not noted(checkpoint)["left"]


def test_of_two_that_take_it_at_once_one_ends_before_its_query_begins(
    checkpoint: Path, jvm: subprocess.Popen[bytes], no_locks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark is up by then, and Kafka comes back for both at the same time."""
    write, other = Notes.write, lease(checkpoint, silence_s=30.0, jvm=jvm.pid)

    def written(notes: Notes, note: Note) -> None:
        monkeypatch.setattr(Notes, "write", write)
        other.__enter__()
        write(notes, note)

    monkeypatch.setattr(Notes, "write", written)
    with lease(checkpoint, place=THERE, silence_s=30.0) as held:
        assert jvm.wait(2) < 0
        assert "has taken the checkpoint over" in other.lost and not held.lost
    other.__exit__()


def test_who_cannot_leave_its_note_looks_again_who_is_there(
    checkpoint: Path, no_locks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its disk was full another has come."""
    write = Notes.write

    def written(notes: Notes, note: Note) -> None:
        monkeypatch.setattr(Notes, "write", write)
        other.__enter__()
        raise OSError(28, "No space left on device")

    other = lease(checkpoint, place=THERE)
    monkeypatch.setattr(Notes, "write", written)
    with pytest.raises(WeirError, match="on host far"):
        lease(checkpoint, 2 * SILENCE_S).__enter__()
    assert not other.lost
    other.__exit__()


def test_a_deleted_note_ends_the_job(checkpoint: Path, jvm: subprocess.Popen[bytes]) -> None:
    """As one does to take over by hand."""
    with lease(checkpoint, jvm=jvm.pid) as held:
        Path(f"{checkpoint}.pid").unlink()
        assert jvm.wait(5) < 0
        assert held.lost.endswith("v1.pid was deleted")


@pytest.mark.parametrize("why", ["Input/output error", "its file system does not answer"])
def test_who_cannot_renew_gives_up_before_others_may_take_over(
    checkpoint: Path, jvm: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """The shared folder is gone, or hangs: the job decided on for as long as that did."""
    answers = threading.Event()

    def fail(_: object) -> None:
        if why.startswith("its"):
            answers.wait(10 * SILENCE_S)
        raise OSError(5, "Input/output error")

    with lease(checkpoint, jvm=jvm.pid) as held:
        begun = time.monotonic()
        monkeypatch.setattr(Notes, "read", fail)
        assert jvm.wait(5 * SILENCE_S) < 0
        assert time.monotonic() - begun < SILENCE_S + 0.2
        assert held.lost.endswith(why)
    answers.set()


def test_a_file_system_that_does_not_answer_keeps_nobody(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that was to stop waited for its note for ever."""
    answers = threading.Event()
    with lease(checkpoint) as held:
        monkeypatch.setattr(type(held._notes), "write", lambda *_: answers.wait(10 * SILENCE_S))
        time.sleep(SILENCE_S)
        begun = time.monotonic()
    assert time.monotonic() - begun < 3 * SILENCE_S
    answers.set()


def test_a_machine_that_has_no_thread_left_for_a_moment_takes_no_lease(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note was renewed no more, and a job of another host came while this one decided on."""
    none, submit = [1], lease_module.Threads.submit

    def begun(threads: Any, call: Any) -> Any:
        none[0] -= 1
        if none[0] >= 0:
            raise RuntimeError("can't start new thread")
        return submit(threads, call)

    monkeypatch.setattr(lease_module.Threads, "submit", begun)
    with lease(checkpoint) as held:
        time.sleep(SILENCE_S)
        assert noted(checkpoint)["beat"] > 0 and not held.lost
        none[0] = 1
    assert none[0] < 1
