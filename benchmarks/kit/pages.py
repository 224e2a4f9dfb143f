"""Puts what was measured into README.md and docs/performance.md, between marks, and has the plots drawn."""

import importlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.kit.result import about, markdown, number, read, tables
from benchmarks.kit.runner import known
from streaming.contract.errors import WeirError
from weir.stack.jars import ROOT

README: Final = "README.md"
PERFORMANCE: Final = "docs/performance.md"
PLOTS: Final = "docs/plots"
_DRAW: Final = f"{PLOTS}/plot_benchmarks.py"
_DRAW_LIMIT_S: Final = 60.0
_SUMMARY, _LIST = "all", "list"
_NOTHING: Final = "Not measured yet; `make bench` does it."

Line = Mapping[str, Any]


def update(root: Path = ROOT) -> None:
    """Draw the plots and rewrite both pages from the results that are kept.

    Raises:
        WeirError: a page has lost a mark, or the plots cannot be drawn.
    """
    command = [sys.executable, str(root / _DRAW)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DRAW_LIMIT_S, check=False)
    if done.returncode:
        raise WeirError(f"the plots were not drawn: {done.stderr.strip().splitlines()[-1:]}")
    for page in (README, PERFORMANCE):
        file = root / page
        file.write_text(filled(file.read_text(), blocks(root)))


def blocks(root: Path = ROOT) -> dict[str, str]:
    """What stands between the marks, by the name in them: `all`, `list`, and the measured ones."""
    lines = read(root / "benchmarks" / "results")
    plots = {path.stem for path in (root / PLOTS).glob("*.svg")}
    own = {name: _block(line, f"bench-{name}" in plots) for name, line in lines.items()}
    return {_SUMMARY: summary(lines), _LIST: contents(), **own}


def filled(page: str, contents: Mapping[str, str]) -> str:
    """A page with the text between its marks replaced.

    A block is `<!-- bench NAME -->`, text, `<!-- end NAME -->`; one of a benchmark without results says so.

    Raises:
        WeirError: a beginning without an end.
    """
    parts = page.split("<!-- bench ")
    done = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition(" -->")
        end = f"<!-- end {name} -->"
        if end not in rest:
            raise WeirError(f"the block {name} has lost its end, {end}")
        after = rest.partition(end)[2]
        done.append(f"<!-- bench {name} -->\n{contents.get(name, _NOTHING)}\n{end}{after}")
    return "".join(done)


def contents() -> str:
    """Every benchmark there is with its stated duration, as a table."""
    modules = {name: importlib.import_module(f"benchmarks.{name}") for name in known()}
    total_s = sum(module.DURATION_S for module in modules.values())
    return markdown(
        {
            "Benchmark": [*(f"`{name}`" for name in modules), "all"],
            "What it measures": [*(module.TITLE for module in modules.values()), ""],
            "Takes about": [
                *(f"{module.DURATION_S} s" for module in modules.values()), f"{total_s / 60:.0f} min",
            ],
        }
    )  # fmt: skip


def summary(lines: Mapping[str, Line]) -> str:
    """Every number that was aimed at, as one table, and where it was measured."""
    rows = [row for line in lines.values() for row in line["rows"] if row["target"]]
    if not rows:
        return _NOTHING
    table = markdown(
        {
            "What": [row["what"] for row in rows],
            "Measured": [_measured(row) for row in rows],
            "Target": [row["target"] for row in rows],
            "Met": ["" if row["met"] is None else "yes" if row["met"] else "no" for row in rows],
        }
    )
    newest = max(lines.values(), key=lambda line: str(line["date"]))
    return f"{table}\n\nMeasured {about(newest)}"


def _measured(row: Mapping[str, Any]) -> str:
    own = f"{number(row['value'])} {row['unit']}".strip()
    if row["ratio"] is None:
        return own
    beside = number(row["baseline"])
    return f"{own}, {number(row['ratio'])} x {beside} ({row['baseline_what']})"


def _block(line: Line, has_plot: bool) -> str:
    parts = [about(line), *tables(line)]
    if has_plot:
        parts.insert(2, f"![{line['title']}](plots/bench-{line['name']}.svg)")
    return "\n\n".join(parts)
