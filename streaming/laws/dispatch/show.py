"""What people see of dispatch: a line of `weir tail` and totals of a replay."""

from collections.abc import Mapping
from typing import Any

from streaming.laws.law import Said, count_up, keep_longest_throttle


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
