"""What people see of dispatch: a line of `weir tail`, totals of a replay, the plot of docs/laws.md."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from streaming.laws.dispatch.law import available, entries_to_read, rolled
from streaming.laws.law import Curve, Plot, Points, Said, count_up, keep_longest_throttle

_LIMIT, _IN_ENTRY, _SECONDS = 10, 6, 18
"""Of the plot: messages a second, messages in an entry."""
_ENTRY: Final = (_IN_ENTRY, 600, 1)
"""Messages, bytes and entries of one entry."""


def line(decision: Mapping[str, Any]) -> Said:
    """What is left, and how much to read or how long to wait for which limit."""
    entries = decision["entries_to_read"]
    counts = [(name, decision["available"][name]) for name in ("msgs", "bytes")]
    left = [f"{count} {name}" for name, count in counts if count is not None]
    numbers = f"{', '.join(left)} left" if left else "not limited"
    limiter = decision["limited_by"]
    if limiter is None:
        return "deliver", numbers, [] if entries is None else [f"read {entries} entries"]
    why = f"limited by {limiter['level']} {limiter['dimension']}"
    return "pause", numbers, [f"wait {decision['throttle_time_ms']} ms", why, f"at {decision['broker']}"]


def total(totals: dict[str, Any], decision: Mapping[str, Any]) -> None:
    """How often it was throttled, and the longest throttle."""
    count_up(totals, throttled=int(decision["throttle_time_ms"] > 0))
    keep_longest_throttle(totals, decision)


def plot() -> Plot:
    """Messages each second with and without preciseDispatcherFlowControl."""
    return Plot(
        title="Delivered each second: 10 allowed, 6 messages in an entry",
        x_label="seconds",
        y_label="messages",
        curves=[
            Curve(name="preciseDispatcherFlowControl", points=_delivered(precise=True)),
            Curve(name="without: 10 entries are read for 10 messages", points=_delivered(precise=False)),
            Curve(name="limit", points=[(0, _LIMIT), (_SECONDS, _LIMIT)], dashed=True),
        ],
    )


def _delivered(*, precise: bool) -> Points:
    """Messages delivered in each second, as a staircase; the subscriber takes all it gets."""
    acquired, seen, corners = 0, np.array(_ENTRY, dtype=np.int64), list[tuple[float, float]]()
    for second in range(_SECONDS):
        acquired = rolled(acquired, _LIMIT, 1000, max(0, second - 1) * 1000, second * 1000)
        entries = entries_to_read(available(acquired, _LIMIT), -1, 0.0, seen, precise, False)
        acquired += _IN_ENTRY * entries
        seen += np.array(_ENTRY) * entries
        corners += [(second, _IN_ENTRY * entries), (second + 1, _IN_ENTRY * entries)]
    return corners
