"""What people see of admissions: a line of `weir tail` and totals of a replay."""

from collections.abc import Mapping
from typing import Any, Final

from streaming.laws.law import Said, count_up, few, keep_longest_throttle

_COUNTED: Final = {"allow": "allowed", "throttle": "throttled", "reject": "rejected"}


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
