"""The limits of resource groups under one set of policies.

What a name is limited to is `policy.groups`'. There may be a group for every principal that is limited by a
default quota, millions of them, so theirs are not worked out nor remembered one by one: byte quotas whose
limits come from the same entries are alike.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from streaming.columns.byte_strings import (
    USER_IS,
    Bytes,
    Index,
    Integers,
    after_word,
    bytes_in,
    bytes_of,
    found,
    index_of,
    is_canonical,
    name_end,
)
from streaming.columns.compiled import lean
from streaming.columns.limit_index import LearntLimits
from streaming.contract.names import GROUP_PREFIXES, QUOTA_GROUP_PREFIX
from streaming.policy.derived import PolicyCache
from streaming.policy.groups import GroupLimits, group_limits
from streaming.policy.policy_set import PolicySet, Section

MAX_ENTRIES: Final = 1 << 20
"""With more quotas the numbers of three of them are too many for one of 64 bits; then no two are alike."""
_QUOTAS: Final = f"{Section.QUOTAS}["
_QUOTA_IS: Final = bytes_of(QUOTA_GROUP_PREFIX)
_ANY_CLIENT: Final = bytes_of(",client-id=<default>")
_ANY_USER: Final = bytes_of("user=<default>,")
_NOTHING: Final = bytes_of("")


def _limits(policies: PolicySet) -> LearntLimits[GroupLimits]:
    known: dict[tuple[Any, ...], GroupLimits | None] = {}
    paths = [path[len(_QUOTAS) : -1] for path in policies.entries if path.startswith(_QUOTAS)]
    quotas = index_of(pa.array(paths, pa.string()))

    def find(group: str) -> GroupLimits | None:
        value = policies.entries.get(f"{Section.RESOURCE_GROUPS}.{group}")
        if value is None or group.startswith(GROUP_PREFIXES):
            return group_limits(policies, group)
        # Many entries say the same, and looking up what one says is much cheaper than working it out.
        said = tuple(value.items())
        if said not in known:
            known[said] = group_limits(policies, group)
        return known[said]

    def alike(groups: pa.Array) -> Integers:
        text, ends = bytes_in(groups)
        kinds = np.empty(len(groups), dtype=np.int64)
        _kinds(quotas, len(paths) + 1, text, ends, kinds)
        return kinds

    return LearntLimits(find, alike if len(paths) < MAX_ENTRIES else None)


limits_of: Final = PolicyCache(_limits)
"""The limits of groups under a set of policies."""


@lean
def _kinds(quotas: Index, count: int, text: Bytes, ends: Integers, kinds: Integers) -> None:
    """A number for each group, the same for byte quotas that the same entries concern; others have their own.

    Args:
        quotas: the entries of quotas, as they are written in their paths.
        count: more than there are.
        text, ends: names of the groups.
        kinds: filled in.
    """
    for i in range(len(kinds)):
        at, end = after_word(text, ends[i], ends[i + 1], _QUOTA_IS), ends[i + 1]
        kinds[i] = -1 - i
        if at < 0 or at == end or not is_canonical(text, at, end):
            continue
        own = found(quotas, text, at, end, _NOTHING, 0, 0) + 1
        user = after_word(text, at, end, USER_IS)
        comma = name_end(text, user, end) if user >= 0 else end
        if user < 0 or comma == end:
            kinds[i] = 3 * own + (user >= 0)
        else:
            of_user = found(quotas, text, at, comma, _ANY_CLIENT, 0, len(_ANY_CLIENT)) + 1
            of_client = found(quotas, _ANY_USER, 0, len(_ANY_USER), text, comma + 1, end) + 1
            kinds[i] = 3 * ((own * count + of_user) * count + of_client) + 2
