"""Workers of `weir proxy`, without proxies."""

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weir.stack import workers
from weir.stack.parts import Change


class Stubborn:
    """A worker that is asked to stop twice as it starts, and ends only when it is killed."""

    def __init__(self) -> None:
        self.ready = None
        self.child = SimpleNamespace(pid=7, terminate=lambda: None, wait=lambda limit_s: True)
        self.kills = 0

    def start(self) -> None:
        """Two signals come."""
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)

    def look(self) -> Change:
        """Nothing has changed."""
        return Change.NONE

    def kill(self) -> None:
        """See Part."""
        self.kills += 1


def test_a_second_signal_kills_them_and_leaves_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of each such end one stayed in /tmp."""
    made: list[Stubborn] = []

    def make(*_: Any, **__: Any) -> Stubborn:
        made.append(Stubborn())
        return made[-1]

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("os._exit", lambda status: pytest.fail("nothing is cleaned up"))
    monkeypatch.setattr(workers, "Part", make)
    with pytest.raises(SystemExit) as ended:
        workers.run_workers(
            2, [], ("127.0.0.1", 0), lambda _: None,
            metrics=None, proxy_id="p", ready_file=None, stop_s=1,
        )  # fmt: skip
    assert ended.value.code == 1 and all(one.kills for one in made) and not [*tmp_path.iterdir()]
