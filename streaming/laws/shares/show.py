"""What people see of shares: a line of `weir tail`, totals of a replay, the plot of docs/laws.md."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from streaming.laws.law import Curve, Plot, Said, count_up
from streaming.laws.shares.law import NOT_REPORTED, proportional, share_out

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


def plot() -> Plot:
    """80 and 20 of 100, both hungry: half-way to fair every round; the proportional split never moves."""
    ours, theirs = [np.array([80.0, 20.0])], [np.array([80.0, 20.0])]
    for _ in range(8):
        used = ours[-1].reshape(2, 1)
        unknown = np.full((2, 1), NOT_REPORTED, dtype=np.int8)
        ours.append(share_out(np.array([100.0]), used, unknown, used)[:, 0])
        theirs.append(proportional(100.0, theirs[-1]))
    return Plot(
        title="Two members that use all they get, from 80 and 20 of 100",
        x_label="rounds",
        y_label="share, messages per second",
        curves=[
            *_members("ours", ours, dashed=False),
            *_members("proportional (Pulsar)", theirs, dashed=True),
        ],
    )


def _members(name: str, rounds: list[Any], *, dashed: bool) -> list[Curve]:
    return [
        Curve(
            name=f"{name}, {which} member",
            points=[(float(number), float(pair[member])) for number, pair in enumerate(rounds)],
            dashed=dashed,
        )
        for member, which in enumerate(("first", "second"))
    ]
