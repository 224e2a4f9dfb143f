"""What an enforcer reads of shares (docs/contract.md 3.2), and what they say of a whole group."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from enforcer.core.law import DecisionReader
from streaming.columns.packed import columns_in
from streaming.contract.decisions import LATE_MS, Share, share_of
from streaming.contract.errors import BadEvent
from streaming.contract.fields import TS_MAX_MS
from streaming.contract.usage_events import DIMENSIONS

SLOTS: Final = 2**18
"""Groups whose shares stand elsewhere are told apart by so many values of a sum of their names. One that is
taken for another is on the safe side: of 10,000 one in 26."""
MEMBERS_MAX: Final = 1_000
"""Members of one group that are remembered; only metrics miss the others."""
_FULL_USE: Final = 0.95
"""As in the law: who uses this part of its share wants more (docs/contract.md 3.2, step 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersShares:
    """What a packed record with shares of another broker says to this one.

    Attributes:
        slots: of the groups of which it has a share (slots_of).
        ttl_ms: how long the shares stand when nothing is heard.
    """

    slots: NDArray[np.int64]
    ttl_ms: int


def slots_of(groups: Sequence[str]) -> NDArray[np.int64]:
    """Where it is remembered that shares of groups stand elsewhere."""
    return np.fromiter(map(slot_of, groups), np.int64, len(groups))


def slot_of(group: str) -> int:
    """The same of one group."""
    return zlib.crc32(group.encode()) % SLOTS


def elsewhere_in(value: bytes, said_ms: int = 0) -> OthersShares:
    """Read of which groups a packed record tells shares that stand, and nothing else of it.

    Args:
        said_ms: when it was written, ms since the epoch.

    Raises:
        BadEvent: it is none, or too large.
    """
    columns = columns_in(value, "share", ("group", "ttl_ms"), ("ts", "removed", "repeat"))
    groups, lives, told = columns["group"], columns["ttl_ms"], columns.get("ts")
    if not pa.types.is_string(groups.type) or not all(
        pa.types.is_integer(times.type) for times in (lives, told) if times is not None
    ):
        raise BadEvent("a column of another type; groups as text and times as integers were expected")
    stands = groups.is_valid()
    if "removed" in columns:
        stands = pc.and_(stands, columns["removed"].is_null())
    if told is not None and "repeat" not in columns:
        try:
            lasts = pc.max_element_wise(lives, LATE_MS)
            # Unlike a sum the difference of two times has room.
            stands = pc.and_(stands, pc.greater_equal(lasts, pc.subtract(said_ms, told)))
        except pa.ArrowException as error:
            raise BadEvent(f"a time that is none: {error}") from error
    ttl_ms = min(TS_MAX_MS, max(0, pc.max(lives).as_py() or 0))
    return OthersShares(slots=slots_of(groups.filter(stands).to_pylist()), ttl_ms=ttl_ms)


READER: Final = DecisionReader(
    type="share", parse=share_of, timely=True, standing=True, of_others=elsewhere_in
)  # fmt: skip


class Members:
    """What all members of a group used and may use, by their newest shares.

    For metrics alone: nothing is enforced by it.
    """

    def __init__(self) -> None:
        self._shares: dict[str, Share] = {}

    def take(self, share: Share) -> None:
        """A share was decided or repeated, for whichever member."""
        if share.limits is None:
            self._shares.pop(share.broker, None)
        elif share.broker in self._shares or len(self._shares) < MEMBERS_MAX:
            self._shares[share.broker] = share

    def __len__(self) -> int:
        return len(self._shares)

    def usage(self) -> dict[str, Mapping[str, float]]:
        """What each member used per second, by its name."""
        return {name: share.usage for name, share in list(self._shares.items())}

    def overshoot(self, dimension: int, limit: float) -> float:
        """By what part of the limit all members together used more than it; 0: not at all."""
        total = sum(usage.get(DIMENSIONS[dimension], 0.0) for usage in self.usage().values())
        return max(0.0, total / limit - 1.0)

    def fairness(self, dimension: int) -> float:
        """How near the use is to max-min fairness: 1 is fair, 0 is as unfair as can be.

        Max-min fairness means that nobody who wants more has less than anybody else. So this is the least use
        of a member that wants more, divided by the greatest use of any.

        >>> members = Members()
        >>> for name, used, may in (("a", 80.0, 80.0), ("b", 20.0, 20.0)):
        ...     rates = {"usage": {"publishRateInMsgs": used}, "limits": {"publishRateInMsgs": may}}
        ...     members.take(share_of({"group": "g", "broker": name, "ts": 0, "ttl_ms": 1, **rates}))
        >>> members.fairness(0)
        0.25
        """
        name = DIMENSIONS[dimension]
        used = [
            (share.usage.get(name, 0.0), (share.limits or {}).get(name, 0.0))
            for share in list(self._shares.values())
        ]
        hungry = [use for use, share in used if use > 0.0 and use >= _FULL_USE * share]
        return min(hungry) / max(use for use, _ in used) if hungry else 1.0
