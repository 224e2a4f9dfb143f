"""The benchmarks in their short form: that they work on real parts, never how fast anything is."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.kit.result import read
from benchmarks.kit.runner import SMOKE_LIMIT_S, known

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.soak
def test_the_benchmarks_work(tmp_path: Path) -> None:
    """Each ends by itself with a table and numbers, and changes nothing that is kept."""
    command = [sys.executable, "-m", "benchmarks", "--smoke", "--keep", str(tmp_path)]
    before = {file: file.read_bytes() for file in (ROOT / "benchmarks").glob("results/*")}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=len(known()) * SMOKE_LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = read(tmp_path)
    assert list(found) == known()
    for line in found.values():
        assert line["smoke"] is True and f"# {line['title']}" in done.stdout
        assert line["rows"] and all(math.isfinite(row["value"]) for row in line["rows"])
    assert before == {file: file.read_bytes() for file in (ROOT / "benchmarks").glob("results/*")}
