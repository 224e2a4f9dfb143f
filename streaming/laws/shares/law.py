"""The law of shares: how the brokers of a resource group divide its limit (PIP-82).

Source: PIP-82, the two examples under "Example of usage distribution" and the list that begins with "The
adjustment curve should be smooth"; docs/contract.md 3.2, docs/protocol_notes.md 4.1. `share_out` is one
round of one dimension of a group: it takes what each member used and what it was allowed, and says what it is
allowed next.

**Residual.** Usage 10, 50 and 30 of a limit of 100: the 10 that are left go to the members in proportion
(1/9, 5/9, 1/3), which is C * u / sum(u); above the limit the same formula takes back in proportion.

>>> NEW = np.full(3, np.nan)
>>> divide(100.0, np.array([10.0, 50.0, 30.0]), np.zeros(3, dtype=np.bool_), NEW).round(2).tolist()
[11.11, 55.56, 33.33]

**Stealing.** Usage 80 and 20, each all that its member may use: both are hungry, and half the way to the
fair 50 each is gone, so 65 and 35, then 57.5 and 42.5.

>>> both, start = np.ones(2, dtype=np.bool_), np.array([80.0, 20.0])
>>> divide(100.0, start, both, start).tolist()
[65.0, 35.0]

**No under-use.** Shares 70 and 30, usage 70 and 20: the second does not use what it has, so it is left with
its usage and 10 % to grow, and the first gets the rest.

>>> divide(100.0, np.array([70.0, 20.0]), np.array([True, False]), np.array([70.0, 30.0])).tolist()
[74.0, 26.0]

Differences from PIP-82. It leaves the step open and pairs the lowest broker with the highest; its own text
then asks for few steps, a smooth curve, no under-use and fairness. The fair point of all four is max-min
fairness, and half the distance a round is PIP-82's "half-way": for two members the target, before halving,
is its 20 + (80 - 20) / 2 = 50. PIP-82 lets each broker decide by itself and be over the limit for a while;
here one place decides, so the shares add up to the limit in every round.

Differences from Pulsar 4 (docs/protocol_notes.md 4.1), which shipped the proportional split only, for
publishing only: there 80/20 stays 80/20 for ever, a member that was idle for a round is held at 1 message a
second and never comes back, and a dead broker keeps its share. PIP-82 calls the first two out, so we follow
it.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streaming.columns.compiled import inner, lean

Doubles = NDArray[np.float64]
Flags = NDArray[np.bool_]
Codes = NDArray[np.int8]

NOT_REPORTED: Final = -1
"""The broker does not say whether it was throttled."""
FREE: Final = 0
"""It was throttled for less than 5 % of the period."""
THROTTLED: Final = 1
"""It was throttled for 5 % of the period or more."""
HUNGRY_PARTS: Final = 20
"""That is one part in so many."""

ROOM: Final = 1.1
"""Room to grow that a member keeps above its usage."""
FULL_USE: Final = 0.95
"""From this part of its share on, a member is taken to use all of it."""


@lean
def is_hungry(used: float, throttled: int, share: float) -> bool:
    """Whether a member wants more than it has (docs/contract.md 3.2, step 1).

    >>> is_hungry(94.0, NOT_REPORTED, 100.0), is_hungry(95.0, NOT_REPORTED, 100.0)
    (False, True)

    Args:
        used: rate of its last report.
        throttled: what it says itself: THROTTLED, FREE or NOT_REPORTED.
        share: what it was allowed; NaN: it had no share yet.
    """
    if throttled != NOT_REPORTED:
        return throttled == THROTTLED
    return not np.isnan(share) and used >= FULL_USE * share


@lean
def water_level(limit: float, wanted: Doubles) -> float:
    """The level w at which the members, each taking what it wants or w if that is less, use up the limit.

    >>> water_level(100.0, np.array([22.0, np.inf])), water_level(100.0, np.array([60.0, np.inf]))
    (78.0, 50.0)

    Args:
        limit: what there is to take.
        wanted: of each member, ascending; the last one is inf, so that all is taken.
    """
    left = limit
    level = limit
    for member in range(len(wanted)):
        level = left / (len(wanted) - member)
        if level <= wanted[member]:
            break
        left -= wanted[member]
    return float(level)


@inner
def _sort(values: Doubles) -> None:
    """Put them in order, ascending, where they are (Shell's way, by Knuth's gaps): that makes no array."""
    gap = 1
    while gap < len(values):
        gap = 3 * gap + 1
    while gap > 0:
        for place in range(gap, len(values)):
            value, at = values[place], place
            while at >= gap and values[at - gap] > value:
                values[at] = values[at - gap]
                at -= gap
            values[at] = value
        gap //= 3


@inner
def _proportional(limit: float, used: Doubles, shares: Doubles) -> None:
    """The limit divided in proportion to use (PIP-82: "split up the 10 units proportionally")."""
    total = 0.0
    for member in range(len(used)):
        total += used[member]
    for member in range(len(used)):
        shares[member] = limit * used[member] / total


@inner
def _wanted(used: float, hungry: bool) -> float:
    return float(np.inf if hungry else ROOM * used)


@inner
def _halfway(limit: float, used: Doubles, hungry: Flags, last: Doubles, shares: Doubles) -> None:
    """Half the way from the last shares to max-min fairness, brought to the limit (step 3)."""
    for member in range(len(used)):
        shares[member] = _wanted(used[member], hungry[member])
    _sort(shares)
    level = water_level(limit, shares)
    total = 0.0
    for member in range(len(used)):
        target = min(_wanted(used[member], hungry[member]), level)
        shares[member] = last[member] + (target - last[member]) / 2.0
        total += shares[member]
    # Their sum differs from the limit if the limit was changed or a member left since the last round.
    for member in range(len(used)):
        shares[member] *= limit / total


@lean
def fill_shares(limit: float, used: Doubles, hungry: Flags, last: Doubles, shares: Doubles) -> None:
    """Fill in what `divide` gives."""
    nobody_hungry = True
    somebody_new = False
    for member in range(len(used)):
        nobody_hungry = nobody_hungry and not hungry[member]
        somebody_new = somebody_new or np.isnan(last[member])
    if nobody_hungry or somebody_new:
        _proportional(limit, used, shares)
    else:
        _halfway(limit, used, hungry, last, shares)


def divide(limit: float, used: Doubles, hungry: Flags, last: Doubles) -> Doubles:
    """The shares of a dimension's members; they add up to the limit (docs/contract.md 3.2, steps 1 to 3).

    Args:
        limit: the group's limit C, finite and above 0.
        used: rate of each member's last report, above 0.
        hungry: who wants more than it has.
        last: their last shares; NaN: none yet.
    """
    shares = np.empty(len(used))
    fill_shares(limit, used, hungry, last, shares)
    return shares


def share_out(limit: float, used: Doubles, throttled: Codes, last: Doubles) -> Doubles:
    """One round of one dimension of a group: the new shares of its members, NaN of those that do not use it.

    >>> used = np.array([80.0, 20.0, 0.0])
    >>> share_out(100.0, used, np.full(3, NOT_REPORTED, np.int8), used).tolist()
    [65.0, 35.0, nan]

    Args:
        limit: of the dimension.
        used: rates.
        throttled: THROTTLED, FREE or NOT_REPORTED.
        last: the last shares, NaN where there is none.
    """
    takes = used > 0.0
    hungry = np.array([is_hungry(*member) for member in zip(used, throttled, last, strict=True)], np.bool_)
    shares = np.full(len(used), np.nan)
    shares[takes] = divide(limit, used[takes], hungry[takes], last[takes])
    return shares
