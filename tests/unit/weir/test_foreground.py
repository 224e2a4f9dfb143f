"""The folder that a stack keeps its data in."""

import stat
from pathlib import Path

import pytest

from weir.foreground import private_folder

KEPT = ("kafka", "up.lock")


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
