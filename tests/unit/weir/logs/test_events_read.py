"""Where replay's events come from."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from law_kit import request
from plan_kit import file_of, policies_of

from weir.cli import main
from weir.logs import dump
from weir.logs.dump_lines import DumpSummary


def test_what_topics_hold_is_kept_beside_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Days of a cluster filled the folder for temporary files, which is memory in many places."""
    policies, made = policies_of(tmp_path, "p.yaml"), list[Path]()

    def dumped(cluster: Any, start: int, end: int, file: Path, **_: Any) -> DumpSummary:
        made.append(file)
        file.write_bytes(Path(file_of(tmp_path, "one", request("a", 0))).read_bytes())
        return DumpSummary()

    monkeypatch.setattr(dump, "dump", dumped)
    words = ["--policies", policies, "--from-kafka", "127.0.0.1:1", "--out", str(tmp_path / "out")]
    assert main(["replay", *words]) == 0
    assert made[0].parent.parent == tmp_path and not made[0].parent.exists()


def test_sigterm_leaves_nothing_half_written(tmp_path: Path) -> None:
    """In the midst of a log that a pipe gives: as Ctrl-C, with the same words and status."""
    policies, log = policies_of(tmp_path, "p.yaml"), tmp_path / "log"
    os.mkfifo(log)
    words = ["--policies", policies, "--events", str(log), "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "weir", "replay", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as replay:
        with log.open("wb", buffering=0) as pipe:
            pipe.write(Path(file_of(tmp_path, "one", request("a", 0))).read_bytes())
            assert any(path.name.startswith(".weir-replay-") for path in tmp_path.iterdir())
            replay.send_signal(signal.SIGTERM)
        assert replay.communicate(timeout=60)[1] == "weir: interrupted\n"
    assert replay.returncode == 1
    assert {path.name for path in tmp_path.iterdir()} == {"p.yaml", "log", "one"}
