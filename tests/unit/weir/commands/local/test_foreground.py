"""A local broker in the foreground: what is said of it, and how it ends."""

import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streaming.contract.errors import WeirError
from weir.commands.local.foreground import serve


class FakeChild:
    """A process that lives until it is told otherwise."""

    name = "pulsar"

    def __init__(self) -> None:
        self.lives = True
        self.killed = threading.Event()

    def alive(self) -> bool:
        """Whether it lives."""
        return self.lives

    def kill(self) -> None:
        """Noted."""
        self.killed.set()

    def last_lines(self, count: int) -> list[str]:
        """Of its log."""
        return ["out of", "memory"]


class FakeBroker:
    """What is to be served."""

    name, pids = "Pulsar", (7,)

    def __init__(self, folder: Path, then: Callable[["FakeBroker"], None]) -> None:
        self.data_dir = folder
        self.child = FakeChild()
        self.children: list[Any] = [self.child]
        self.stopped = False
        self._then = then

    def start(self, *, stopping: Callable[[], bool]) -> None:
        """Ready at once."""
        self._then(self)
        if stopping():
            raise WeirError("stopped while it was starting")

    def kill(self) -> None:
        """Passed on."""
        self.child.kill()

    def stop(self) -> None:
        """Noted."""
        self.stopped = True


def interrupt() -> None:
    """As Ctrl-C does."""
    os.kill(os.getpid(), signal.SIGINT)


def run(broker: FakeBroker, ready_file: Path, port: int = 0, **others: Any) -> int:
    """Serve it in the main thread."""
    described = {"pulsar": "h:1"}
    return serve(broker, ("pulsar",), ("127.0.0.1", port), ready_file, "h:1", described, **others)


def test_it_says_where_it_is_and_stops_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, the ready file, and status 0 after Ctrl-C."""
    broker = FakeBroker(tmp_path / "data", lambda broker: threading.Timer(0.3, interrupt).start())
    assert run(broker, tmp_path / "ready.json") == 0
    assert broker.stopped
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "pulsar is ready on h:1; Ctrl-C stops it"
    assert json.loads((tmp_path / "ready.json").read_text()) == {"pulsar": "h:1", "pid": 7}
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_one_that_ends_by_itself_is_a_failure(tmp_path: Path) -> None:
    """With the end of its log."""

    def die(broker: FakeBroker) -> None:
        broker.child.lives = False

    broker = FakeBroker(tmp_path / "data", die)
    with pytest.raises(WeirError, match=r"pulsar ended: out of \| memory"):
        run(broker, tmp_path / "ready.json")
    assert broker.stopped


def test_a_stop_while_it_starts_is_no_failure(tmp_path: Path) -> None:
    """Nor while what it needs is fetched; a second signal kills it."""
    broker = FakeBroker(tmp_path / "data", lambda broker: interrupt())
    assert run(broker, tmp_path / "ready.json") == 0
    assert broker.stopped and not (tmp_path / "ready.json").exists()

    def fetch(say: Callable[[str], None], stopping: Callable[[], bool]) -> None:
        interrupt()
        interrupt()
        assert stopping()
        raise WeirError("stopped while jars were fetched")

    broker = FakeBroker(tmp_path / "data", lambda broker: pytest.fail("it must not start"))
    assert run(broker, tmp_path / "ready.json", prepare=fetch) == 0
    assert broker.child.killed.is_set()


def test_what_cannot_be_fetched_is_a_failure(tmp_path: Path) -> None:
    """Nothing was started."""

    def fetch(say: Callable[[str], None], stopping: Callable[[], bool]) -> None:
        raise WeirError("no jars")

    broker = FakeBroker(tmp_path / "data", lambda broker: pytest.fail("it must not start"))
    with pytest.raises(WeirError, match="no jars"):
        run(broker, tmp_path / "ready.json", prepare=fetch)


def test_a_folder_of_somebody_else_is_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the user is told that others may read there."""
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    (data / "letters").touch()
    run(FakeBroker(data, lambda broker: interrupt()), tmp_path / "ready.json")
    assert f"weir: {data} has mode 0755" in capsys.readouterr().err
    assert data.stat().st_mode & 0o777 == 0o755


def test_a_second_one_leaves_the_ready_file_of_the_first(tmp_path: Path) -> None:
    """The same words typed twice: it is refused the port, and the first one is watched by that file."""
    broker = FakeBroker(tmp_path / "data", lambda broker: pytest.fail("it must not start"))
    ready = tmp_path / "ready.json"
    ready.touch()
    with socket.create_server(("127.0.0.1", 0)) as first, pytest.raises(WeirError, match="cannot listen on"):
        run(broker, ready, first.getsockname()[1])
    assert ready.exists()
