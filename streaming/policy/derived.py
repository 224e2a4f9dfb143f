"""What laws make of policies: once of each set of them, and stretch by stretch of time between changes."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from streaming.policy.policy_set import PolicySet
from streaming.policy.timeline import PolicyTimeline

T = TypeVar("T")
Integers = NDArray[np.int64]
SETS_MAX: Final = 8
"""Sets of which something is kept: as much as all policies, or all names that are asked for, may take; and a
batch rarely sees more than two."""


class PolicyCache(Generic[T]):
    """Looks up what was made of a set's entries; sets that share their entries share it too.

    Args:
        make: makes it; of what was made, that which was used longest ago leaves.
    """

    def __init__(self, make: Callable[[PolicySet], T]) -> None:
        self._make = make
        # The entries stand in the value, so that their id is nobody else's as long as it is a key.
        self._kept: LRUCache[int, tuple[Mapping[str, Any], T]] = LRUCache(SETS_MAX)

    def __call__(self, policies: PolicySet) -> T:
        """What is made of these policies."""
        entries = policies.entries
        found = self._kept.get(id(entries))
        if found is None:
            found = self._kept[id(entries)] = entries, self._make(policies)
        return found[1]


def stretches(times: Integers, timeline: PolicyTimeline) -> Iterator[tuple[Integers, int]]:
    """Events by stretch of time between two changes of policy, in order of time.

    Args:
        times: of the events, ms, in any order.
        timeline: the policies; a change at the very time of an event counts as made.

    Yields:
        The positions of the events of one stretch, ascending, and the time (ms) of the earliest of them.
    """
    if not len(times):
        return
    first = int(times.min())
    changes = timeline.changes(first, int(times.max()))
    if not changes:
        yield np.arange(len(times)), first
        return
    number = np.searchsorted(np.array(changes, dtype=np.int64), times, side="right")
    order = np.argsort(number, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
        yield rows, int(times[rows].min())
