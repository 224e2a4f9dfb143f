"""What a run of the soak comes to (tests/soak)."""

import importlib.util
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import soak_rig
from soak_history import Recorder
from soak_schedule import Fault


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, with no limits changed."""
    file = Path(soak_rig.__file__).with_name("__main__.py")
    spec = importlib.util.spec_from_file_location("soak_main", file)
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    monkeypatch.setattr(program.signal, "signal", lambda *_: None)
    monkeypatch.setattr(program.resource, "setrlimit", lambda *_: None)
    return program


@pytest.mark.parametrize("status", [0, 1])
def test_what_passes_is_not_made_smaller(
    soak: ModuleType, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """All of it runs once first."""
    runs: list[int] = []

    def once(seed: int, seconds: float, faults: list[Fault]) -> int:
        runs.append(len(faults))
        return status

    monkeypatch.setattr(soak, "once", once)
    monkeypatch.setattr(sys, "argv", ["soak", "--minutes", "10", "--seed", "3", "--shrink", "1"])
    assert soak.main() == status
    assert runs[0] == len(soak.schedule(3, 600))
    assert (len(runs) > 1) == bool(status)


@pytest.mark.parametrize("error", [OSError, AssertionError])
def test_a_prometheus_that_says_nothing_ends_no_run(
    soak: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: type[Exception]
) -> None:
    """All else is judged."""

    class Silent(AbstractContextManager[Any]):
        def __init__(self, *_: object) -> None:
            """See Prometheus."""

        def __exit__(self, *_: object) -> None:
            """See Prometheus."""

        def ask_range(self, *_: object) -> Any:
            raise error("?")

    for name in ("limits", "targets"):
        monkeypatch.setattr(soak, name, lambda *_: {})
    monkeypatch.setattr(soak, "clients", lambda *_: [])
    monkeypatch.setattr(soak, "Prometheus", Silent)
    rig = SimpleNamespace(small_disk=True, metrics={}, start=lambda: None)
    with Recorder(tmp_path / "h") as told:
        soak.run(rig, told, tmp_path, 1, 0.0, [])


def test_a_history_that_is_not_there_is_said(
    soak: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was a traceback."""
    monkeypatch.setattr(sys, "argv", ["soak", "--check", str(tmp_path)])
    with pytest.raises(SystemExit):
        soak.main()
    assert f"there is no {tmp_path / 'history.jsonl'}" in capsys.readouterr().err
