"""The picture of all runs."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from streaming.contract.errors import WeirError
from weir.simulate.figures import contender, contenders, figures
from weir.simulate.picture import ROWS, draw, write
from weir.simulate.scenario import Scenario

SHORT = Scenario(seconds=3, slow_at=1, slow_for=1)


def test_runs_stand_side_by_side() -> None:
    """A column for each algorithm and the partition, a row for each quantity, a line for each run."""
    drawn = draw(figures(SHORT, [*contenders(), contender({}, "broker-1")]))
    assert len(drawn.axes) == 7 * len(ROWS)
    titles = [axes.get_title() for axes in drawn.axes[:7]]
    assert titles == ["aimd", "aimd-plain", "fixed", "vegas", "gradient", "gradient2", "broker-1: aimd"]
    assert [len(axes.lines) for axes in drawn.axes[:7]] == [2, 2, 1, 2, 2, 2, 1]


def test_the_same_figures_are_the_same_bytes(tmp_path: Path) -> None:
    """A PNG without a date."""
    result = figures(SHORT, [contender({})])
    for name in ("a.png", "b.png"):
        write(tmp_path / name, result)
    first, second = ((tmp_path / name).read_bytes() for name in ("a.png", "b.png"))
    assert first == second and first.startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """With the reason."""
    with pytest.raises(WeirError, match="No such file"):
        write(tmp_path / "nowhere" / "a.png", figures(SHORT, [contender({})]))


def test_a_full_disk_leaves_the_picture_that_was_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Half of another one lay there."""

    def full(drawn: Figure, file: str, **_: Any) -> None:
        Path(file).write_bytes(b"\x89PNG, half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out = tmp_path / "a.png"
    out.write_bytes(b"before")
    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(WeirError, match="No space left"):
        write(out, figures(SHORT, [contender({})]))
    assert out.read_bytes() == b"before" and [*tmp_path.iterdir()] == [out]
