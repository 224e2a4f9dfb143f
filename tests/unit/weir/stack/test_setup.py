"""What set-up runs beside itself."""

import tempfile
from pathlib import Path
from typing import Any

import pytest

from streaming.columns.compiled import _say_that_none_is_kept, compiled
from streaming.contract.errors import WeirError
from streaming.job import operator
from weir.jars.wait import Wait
from weir.stack import setup


def test_laws_that_no_folder_keeps_are_not_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start would compile them anew, half a minute long."""
    names: dict[str, Any] = {}
    # Of no file: Numba finds no folder for it.
    exec("def same(number): return number", names)
    monkeypatch.setattr(operator, "warm_up", lambda: compiled(names["same"]))
    _say_that_none_is_kept.cache_clear()
    with pytest.raises(SystemExit, match="True"):
        exec(setup.COMPILE)
    monkeypatch.setattr(operator, "warm_up", _say_that_none_is_kept.cache_clear)
    with pytest.raises(SystemExit, match="False"):
        exec(setup.COMPILE)


def test_set_up_that_is_stopped_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it runs is killed: a broker's folder stayed in /tmp."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    code = "import tempfile, time; tempfile.mkdtemp(prefix='made-'); time.sleep(60)"
    wait = Wait("it", lambda _: None, lambda: any(tmp_path.rglob("made-*")), "archiving")
    with pytest.raises(WeirError, match="stopped while archiving it"):
        setup._run(["-c", code], wait, 30.0)
    assert not [*tmp_path.iterdir()]
