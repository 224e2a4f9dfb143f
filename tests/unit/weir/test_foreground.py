"""The folder that a stack keeps its data in, and how it hears that it is to stop."""

import asyncio
import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from disk_kit import fill

from streaming.contract.errors import WeirError
from streaming.kafka_io.policy_topic import PolicyLog
from weir import cli, proxy_process
from weir.commands import admin
from weir.foreground import StopSignal, forget_ready_file, private_folder, write_ready_file

KEPT = ("kafka", "up.lock")
FILE = Path(__file__).parents[3] / "conf" / "policies.yaml"
LOOKS = (
    "bill --from -1h --to now", "doctor", "dump --out /dev/null", "explain --id x", "policy get",
    "policy log", "policy mode track", f"policy apply {FILE}",
)  # fmt: skip
ANYWHERE = """
import signal, sys
from weir.foreground import StopSignal

def heard(after):
    stop, left = StopSignal(), after

    def trace(frame, event, arg):
        nonlocal left
        left -= 1
        if not left:
            signal.raise_signal(signal.SIGTERM)
        return trace

    stop.install()
    sys.settrace(trace)
    stop.wait(0.01)
    sys.settrace(None)
    assert stop.asked is (left <= 0)
    return left <= 0

after = 1
while heard(after):
    after += 1
print(after)
"""
"""A signal at each line of a wait in turn, until it has so many no more."""


def mode(path: Path) -> int:
    """Who may do what."""
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_folder_is_its_owners_alone(tmp_path: Path) -> None:
    """The ones above it are made as usual."""
    data = tmp_path / "a" / "data"
    assert private_folder(data, KEPT) is None
    assert mode(data) == 0o700
    assert private_folder(data, KEPT) is None


@pytest.mark.parametrize("held", [(), ("kafka", "kafka.log", "up.lock")])
def test_one_that_is_there_and_ours_is_tightened(held: tuple[str, ...], tmp_path: Path) -> None:
    """As an earlier version left it."""
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    for name in held:
        (data / name).touch()
    assert private_folder(data, KEPT) is None
    assert mode(data) == 0o700


def test_somebody_elses_folder_is_left_as_it_is(tmp_path: Path) -> None:
    """Closing /tmp to all others because it was named as the data folder would be worse."""
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o1777)
    (data / "up.lock").touch()
    (data / "theirs").touch()
    assert private_folder(data, KEPT) == (
        f"{data} has mode 1777: others on this machine may read what is kept there; expected 0700"
    )
    assert mode(data) == 0o1777


def test_a_signal_in_the_middle_of_a_wait_is_heard() -> None:
    """Wherever it is just then; it waited for its own lock, and only SIGKILL ended it."""
    said = subprocess.run(
        [sys.executable, "-c", ANYWHERE], capture_output=True, text=True, timeout=60, check=True
    )
    assert int(said.stdout) > 3


def test_a_ready_file_is_whole_or_what_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Folders are made. A full disk ends who is not ready yet; who works says so, and nothing lies about."""
    file, said = tmp_path / "new" / "ready.json", list[str]()
    for job in ("none", "away"):
        write_ready_file(file, {"job": job})
    fill(monkeypatch)
    with pytest.raises(OSError, match="No space left"):
        write_ready_file(file, {"job": "decides"})
    write_ready_file(file, {"job": "decides"}, said.append)
    assert said == [f"{file} could not be written anew: No space left on device"]
    assert file.read_text() == '{"job": "away"}\n' and [*file.parent.iterdir()] == [file]


@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminal_that_goes_away_asks_for_a_stop_unless_nohup_is_there(ignored: bool) -> None:
    """In order, however often it is said: all parts were killed, Kafka in the midst of a write."""
    forced: list[bool] = []
    signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    stop = StopSignal(lambda: forced.append(True))
    stop.install()
    for _ in range(2):
        signal.raise_signal(signal.SIGHUP)
    assert stop.asked is not ignored and not forced


def test_what_waits_for_others_has_its_result() -> None:
    """Or fails as it does without."""
    stop = StopSignal()
    assert stop.unless(lambda: 7) == 7
    with pytest.raises(ValueError, match="abc"):
        stop.unless(lambda: int("abc"))


@pytest.mark.parametrize(
    ("command", "status", "told"),
    [
        *((command, 1, "weir: interrupted\n") for command in ("backlog", "top", *LOOKS)),
        *((f"{command} --watch", 0, "") for command in ("backlog", "top")),
    ],
)
def test_a_question_holds_up_no_ctrl_c(
    command: str, status: int, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was heard once a Kafka that is away had not answered for 30 s; who watches has seen enough."""
    stops: list[StopSignal] = []
    closed: list[object] = []

    def install(stop: StopSignal) -> StopSignal:
        stops.append(stop)
        return stop

    def read(*_: object) -> None:
        # As what runs in C, it does not hear it itself.
        with contextlib.suppress(KeyboardInterrupt):
            if stops:
                stops[0].ask()
            else:
                os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1.0)
        raise WeirError("no answer")

    monkeypatch.setattr(StopSignal, "install", install)
    monkeypatch.setattr("streaming.kafka_io.policy_topic.PolicyReader.read", read)
    monkeypatch.setattr("streaming.kafka_io.reader.Reader.spans", read)
    monkeypatch.setattr("streaming.kafka_io.reader.Reader.close", lambda *_: closed.append(_))
    monkeypatch.setattr("weir.doctor.examination.examine", read)
    # What a shell runs in the background is born deaf to it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert cli.main([*command.split(), "--kafka", "127.0.0.1:1"]) == status
    # The question goes on: nobody may close what it reads.
    assert capsys.readouterr().err == told and not closed


@pytest.mark.parametrize("command", ["tail", "send"])
def test_an_absent_kafka_holds_up_no_stop(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C waited out the first question to it: 10 s, and 30 s."""

    def install(stop: StopSignal) -> StopSignal:
        stop.ask()
        return stop

    monkeypatch.setattr(StopSignal, "install", install)
    file = tmp_path / "events.jsonl"
    file.touch()
    begun = time.monotonic()
    words = [str(file)] if command == "send" else []
    assert cli.main([command, "--kafka", "127.0.0.1:1", *words]) == 1
    assert time.monotonic() - begun < 5 and capsys.readouterr().err == "weir: interrupted\n"


def test_a_silent_pipe_holds_up_no_second_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`weir send /dev/stdin` that waits for a line went on until SIGKILL."""

    def silent(_: object) -> Iterator[None]:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        yield from ()

    monkeypatch.setattr("weir.logs.send_lines.read_lines", silent)
    monkeypatch.setattr("streaming.kafka_io.policy_topic.read_policies", lambda _: PolicyLog())
    file = tmp_path / "events.jsonl"
    file.touch()
    assert cli.main(["send", "--kafka", "127.0.0.1:1", str(file)]) == 1
    assert capsys.readouterr().err == "weir: interrupted\n"


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *((command, "--listen") for command in ("admin", "proxy", "proxy --workers 2")),
        *((command, "--metrics") for command in ("collect", "collect kafka", "collect pulsar", "job")),
    ],
)
def test_a_second_one_leaves_the_ready_file_of_the_first(
    command: str,
    option: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same words typed twice: it is refused the port, and the first one is watched by that file."""
    for runs in (admin, proxy_process):
        monkeypatch.setattr(runs, "run_in_loop", asyncio.run)
        monkeypatch.setattr(runs, "stop_event", asyncio.Event)
    monkeypatch.setattr("gc.set_threshold", lambda _: None)
    monkeypatch.setattr("streaming.job.process.lease.GONE_S", 0)
    monkeypatch.setattr("weir.stack.topics.check_topics", lambda _: None)
    monkeypatch.setattr("weir.stack.workers.StopSignal.install", lambda _: None)
    ready = tmp_path / "ready.json"
    ready.touch()
    with socket.create_server(("127.0.0.1", 0)) as first:
        address = "{}:{}".format(*first.getsockname())
        given = ("--kafka", "127.0.0.1:1", option, address, "--ready-file", str(ready))
        assert cli.main([*command.split(), *given]) == 1
    assert f"cannot listen on {address}" in capsys.readouterr().err and ready.exists()


def test_who_comes_while_the_former_one_stops_waits_for_its_port(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As it does for the checkpoint: a job that is started anew would have ended at once."""
    ready = tmp_path / "ready.json"
    ready.touch()
    with socket.create_server(("127.0.0.1", 0)) as former:
        address = former.getsockname()
        waits = list[float]()

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 2:
                former.close()

        monkeypatch.setattr("weir.foreground.time.sleep", sleep)
        forget_ready_file(ready, address, 30)
    assert len(waits) == 2 and not ready.exists()
    with pytest.raises(WeirError, match="cannot listen"):
        forget_ready_file(ready, ("192.0.2.1", 9), 30)
    assert len(waits) == 2


@pytest.mark.parametrize("rule, kept", [("SCHED_OTHER", "SCHED_BATCH"), ("SCHED_IDLE", "SCHED_IDLE")])
def test_a_proxy_wakes_after_others_unless_it_was_started_otherwise(rule: str, kept: str) -> None:
    """A process of its own: nobody may go back from SCHED_IDLE."""
    script = (
        "import os; from weir.foreground import wake_after_others\n"
        f"os.sched_setscheduler(0, os.{rule}, os.sched_param(0)); wake_after_others()\n"
        f"assert os.sched_getscheduler(0) == os.{kept}"
    )
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)
