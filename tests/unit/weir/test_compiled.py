"""When what is compiled of the proxy is loaded, and when its sources are."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from weir import compiled

SOURCE = "enforcer/kafka/made_up.py"
NAME = "enforcer.kafka.made_up"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of one source, whose compiled form lies where it is looked for."""
    monkeypatch.setattr(compiled, "ROOT", tmp_path)
    monkeypatch.setattr(compiled, "_BASE", tmp_path / ".weir" / "compiled")
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / SOURCE))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delenv(compiled.OFF, raising=False)
    (tmp_path / SOURCE).parent.mkdir(parents=True)
    (tmp_path / SOURCE).write_text("ONE = 1\n")
    made = compiled.folder() / f"enforcer/kafka/made_up{compiled._SUFFIX}"
    made.parent.mkdir(parents=True)
    made.touch()
    return tmp_path


def test_what_is_compiled_is_found(root: Path) -> None:
    """In its own folder, not beside the source."""
    compiled.use()
    assert compiled.in_use()
    spec = find_spec(NAME)
    assert spec is not None and spec.origin is not None
    assert Path(spec.origin).is_relative_to(compiled.folder())


@pytest.mark.parametrize("name", ["made_up.py", "another.py"])
def test_after_a_change_sources_run(root: Path, name: str) -> None:
    """Of any source: compiled modules hold constants and forms of others."""
    (root / SOURCE).with_name(name).write_text("ONE = 2\n")
    compiled.use()
    assert not compiled.in_use()


def test_it_can_be_switched_off(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an environment variable."""
    monkeypatch.setenv(compiled.OFF, "1")
    compiled.use()
    assert not compiled.in_use()


def test_nothing_is_mixed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a source has been loaded, all of them are."""
    monkeypatch.setitem(sys.modules, NAME, sys)
    compiled.use()
    assert not compiled.in_use()


def test_without_a_compiler_it_says_so(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and nothing fails."""
    monkeypatch.setenv("PATH", "")
    assert compiled.main([]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert "C compiler" in line


def test_all_modules_are_there() -> None:
    """None is named that has moved."""
    assert [name for name in compiled.MODULES if find_spec(name) is None] == []


def test_an_edit_during_the_work_is_not_hidden(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was compiled then belongs to neither form of the source."""
    (root / SOURCE).write_text("ONE = 2\n")
    place = compiled.folder()

    def compile_slowly(command: list[str], **_: object) -> None:
        Path(command[3], "made").mkdir()
        (root / SOURCE).write_text("ONE = 3\n")

    monkeypatch.setattr("subprocess.run", compile_slowly)
    with pytest.raises(OSError, match="changed meanwhile"):
        compiled.compile_all()
    assert not place.exists()
