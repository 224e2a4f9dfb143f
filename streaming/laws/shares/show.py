"""What people see of shares: a line of `weir tail` and totals of a replay."""

from collections.abc import Mapping
from typing import Any, Final

from streaming.laws.law import Said, count_up

_SHORT: Final = {
    "publishRateInMsgs": "publish msgs/s",
    "publishRateInBytes": "publish bytes/s",
    "dispatchRateInMsgs": "dispatch msgs/s",
    "dispatchRateInBytes": "dispatch bytes/s",
}


def line(decision: Mapping[str, Any]) -> Said:
    """Each dimension's share beside its use, or why there is none any more."""
    if decision["limits"] is None:
        return "removed", "", [f"{decision['removed']}, round {decision['round']}"]
    # By `limits`, not `usage`: a dimension that a broker does not use has no share.
    shares = [(f"{share:.2f} {_SHORT[name]}", name) for name, share in decision["limits"].items()]
    used = [f"used {decision['usage'][name]:.2f}" for _, name in shares]
    others = [f"{shares[place][0]}, {used[place]}" for place in range(1, len(shares))]
    return "share", shares[0][0], [used[0], *others, f"round {decision['round']}"]


def total(totals: dict[str, Any], decision: Mapping[str, Any]) -> None:
    """The last share, and how often it ended."""
    count_up(totals, removed=int("removed" in decision))
    totals["last_limits"] = decision["limits"]
