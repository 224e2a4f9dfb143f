"""What `weir simulate concurrency` says without options; plot_laws.py draws it as simulation-*.svg."""

from functools import cache, partial
from typing import Any

from pictures import Curve, Plot

from weir.simulate.figures import contenders, figures
from weir.simulate.scenario import Scenario

PREFIX = "simulation-"
ORDER = ("aimd", "vegas", "gradient", "gradient2", "fixed", "aimd-plain")
"""Of the curves: the last one has the colour of the first, dashed."""
FIXED = "fixed"
SERIES = {"limit": ("Limit", "requests in flight"), "latency_ms": ("Latency", "ms, mean of a second")}
EVERY = 2
"""Seconds from point to point: enough for the eye, and half the file."""


@cache
def simulated() -> dict[str, Any]:
    """The figures that the page's table shows, too."""
    return figures(Scenario(), list(contenders()))


def run_of(algorithm: str, *, windowed: bool) -> dict[str, Any]:
    """The figures of one run; a fixed limit is the same with a window and without."""
    return next(
        run
        for run in simulated()["runs"]
        if run["algorithm"] == algorithm and (run["windowed"] == windowed or algorithm == FIXED)
    )


def plot(series: str, *, windowed: bool) -> Plot:
    """One series of all algorithms: limits or latencies."""
    slow, end = simulated()["phases"]["slow"]
    name, y_label = SERIES[series]
    return Plot(
        title=f"{name}, {'samples gathered for a second' if windowed else 'each sample at once'}",
        x_label=f"seconds; the broker is ten times slower from {slow} to {end}",
        y_label=y_label,
        curves=[
            Curve(
                name=algorithm,
                points=points(run_of(algorithm, windowed=windowed)["series"][series]),
                dashed=algorithm == ORDER[-1],
            )
            for algorithm in ORDER
        ],
    )


def points(values: list[float | None]) -> list[tuple[int, float]]:
    """What is known of a second at its end; of every EVERYth."""
    return [
        (at, value) for at, value in enumerate(values, start=1) if value is not None and at % EVERY == 0
    ]


PLOTS = {
    f"{PREFIX}{short}-{how}": partial(plot, series, windowed=how == "windowed")
    for how in ("windowed", "each")
    for short, series in (("limit", "limit"), ("latency", "latency_ms"))
}
