"""What entries of `backpressure.partitions` may hold: concurrency algorithms and their keys (contract 3.4).

Bounds are those of the original builders where they have one (facts/backpressure.md sections 2, 4 and 5).
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from itertools import pairwise
from typing import Any

from streaming.contract.errors import BadEvent
from streaming.policy.checks import Check, Report, choice, fields, flag, number, shown
from streaming.policy.durations import EXPECTED, duration_ns
from streaming.policy.yaml_lines import Path

# The originals keep limits and counts in Java's int.
LIMIT_MAX = 2**31 - 1


class LimitAlgorithm(StrEnum):
    """The concurrency laws by name."""

    AIMD = "aimd"
    AIMD_PLAIN = "aimd-plain"
    FIXED = "fixed"
    VEGAS = "vegas"
    GRADIENT = "gradient"
    GRADIENT2 = "gradient2"


# Defaults that matter to a check: a file may set one of three keys that must be in order.
LIMIT_DEFAULTS: dict[str, dict[str, float]] = {
    "aimd": {"minLimit": 1, "initialLimit": 100, "maxLimit": 1000},
    "aimd-plain": {"minLimit": 1, "initialLimit": 100, "maxLimit": 1000},
    "vegas": {"initialLimit": 20, "maxLimit": 1000},
    "gradient": {"minLimit": 10, "initialLimit": 20, "maxLimit": 1000},
    "gradient2": {"minLimit": 10, "initialLimit": 20, "maxLimit": 200},
}
_DEFAULT_WINDOW = "1s"

_LOG_ROOT = re.compile(r"(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)\*)?log10")


def _duration(report: Report, path: Path, value: Any) -> None:
    if not isinstance(value, str):
        report.add(path, f"is {shown(value)}; expected {EXPECTED}")
        return
    try:
        duration_ns(value)
    except BadEvent as error:
        report.add(path, error.reason)


def _root(report: Report, path: Path, value: Any) -> None:
    """A constant, or a multiple of the log10 root of the limit: 3, log10, 3*log10."""
    if isinstance(value, str):
        found = _LOG_ROOT.fullmatch(value)
        if not found or (found[1] is not None and not float(found[1])):
            report.add(path, f'is {shown(value)}; expected a whole number above 0, "log10" or "N*log10"')
        return
    number(minimum=1, maximum=LIMIT_MAX, whole=True)(report, path, value)


def _probe_interval(report: Report, path: Path, value: Any) -> None:
    # -1 is "never" here, no limit that is left out.
    if value != -1 or isinstance(value, bool):
        number(minimum=1, maximum=LIMIT_MAX, whole=True)(report, path, value)


def _ordered(check: Check, defaults: Mapping[str, float], keys: tuple[str, ...]) -> Check:
    """As `check`, and the values of `keys` (defaults filled in) must not fall from one to the next."""

    def both(report: Report, path: Path, value: Any) -> None:
        found = len(report.findings)
        check(report, path, value)
        if not report.spared(found, path, keys):
            return
        # A file may set one of three keys: it is held against the defaults of the others.
        held = [(key, value.get(key, defaults[key]), key in value) for key in keys if key in defaults]
        for (low, low_value, low_set), (high, high_value, high_set) in pairwise(held):
            if _size(low_value) > _size(high_value):
                # The line of a key that is in the file, not of a default that is nowhere.
                blamed = low if low_set else high
                report.add(
                    (*path, blamed),
                    f"leaves {low} {low_value}{'' if low_set else ' (default)'} above "
                    f"{high} {high_value}{'' if high_set else ' (default)'}; expected {' <= '.join(keys)}",
                )

    return both


def _size(value: Any) -> float:
    return duration_ns(value) if isinstance(value, str) else float(value)


_LIMIT = number(minimum=1, maximum=LIMIT_MAX, whole=True)
# Below one half an algorithm of the original library refuses to start.
_BACKOFF = number(minimum=0.5, below=1.0)
_SMOOTHING = number(above=0.0, maximum=1.0)
_TOLERANCE = number(minimum=1.0)
_BOUNDS: dict[str, Check] = {"minLimit": _LIMIT, "initialLimit": _LIMIT, "maxLimit": _LIMIT}
_AIMD: dict[str, Check] = {**_BOUNDS, "requestTimeout": _duration, "backoffRatio": _BACKOFF}
_KEYS: dict[str, dict[str, Check]] = {
    "aimd": _AIMD,
    "aimd-plain": _AIMD,
    "vegas": {
        "initialLimit": _LIMIT,
        "maxLimit": _LIMIT,
        "alpha": _root,
        "beta": _root,
        "threshold": _root,
        "smoothing": _SMOOTHING,
        "probeMultiplier": _LIMIT,
        "probeJitter": number(above=0.0, maximum=1.0),
    },
    "gradient": {
        **_BOUNDS,
        "rttTolerance": _TOLERANCE,
        "smoothing": _SMOOTHING,
        "backoffRatio": _BACKOFF,
        "probeInterval": _probe_interval,
    },
    "gradient2": {
        **_BOUNDS,
        "rttTolerance": _TOLERANCE,
        "smoothing": _SMOOTHING,
        "queueSize": _LIMIT,
        "longWindow": _LIMIT,
    },
}
_WINDOW = fields(
    {
        "minWindow": _duration,
        "maxWindow": _duration,
        "windowSize": _LIMIT,
        "minRttThreshold": _duration,
    }
)


def _window(report: Report, path: Path, value: Any) -> None:
    found = len(report.findings)
    _WINDOW(report, path, value)
    if not report.spared(found, path, ("minWindow", "maxWindow")):
        return
    shortest, longest = value.get("minWindow", _DEFAULT_WINDOW), value.get("maxWindow", _DEFAULT_WINDOW)
    if duration_ns(shortest) > duration_ns(longest):
        blamed = "minWindow" if "minWindow" in value else "maxWindow"
        report.add(
            (*path, blamed),
            f"leaves minWindow {shortest} above maxWindow {longest}; expected minWindow <= maxWindow",
        )


partition_limit: Check = fields(
    {
        "algorithm": choice(LimitAlgorithm),
        "useWindowed": flag,
        "fixed": fields({"limit": _LIMIT}),
        "window": _window,
        **{
            name: _ordered(fields(keys), LIMIT_DEFAULTS[name], ("minLimit", "initialLimit", "maxLimit"))
            for name, keys in _KEYS.items()
        },
    },
    hint="a mapping such as {algorithm: aimd, useWindowed: true}",
)
