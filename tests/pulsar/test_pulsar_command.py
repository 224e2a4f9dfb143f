"""`weir pulsar` as a user runs it."""

import json
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest
from pulsar_kit import Admin, client, send_all
from stack_kit import WEIR, running, until


def done(process: "subprocess.Popen[str]", ready_file: Path) -> bool:
    """Whether it is ready, or never will be."""
    return process.poll() is not None or ready_file.exists()


@pytest.mark.soak
def test_it_runs_until_it_is_told_to_stop_and_keeps_its_data(tmp_path: Path) -> None:
    """Ready when messages pass; a second run has the first one's topics; nothing is left of it afterwards."""
    words = [str(WEIR), "pulsar", "--data", str(tmp_path / "data"), "--port", "0", "--admin-port", "0"]
    words += ["--property", "brokerDeleteInactiveTopicsEnabled=false"]
    for run in range(2):
        ready_file = tmp_path / f"ready-{run}.json"
        process = subprocess.Popen(
            [*words, "--ready-file", str(ready_file)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        try:
            until(partial(done, process, ready_file), what="the ready file", limit_s=120)
            ready = json.loads(ready_file.read_text())
            assert set(ready) == {"pulsar", "pulsar_admin", "pid"}
            topics = Admin(ready["pulsar_admin"]).topics()
            assert ("persistent://public/default/kept" in topics) is bool(run)
            with client(ready["pulsar"]) as connected:
                send_all(connected.create_producer("kept"), [b"message"])
            process.send_signal(signal.SIGTERM)
            shown, _ = process.communicate(timeout=20)
        finally:
            process.kill()
        assert process.returncode == 0
        where = f"{ready['pulsar']}, its admin API on {ready['pulsar_admin']}"
        assert f"pulsar is ready on {where}; Ctrl-C stops it" in shown.splitlines()
        assert not running(ready["pid"])
