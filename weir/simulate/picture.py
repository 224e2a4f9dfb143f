"""Runs drawn side by side: a column for each algorithm, a row for each quantity."""

from pathlib import Path
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from streaming.log.writing import whole
from weir.paths import named
from weir.simulate.figures import title

ROWS: Final = {
    "limit": ("limit", "log"),
    "inflight": ("in flight", "linear"),
    "latency_ms": ("latency, ms", "log"),
    "rejected": ("rejected/s", "linear"),
}
"""Series -> its label, and its axis; an axis is the same for all algorithms."""
COLOURS: Final = {True: "#2f81f7", False: "#e8590c"}
_NAMES: Final = {True: "windowed", False: "each sample at once"}
_WIDTH, _HEIGHT, _MARGIN = 2.6, 1.9, 0.8
"""Inches of one plot, and of title and legend together."""
_DPI: Final = 110


def write(path: Path, result: dict[str, Any]) -> None:
    """Draw the result of `figures` as a PNG; raises WeirError if the file cannot be written."""
    with rc_context({"font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 9}):
        drawn = draw(result)
        with named(path, "written"), whole(str(path)) as draft:
            # Without what names the library's version, so that equal figures are equal bytes.
            drawn.savefig(draft, format="png", dpi=_DPI, metadata={"Software": None})


def draw(result: dict[str, Any]) -> Figure:
    """The figure: lines are runs, and the slow time is shaded."""
    columns: dict[str, list[dict[str, Any]]] = {}
    for run in result["runs"]:
        columns.setdefault(title(run), []).append(run)
    size = (max(2, len(columns)) * _WIDTH, len(ROWS) * _HEIGHT + _MARGIN)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(ROWS), len(columns), squeeze=False, sharex=True, sharey="row")
    for line, (series, (label, scale)) in enumerate(ROWS.items()):
        for axes, (name, runs) in zip(grid[line], columns.items(), strict=True):
            _fill(axes, runs, series, result["phases"])
            if line == 0:
                axes.set_title(name)
            if line == len(ROWS) - 1:
                axes.set_xlabel("seconds")
        grid[line][0].set_ylabel(label)
        grid[line][0].set_yscale(scale)
        if scale == "linear":
            grid[line][0].set_ylim(bottom=0)
    figure.suptitle(_heading(result["scenario"]))
    shown = {line.get_label(): line for axes in grid[0] for line in axes.lines}
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def _fill(axes: Axes, runs: list[dict[str, Any]], series: str, phases: dict[str, list[int]]) -> None:
    if "slow" in phases:
        axes.axvspan(*phases["slow"], color="#eee", zorder=0)
    for run in runs:
        # What is known of a second is drawn at its end; where nothing was completed there is a gap.
        points = [float("nan") if value is None else value for value in run["series"][series]]
        windowed = run["windowed"]
        axes.plot(range(1, len(points) + 1), points, label=_NAMES[windowed], color=COLOURS[windowed], lw=1.1)
    axes.margins(x=0)
    axes.grid(color="#ddd", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)


def _heading(scenario: dict[str, Any]) -> str:
    asked = f"{scenario['arrival_rate']:g} requests/s"
    if scenario["clients"] is not None:
        asked = f"{scenario['clients']} clients"
    before = f", {scenario['proxies']} proxies" if scenario["proxies"] > 1 else ""
    return (
        f"{asked}{before}, a broker of {scenario['service_rate']:g}/s;"
        f" {scenario['slow_factor']:g} times slower while the ground is grey"
    )
