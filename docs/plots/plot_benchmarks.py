"""Draw docs/plots/bench-*.svg from benchmarks/results: `.venv/bin/python docs/plots/plot_benchmarks.py`."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mode
from typing import Any

import orjson
from pictures import Curve, Plot, bars, draw

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "benchmarks" / "results"
PREFIX = "bench-"
WHERE = "where it goes: "
_LAST_PERCENT = 99.5
_FAR_APART = 50.0
"""Medians: so many times as large as the least one is too far for one axis from 0."""


def pictures(results: Path = RESULTS) -> Iterator[tuple[str, str]]:
    """(file name, SVG) of every plot that the kept results allow."""
    for file in sorted(results.glob("*.jsonl")):
        line = orjson.loads(file.read_bytes())
        parts = [row for row in line["rows"] if row["what"].startswith(WHERE)]
        if line.get("curves"):
            yield f"{PREFIX}{line['name']}.svg", growth(line["title"], line["curves"])
        elif line["quantiles"]:
            yield f"{PREFIX}{line['name']}.svg", distribution(line["title"], line["quantiles"])
        elif parts:
            yield f"{PREFIX}{line['name']}.svg", where_it_goes(parts)


def distribution(title: str, quantiles: Mapping[str, list[list[float]]]) -> str:
    """How many percent of each series' samples are below a time; of those in the unit that most have.

    Every second percent is enough for the eye, and half the file.
    """
    named = [name.rpartition(", ") for name in quantiles]
    unit = mode(unit for _, _, unit in named)
    curves = [
        Curve(name=name, points=[(at, percent) for percent, at in points if percent % 2 == 0 or percent > 98])
        for (name, _, own), points in zip(named, quantiles.values(), strict=True)
        if own == unit
    ]
    return draw(
        Plot(title=title, x_label=unit, y_label="percent of the samples", curves=within(curves)),
        log_x=far_apart(curves),
    )


def growth(title: str, curves: Mapping[str, Mapping[str, list[list[float]]]]) -> str:
    """What two things cost that grow, one below the other; bytes are dashed. Of a third the table tells."""
    plot = None
    for axis, own in reversed([*curves.items()][:2]):
        lines = [
            Curve(name=name, points=[(x, y) for x, y in points], dashed=name.endswith("MB"))
            for name, points in own.items()
        ]
        plot = Plot(title="", x_label=axis, y_label="as the line's name says", curves=lines, below=plot)
    assert plot is not None
    return draw(replace(plot, title=title), log_x=True, log_y=True)


def within(curves: list[Curve]) -> list[Curve]:
    """The curves, cut where the slowest is at _LAST_PERCENT: beyond it lie single samples."""
    furthest = max(at for curve in curves for at, percent in curve.points if percent <= _LAST_PERCENT)
    return [
        replace(curve, points=[(at, percent) for at, percent in curve.points if at <= furthest])
        for curve in curves
    ]


def far_apart(curves: list[Curve]) -> bool:
    """Whether one series would be a line upwards on an axis from 0."""
    nearest = min(at for curve in curves for at, _ in curve.points)
    middles = [next(at for at, percent in curve.points if percent >= 50) for curve in curves]
    return nearest > 0 and max(middles) > _FAR_APART * min(middles)


def where_it_goes(rows: list[dict[str, Any]]) -> str:
    """The parts of the time of one event; one that came out negative has no length."""
    parts = {row["what"].removeprefix(WHERE): max(0.0, row["value"]) for row in rows}
    return bars(f"Where the time of an event goes, {rows[0]['unit']}", parts)


def main() -> None:
    """Write every plot beside this file, and remove those whose results are gone."""
    drawn = dict(pictures())
    for old in HERE.glob(f"{PREFIX}*.svg"):
        if old.name not in drawn:
            old.unlink()
    for name, text in drawn.items():
        (HERE / name).write_text(text)


if __name__ == "__main__":
    main()
