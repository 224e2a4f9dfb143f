"""The shares that stand, of our brokers and of others (docs/contract.md 3.2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from operator import itemgetter
from typing import Final

from streaming.contract.names import INFLIGHT_GROUP_PREFIX, QUOTA_GROUP_PREFIX
from streaming.kafka_io.newest import Newest

GROUPS_MAX: Final = 100_000
"""Shares of our brokers that are kept, and groups of others', the newest; what is forgotten never came."""


class ShareState(Enum):
    """What a broker may go by."""

    NOBODY = "nobody has a share of the group"
    ELSEWHERE = "others have shares, this broker has none"
    ACTIVE = "it has a share"
    SILENT = "it had one, and the job was silent since"


@dataclass(frozen=True, slots=True)
class _Share:
    until_ms: int
    limits: Mapping[str, float] | None


class Shares:
    """Newest share of each group and broker.

    A share without limits (its broker is no member any more) says what no share says, but that others may
    have some.
    """

    def __init__(self) -> None:
        self._own: Newest[tuple[str, str], _Share] = Newest(GROUPS_MAX, group=itemgetter(0))
        self._elsewhere: Newest[str, int] = Newest(GROUPS_MAX)

    def take(
        self, group: str, broker: str, limits: Mapping[str, float] | None, until_ms: int, *, ours: bool
    ) -> None:
        """A share was decided or repeated.

        Args:
            group, broker: whose share of what.
            limits: per second, by dimension.
            until_ms: when its life ends, by the clock of `standing`.
            ours: the broker is one of this collector's.
        """
        if ours:
            self._own.put((group, broker), _Share(until_ms, limits))
        elif limits is not None and not group.startswith((QUOTA_GROUP_PREFIX, INFLIGHT_GROUP_PREFIX)):
            # Of Kafka's quotas and requests in flight, which there may be more of, we divide nothing.
            self._elsewhere.put(group, max(until_ms, self._elsewhere.get(group) or 0))

    def standing(self, group: str, broker: str, now_ms: int) -> ShareState:
        """What is known of a broker's share now."""
        share = self._own.get((group, broker))
        if share is not None and share.limits is not None:
            return ShareState.ACTIVE if now_ms < share.until_ms else ShareState.SILENT
        if now_ms < (self._elsewhere.get(group) or 0):
            return ShareState.ELSEWHERE
        others = (one for _, one in self._own.of_group(group) if one.limits is not None)
        return ShareState.ELSEWHERE if any(now_ms < one.until_ms for one in others) else ShareState.NOBODY

    def limit(self, group: str, broker: str, dimension: str) -> float | None:
        """The share itself, per second; None: none in this dimension, since it was not used."""
        share = self._own.get((group, broker))
        return None if share is None or share.limits is None else share.limits.get(dimension)
