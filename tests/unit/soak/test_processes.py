"""Which processes are left (tests/soak)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import soak_processes
from soak_processes import Seen, below, started

SLEEP = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"]


def test_what_still_runs_is_left_and_killed() -> None:
    """What has ended is not, nor what never was."""
    seen = Seen()
    with subprocess.Popen(SLEEP, stdout=subprocess.PIPE) as one, subprocess.Popen(SLEEP) as other:
        for name, process in (("one", one), ("other", other)):
            seen.add(name, process.pid)
        seen.add("nobody", 0)
        other.kill()
        other.wait(10)

        assert {one.pid, os.getpid()} & set(below(os.getpid())) == {one.pid}
        assert seen.left() == [("one", one.pid)]
        seen.kill()
        one.wait(10)
        assert seen.left() == []


def test_somebody_else_with_the_same_id_is_let_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was started at another time."""
    seen = Seen()
    with subprocess.Popen(SLEEP) as process:
        monkeypatch.setattr(soak_processes, "started", lambda _: "1")
        seen.add("before", process.pid)
        monkeypatch.undo()

        assert seen.left() == []
        seen.kill()
        assert process.poll() is None
        process.kill()


def test_a_process_has_its_start(tmp_path: Path) -> None:
    """Who is not there has none."""
    assert int(started(os.getpid())) > 0
    assert started(2**22 + 1) == ""
