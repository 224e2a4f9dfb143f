"""The settings of all partitions under a set of policies, found by compiled code.

Apart from `settings`, which enforcers read too, and without a compiler.
"""

from typing import Final

from streaming.columns.limit_index import LearntLimits
from streaming.laws.concurrency.settings import LimitSettings
from streaming.policy.derived import PolicyCache
from streaming.policy.policy_set import PolicySet, partition_entry

MAX_CACHED: Final = 64
"""Sets of policies whose settings are remembered: those of a worker's shards."""


def _limits(policies: PolicySet) -> LearntLimits[LimitSettings]:
    known: dict[int, LimitSettings] = {}

    def find(partition: str) -> LimitSettings | None:
        value = partition_entry(policies, partition)
        if value is None:
            return None
        # Most partitions go by the same entry; the set holds it, so its id is nobody else's.
        if id(value) not in known:
            known[id(value)] = LimitSettings.of(value)
        return known[id(value)]

    return LearntLimits(find)


settings_of: Final = PolicyCache(_limits, MAX_CACHED)
"""The settings of partitions under a set of policies."""
