"""What people see of admissions: a line of `weir tail`, totals of a replay, the plot of docs/laws.md."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from streaming.columns.compiled import machine
from streaming.laws.law import Curve, Plot, Said, count_up, few, keep_longest_throttle
from streaming.laws.mutation import law
from streaming.laws.mutation.law import STRICT
from streaming.laws.mutation.rates import refill, roll

_COUNTED: Final = {"allow": "allowed", "throttle": "throttled", "reject": "rejected"}
_RATE, _BURST, _SAMPLES, _ITEM, _SECONDS = 5.0, 500.0, 100, 5.0, 400
"""Of the plot: a quota of 5 a second with a burst of 500, asked for by items of 5 mutations."""


def line(decision: Mapping[str, Any]) -> Said:
    """The outcome, what is left, and the wait or what was rejected."""
    reasons = []
    if decision.get("throttle_time_ms"):
        reasons.append(f"wait {decision['throttle_time_ms']} ms")
    if decision.get("rejected"):
        reasons.append("rejected " + ",".join(few([str(name) for name in decision["rejected"]])))
    return str(decision["outcome"]), _balance(decision), reasons


def _balance(decision: Mapping[str, Any]) -> str:
    limit = decision.get("limit")
    if limit is None:
        return ""
    if "tokens" in decision:
        return f"tokens {decision['tokens']:>8.1f} at {limit:g}/s"
    return f"rate {decision['rate']:>10.2f} of {limit:g}/s"


def total(totals: dict[str, Any], decision: Mapping[str, Any]) -> None:
    """Events by outcome, `mutations` admitted and charged (a dry run counts as an event with 0 of them),
    the longest throttle.
    """
    outcomes = {name: int(decision["outcome"] == outcome) for outcome, name in _COUNTED.items()}
    count_up(totals, **outcomes, mutations=decision["mutations"])
    keep_longest_throttle(totals, decision)


def plot() -> Plot:
    """What a client that always asks gets: the rate from the bucket, twice as much from the draft."""
    charge_bucket, charge_samples = machine(law.charge_bucket), machine(law.charge_samples)
    tokens, ring, got = _BURST, np.zeros(_SAMPLES), {"bucket": 0.0, "samples": 0.0}
    curves: dict[str, list[tuple[float, float]]] = {"bucket": [(0, 0)], "samples": [(0, 0)]}
    for second in range(_SECONDS):
        now = second * 1000
        if second:
            tokens = refill(tokens, _RATE, _BURST, 1000)
            roll(ring, now - 1000, now)
        for _ in range(int(_BURST / _ITEM) + 1):  # no more can be let in within one second
            rejected = np.zeros(1, dtype=np.bool_)
            tokens = charge_bucket(tokens, np.array([_ITEM]), rejected, STRICT, False)
            got["bucket"] += 0.0 if rejected[0] else _ITEM
            rejected = np.zeros(1, dtype=np.bool_)
            charge_samples(ring, _RATE, np.array([_ITEM]), rejected, STRICT, False)
            got["samples"] += 0.0 if rejected[0] else _ITEM
        for name, curve in curves.items():
            if second % 4 == 0:
                curve.append((second + 1, got[name]))
    bound = [(0.0, _BURST), (_SECONDS, _BURST + _RATE * _SECONDS)]
    return Plot(
        title="Let in to a client that always asks: 5 per second, burst 500",
        x_label="seconds",
        y_label="partition mutations",
        curves=[
            Curve(name="token_bucket", points=curves["bucket"]),
            Curve(name="sampled_rate (the draft)", points=curves["samples"]),
            Curve(name="burst + rate x time", points=bound, dashed=True),
        ],
    )
