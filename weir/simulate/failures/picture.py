"""Failures drawn: a plot for each law, with what was too much, its bound, and what was missed."""

from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from streaming.log.writing import write_lines
from weir.simulate.failures.figures import number

OVER, MISSED = "#e8590c", "#2f81f7"
_STYLE: Final[Any] = {
    # Ids of parts are made from this, not drawn at random; text stays text.
    "svg.hashsalt": "weir", "svg.fonttype": "none", "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"], "font.size": 9,
}  # fmt: skip
_WIDTH, _ROW, _MARGIN = 9.0, 0.24, 0.75
"""Inches of the picture, of a scenario in a plot, and around each plot."""


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Draw the result of `figures`; raises WeirError if the file cannot be written."""
    write_lines(str(path), draw(result).encode().splitlines())


def draw(result: Mapping[str, Any]) -> str:
    """The SVG; equal figures are equal bytes."""
    rows: dict[str, list[Any]] = {}
    for row in result["rows"]:
        rows.setdefault(row["law"], []).append(row)
    heights = [_ROW * len(own) + _MARGIN for own in rows.values()]
    with rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, sum(heights)), layout="constrained")
        grid = figure.subplots(len(rows), 2, squeeze=False, height_ratios=heights)
        for (over, missed), (law, own) in zip(grid, rows.items(), strict=True):
            titles = [result["titles"][row["scenario"]] for row in own]
            _bars(over, own, titles, "over_percent", OVER)
            _bars(missed, own, titles, "missed_percent", MISSED)
            over.set_title(f"{law}: beyond the limit, %", loc="left", fontweight="bold")
            missed.set_title("missed, %", loc="left", fontweight="bold")
            missed.set_yticklabels([])
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Title": "Failures", "Date": None, "Creator": None})
    # matplotlib leaves blanks at ends of lines.
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def _bars(axes: Axes, rows: list[Any], titles: list[str], value: str, colour: str) -> None:
    drawn = axes.barh(titles, [row[value] or 0.0 for row in rows], color=colour, height=0.7)
    axes.bar_label(drawn, [_said(row, value) for row in rows], padding=4, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.3)
    axes.set_xlim(left=0)
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def _said(row: Mapping[str, Any], value: str) -> str:
    if row["why"] is not None:
        return str(row["verdict"])
    if value != "over_percent":
        return f"{row[value]:.1f}"
    bound = "no bound" if row["bound"] is None else f"bound {number(row['bound'])}"
    exceeded = "" if row["exceeded_by"] is None else ", exceeded"
    percent = "-" if row[value] is None else f"{row[value]:.1f}"
    return f"{percent} ({number(row['over'])}; {bound}{exceeded})"
