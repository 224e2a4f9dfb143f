"""What people see of limits: a line of `weir tail` and totals of a replay."""

from collections.abc import Mapping
from typing import Any

from streaming.laws.law import Said


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
