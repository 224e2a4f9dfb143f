"""docs/security.md and docs/failures.md: each attack and failure names its tests, and they are there.

So do the settings and metrics that a failure's row names.
"""

import ast
import re
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def cells(line: str) -> list[str]:
    """Those of a table's line."""
    return [cell.strip() for cell in line.strip("|\n").split("|")]


def tables(page: str) -> list[list[list[str]]]:
    """A page's tables, each its rows, the header first."""
    lines = (ROOT / "docs" / page).read_text().splitlines()
    found = [list(group) for table, group in groupby(lines, lambda line: line.startswith("|")) if table]
    return [[cells(header), *map(cells, rows)] for header, _, *rows in found]


@cache
def has_tests(path: Path) -> bool:
    """Whether this is a file with tests in it."""
    return path.is_file() and any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        for node in ast.parse(path.read_text()).body
    )


@pytest.mark.parametrize(("page", "least"), [("security.md", 70), ("failures.md", 90)])
def test_every_row_names_its_tests(page: str, least: int) -> None:
    """The last column holds paths below tests/, of files with tests, and nothing else."""
    wrong, rows = [], 0
    for header, *body in tables(page):
        assert header[-1] == "Test"
        for row in body:
            rows += 1
            named = re.findall(r"`([^`]+)`", row[-1])
            whole = len(row) == len(header) and ", ".join(f"`{name}`" for name in named) == row[-1]
            if not (named and whole and all(has_tests(ROOT / "tests" / name) for name in named)):
                wrong.append(row)
    assert wrong == [] and rows > least


def test_settings_and_metrics_of_open_or_closed() -> None:
    """Each row's setting is in conf/weir.yaml, and its metric in docs/metrics.md."""
    settings = yaml.safe_load((ROOT / "conf" / "weir.yaml").read_text())
    metrics = (ROOT / "docs" / "metrics.md").read_text()
    header, *rows = next(table for table in tables("failures.md") if table[0][0] == "Limit")
    for row in rows:
        told = dict(zip(header, row, strict=True))
        for setting in re.findall(r"`([^`]+)`", told["Setting"]):
            section, key = setting.split(".")
            assert key in settings[section], setting
        assert told["Metric"].strip("`") and f"| {told['Metric']} |" in metrics, told
