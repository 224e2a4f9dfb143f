"""Lines of a dump in order, however many."""

import random
import tempfile
from pathlib import Path

import pytest

from weir.logs import dump
from weir.logs.dump import SortedLines
from weir.logs.dump_lines import Line


@pytest.mark.parametrize("run_bytes", [1, 3000, 10**9])
def test_they_come_in_order_from_memory_and_from_files(
    monkeypatch: pytest.MonkeyPatch, run_bytes: int, tmp_path: Path
) -> None:
    """By time, rank, turn and arrival; one run, some, or one a line, of which few are open at a time."""
    monkeypatch.setattr(dump, "RUN_BYTES", run_bytes)
    monkeypatch.setattr(dump, "RUNS_MAX", 7)
    draw = random.Random(1)
    given = [Line(draw.randrange(5), 1, draw.randrange(3), "t", 0, offset, -1, b"x") for offset in range(40)]
    draw.shuffle(given)
    # Beside the dump: in the folder for temporary files, memory in many places, was no room.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with SortedLines(str(tmp_path)) as lines:
        for line in given:
            lines.add(line)
        assert list(lines) == sorted(given)
        assert len(lines._runs) + len(lines._merged) <= 11
