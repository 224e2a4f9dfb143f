"""docs/security.md: each attack in its tables names the tests that hold it off, and they are there."""

import ast
import re
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"


def cells(line: str) -> list[str]:
    """Those of a table's line."""
    return [cell.strip() for cell in line.strip("|\n").split("|")]


def has_tests(path: Path) -> bool:
    """Whether this is a file with tests in it."""
    return path.is_file() and any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        for node in ast.parse(path.read_text()).body
    )


def test_every_attack_names_its_tests() -> None:
    """The last column holds paths below tests/, of files with tests, and nothing else."""
    page = (ROOT / "docs" / "security.md").read_text().splitlines()
    tables = [list(lines) for table, lines in groupby(page, lambda line: line.startswith("|")) if table]
    wrong, rows = [], 0
    for header, _, *attacks in tables:
        assert (cells(header)[0], cells(header)[-1]) == ("Attack", "Test")
        for row in map(cells, attacks):
            rows += 1
            named = re.findall(r"`([^`]+)`", row[-1])
            whole = len(row) == len(cells(header)) and ", ".join(f"`{name}`" for name in named) == row[-1]
            if not (named and whole and all(has_tests(TESTS / name) for name in named)):
                wrong.append(row)
    assert wrong == [] and rows > 70
