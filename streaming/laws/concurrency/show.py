"""What people see of limits: a line of `weir tail`, totals of a replay, the plot of docs/laws.md."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from streaming.laws.concurrency.algorithms import STATE
from streaming.laws.concurrency.law import start, take
from streaming.laws.concurrency.settings import LimitSettings
from streaming.laws.law import Curve, Plot, Points, Said

_AIMDS: Final[dict[str, dict[str, Any]]] = {
    "aimd": {"initialLimit": 20},
    "aimd-plain": {"initialLimit": 20},
}
_OTHERS: Final[dict[str, dict[str, Any]]] = {
    "vegas": {"probeMultiplier": 1_000_000},
    "gradient": {"probeInterval": -1},
    "gradient2": {},
}
"""Of the plot; probes are off to see the rest."""


def line(decision: Mapping[str, Any]) -> Said:
    """The limit and the algorithm that found it."""
    exact = decision["estimated_limit"]
    reasons = [str(decision["algorithm"])]
    if exact != decision["limit"]:
        reasons.append(f"estimate {exact:.2f}")
    return "limit", f"{decision['limit']} in flight", reasons


def total(totals: dict[str, Any], decision: Mapping[str, Any]) -> None:
    """Least, greatest and last limit."""
    limit = decision["limit"]
    totals["least_limit"] = min(totals.get("least_limit", limit), limit)
    totals["greatest_limit"] = max(totals.get("greatest_limit", limit), limit)
    totals["last_limit"] = limit


def plot() -> Plot:
    """The two AIMDs when slowness shows late, and those that compare round-trip times with better ones."""
    room = "room for 100, for 25 from 40 s to 80 s"
    others = _limits(f"The others, samples at once: {room}", _OTHERS, late=False)
    return _limits(f"AIMD, samples a second late: {room}", _AIMDS, late=True, below=others)


def _limits(
    title: str, algorithms: Mapping[str, dict[str, Any]], *, late: bool, below: Plot | None = None
) -> Plot:
    return Plot(
        title=title,
        x_label="seconds, 20 samples each",
        y_label="requests in flight",
        curves=[
            Curve(name=name, points=_limit({"algorithm": name, name: own}, late=late))
            for name, own in algorithms.items()
        ],
        below=below,
    )


def _limit(value: dict[str, Any], *, late: bool) -> Points:
    """The limit, second by second, of a partition whose capacity falls to a quarter for a while.

    Every second brings 20 samples of requests that fill the limit of their admission: that of the moment, or
    if `late` that of the second's beginning. Up to `capacity` requests are answered in 100 ms; more wait in
    line for each other.
    """
    settings = LimitSettings.of(value | {"useWindowed": False})
    state = np.zeros(1, dtype=STATE)
    start(state[0], settings.row[0])
    curve = []
    for second in range(120):
        capacity = 25 if 40 <= second < 80 else 100
        inflight = int(state[0]["estimate"])
        curve.append((float(second), float(inflight)))
        for _ in range(20):
            inflight = inflight if late else int(state[0]["estimate"])
            rtt = round(100e6 * max(1.0, inflight / capacity))
            take(state[0], settings.row[0], second * 10**9, rtt, inflight, False)
    return curve
