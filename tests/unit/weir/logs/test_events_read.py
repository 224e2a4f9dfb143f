"""Where replay's events come from: files or a cluster, and options of one with the other."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from law_kit import request
from plan_kit import file_of, policies_of

from weir.cli import main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "one of the arguments --events --from-kafka is required"),
        (("--events", "e", "--from-kafka", "127.0.0.1:1"), "not allowed with argument"),
        (("--events", "e", "--from", "-1h"), "--from and --to need --from-kafka HOST:PORT"),
        (("--events", "e", "--settings", "s"), "--settings needs --from-kafka HOST:PORT or --engine spark"),
    ],
)
def test_options_that_do_not_go_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    """Bad usage, which says what is."""
    with pytest.raises(SystemExit) as stopped:
        main(["replay", "--policies", "p", "--out", str(tmp_path / "out"), *words])
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


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
