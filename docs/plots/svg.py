"""Lines and bars as small SVG files by hand: no plotting library for a few pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import log10

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 40, 44
NAMES, ROW = 280, 26
# Colours that stand out on white and on near-black alike; text and lines follow the reader's theme.
COLOURS = ("#2f81f7", "#e8590c", "#2ea043", "#a371f7", "#bf8700")
_STYLE = (
    "text{font:12px sans-serif;fill:#333}.t{font-size:14px;font-weight:600}.g{stroke:#ccc;stroke-width:.7}"
    ".a{stroke:#555;fill:none}.l{fill:none;stroke-width:2;stroke-linejoin:round}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.g{stroke:#444}.a{stroke:#aaa}}"
)
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve.

    Attributes:
        name: shown in the legend.
        points: (x, y), x ascending.
        dashed: a bound or a comparison rather than our law.
    """

    name: str
    points: Points
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot with both axes from 0, or the first one logarithmic.

    Attributes:
        title: one line above.
        x_label, y_label: what the axes say, with units.
        x_ticks, y_ticks: labelled values, ascending; the last one is the end of the axis.
        lines: curves; a colour each.
        legend: place (x, y) of the legend's first line, in units of the axes.
        log_x: the first axis is logarithmic; its ticks, and all x, are greater than 0.
    """

    title: str
    x_label: str
    y_label: str
    x_ticks: Sequence[float]
    y_ticks: Sequence[float]
    lines: Sequence[Line]
    legend: tuple[float, float]
    log_x: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: its name and how long it is, at least 0."""

    name: str
    value: float


def steps(values: Sequence[float], x: Sequence[float] | None = None) -> Points:
    """Values that hold for one unit of x each, as the corners of a staircase."""
    starts = range(len(values)) if x is None else x
    return [
        corner for start, y in zip(starts, values, strict=True) for corner in ((start, y), (start + 1, y))
    ]


def draw(plot: Plot) -> str:
    """The SVG of a plot."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(plot.title)}</title><style>{_STYLE}</style>",
        f'<text class="t" x="{LEFT}" y="22">{escape(plot.title)}</text>',
        *_axes(plot),
    ]
    for number, line in enumerate(plot.lines):
        corners = " ".join(f"{_x(plot, x):.1f},{_y(plot, y):.1f}" for x, y in line.points)
        parts.append(f'<polyline class="l" {_stroke(number, line)} points="{corners}"/>')
        x, y = _x(plot, plot.legend[0]), _y(plot, plot.legend[1]) + 18 * number
        parts.append(f'<path class="l" {_stroke(number, line)} d="M{x:.1f} {y:.1f}h26"/>')
        parts.append(f'<text x="{x + 34:.1f}" y="{y + 4:.1f}">{escape(line.name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def bars(title: str, rows: Sequence[Bar]) -> str:
    """The SVG of bars that lie, one below the other, each with its number."""
    height = TOP + ROW * len(rows) + 8
    longest = max(row.value for row in rows) or 1.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<text class="t" x="16" y="22">{escape(title)}</text>',
    ]
    for number, row in enumerate(rows):
        top, long = TOP + ROW * number, row.value / longest * (WIDTH - NAMES - 72)
        parts.append(f'<text x="{NAMES - 8}" y="{top + 15}" text-anchor="end">{escape(row.name)}</text>')
        parts.append(
            f'<rect x="{NAMES}" y="{top + 2}" width="{long:.1f}" height="{ROW - 8}" fill="{COLOURS[0]}"/>'
        )
        parts.append(f'<text x="{NAMES + long + 8:.1f}" y="{top + 15}">{row.value:.3g}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _axes(plot: Plot) -> list[str]:
    left, right, low, high = LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM, TOP
    parts = []
    for value in plot.x_ticks:
        at = f"{_x(plot, value):.1f}"
        parts.append(f'<path class="g" d="M{at} {low}V{high}"/>')
        parts.append(f'<text x="{at}" y="{low + 16}" text-anchor="middle">{value:g}</text>')
    for value in plot.y_ticks:
        level = _y(plot, value)
        parts.append(f'<path class="g" d="M{left} {level:.1f}H{right}"/>')
        parts.append(f'<text x="{left - 6}" y="{level + 4:.1f}" text-anchor="end">{value:g}</text>')
    middle = (low + high) / 2
    parts.append(f'<path class="a" d="M{left} {high}V{low}H{right}"/>')
    parts.append(
        f'<text x="{(left + right) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{plot.x_label}</text>'
    )
    turned = f'transform="rotate(-90 14 {middle})" text-anchor="middle"'
    parts.append(f'<text x="14" y="{middle}" {turned}>{escape(plot.y_label)}</text>')
    return parts


def _stroke(number: int, line: Line) -> str:
    dashes = ' stroke-dasharray="6 4"' if line.dashed else ""
    return f'stroke="{COLOURS[number % len(COLOURS)]}"{dashes}'


def _x(plot: Plot, value: float) -> float:
    first, last = plot.x_ticks[0], plot.x_ticks[-1]
    if plot.log_x:
        value, first, last = log10(value), log10(first), log10(last)
    return LEFT + (value - first) / (last - first) * (WIDTH - LEFT - RIGHT)


def _y(plot: Plot, value: float) -> float:
    first, last = plot.y_ticks[0], plot.y_ticks[-1]
    return HEIGHT - BOTTOM - (value - first) / (last - first) * (HEIGHT - TOP - BOTTOM)
