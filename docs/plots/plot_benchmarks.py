"""Draw docs/plots/bench-*.svg from benchmarks/results: `.venv/bin/python docs/plots/plot_benchmarks.py`."""

from collections.abc import Iterator, Mapping
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

import orjson
from svg import Bar, Line, Plot, bars, draw

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "benchmarks" / "results"
PREFIX = "bench-"
WHERE = "where it goes: "
_LAST_PERCENT = 99.5
"""The axis ends where so many percent of the slowest series are in; beyond it lie single samples."""
_FAR_APART = 50.0
"""On an axis from 0 a series whose median is so many times less than another's would be a line upwards."""
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_TICKS = 6


def pictures(results: Path = RESULTS) -> Iterator[tuple[str, str]]:
    """(file name, SVG) of every plot that the kept results allow."""
    for file in sorted(results.glob("*.jsonl")):
        line = orjson.loads(file.read_bytes())
        parts = [row for row in line["rows"] if row["what"].startswith(WHERE)]
        if line["quantiles"]:
            yield f"{PREFIX}{line['name']}.svg", draw(distribution(line["title"], line["quantiles"]))
        elif parts:
            yield f"{PREFIX}{line['name']}.svg", where_it_goes(parts)


def distribution(title: str, quantiles: Mapping[str, list[list[float]]]) -> Plot:
    """How many percent of each series' samples are below a time."""
    unit = next(iter(quantiles)).rpartition(", ")[2]
    furthest = max(at for points in quantiles.values() for percent, at in points if percent <= _LAST_PERCENT)
    middles = [next(at for percent, at in points if percent >= 50) for points in quantiles.values()]
    nearest = min(at for points in quantiles.values() for _, at in points)
    log_x = nearest > 0 and max(middles) > _FAR_APART * min(middles)
    ticks = decades(nearest, furthest) if log_x else axis(furthest)
    return Plot(
        title=title,
        x_label=unit,
        y_label="percent of the samples",
        x_ticks=ticks,
        y_ticks=range(0, 101, 20),
        lines=[
            Line(
                name=name.rpartition(", ")[0],
                points=[(at, percent) for percent, at in points if at <= ticks[-1]],
            )
            for name, points in quantiles.items()
        ],
        # Along a logarithmic axis curves lie to the right, one above the other: room is at the upper left.
        legend=(ticks[0] * 1.2, 95) if log_x else (ticks[-1] * 0.45, 18 * len(quantiles)),
        log_x=log_x,
    )


def where_it_goes(rows: list[dict[str, Any]]) -> str:
    """The parts of the time of one event."""
    unit = rows[0]["unit"]
    return bars(
        f"Where the time of an event goes, {unit}",
        [Bar(name=row["what"].removeprefix(WHERE), value=max(0.0, row["value"])) for row in rows],
    )


def axis(furthest: float) -> list[float]:
    """Round ticks from 0 to `furthest` or a little beyond."""
    size = 10.0 ** len(str(int(furthest))) / 1000
    while True:
        for step in _STEPS:
            if step * size * _TICKS >= furthest:
                return [round(step * size * number, 6) for number in range(_TICKS + 1)]
        size *= 10.0


def decades(nearest: float, furthest: float) -> list[float]:
    """Powers of ten around both."""
    return [10.0**power for power in range(floor(log10(nearest)), ceil(log10(furthest)) + 1)]


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
