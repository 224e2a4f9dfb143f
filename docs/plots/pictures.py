"""Plots as SVG files: what is the same is drawn as the same bytes, so that a test can tell an old one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 6.6, 3.6
ROW = 0.36
"""Inches of a picture, of one plot in it, and of one bar."""
_COLOURS = ("#2f81f7", "#e8590c", "#2ea043", "#a371f7", "#bf8700")
_DASHES = (0, (5, 5))
"""Wide enough apart to see a curve that lies below."""
_STYLE = {
    # Ids of parts are made from this, not drawn at random; text stays text, in whatever font the reader has.
    "svg.hashsalt": "weir",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a plot.

    Attributes:
        name: what the legend says.
        points: (x, y), by x.
        dashed: something to compare with.
    """

    name: str
    points: Points
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """What is to be drawn.

    Attributes:
        title: above it.
        x_label, y_label: what the axes show, with units.
        curves: in the order of the legend.
        below: the same under another condition, in the same picture.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    below: "Plot | None" = None


def draw(plot: Plot, *, log_x: bool = False, log_y: bool = False) -> str:
    """The SVG of a plot and those below it; axes from 0, or logarithmic."""
    return svg(lines(plot, log_x=log_x, log_y=log_y), plot.title)


@rc_context(_STYLE)
def lines(plot: Plot, *, log_x: bool = False, log_y: bool = False) -> Figure:
    """The figure of a plot and those below it, laid out.

    The legend stands below the axes, where no curve is.
    """
    plots = [plot]
    while plots[-1].below is not None:
        plots.append(plots[-1].below)
    figure = Figure(figsize=(WIDTH, HEIGHT * len(plots)), layout="constrained")
    for axes, each in zip(figure.subplots(len(plots), squeeze=False).flat, plots, strict=True):
        _fill(axes, each, log_x, log_y)
    figure.draw_without_rendering()
    return figure


def _fill(axes: Axes, plot: Plot, log_x: bool, log_y: bool) -> None:
    for number, curve in enumerate(plot.curves):
        x, y = zip(*curve.points, strict=True)
        colour, dashes = _COLOURS[number % len(_COLOURS)], _DASHES if curve.dashed else "-"
        axes.plot(x, y, label=curve.name, color=colour, linestyle=dashes)
    if log_x:
        axes.set_xscale("log")
    axes.margins(x=0)
    axes.set_xlim(left=None if log_x else 0)
    if log_y:
        axes.set_yscale("log")
        axes.minorticks_off()
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(color="#ccc", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(title=plot.title, xlabel=plot.x_label, ylabel=plot.y_label)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.19), ncols=2, frameon=False)


@rc_context(_STYLE)
def bars(title: str, values: Mapping[str, float]) -> str:
    """The SVG of bars that lie, one below the other, each with its number."""
    figure = Figure(figsize=(WIDTH, ROW * (len(values) + 1.5)), layout="constrained")
    axes = figure.subplots()
    drawn = axes.barh(list(values), list(values.values()), color=_COLOURS[0], height=0.7)
    axes.bar_label(drawn, fmt="{:.3g}", padding=4)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set(title=title, xticks=[])
    return svg(figure, title)


@rc_context(_STYLE)
def svg(figure: Figure, title: str) -> str:
    """A figure as text."""
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Title": title, "Date": None, "Creator": None})
    # matplotlib leaves blanks at ends of lines.
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())
