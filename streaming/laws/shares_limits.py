"""The limits of resource groups under one set of policies as columns, found by the bytes of names.

What an entry means is `contract.group_policy`'s; here is only a faster way to it, for a hundred thousand
groups a round. tests/unit/test_shares_limits.py holds both equal.
"""

from functools import lru_cache
from math import nan
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming.contract.group_policy import GroupLimits, group_limits
from streaming.contract.policy import PolicySet, Section
from streaming.contract.policy_schema import QUOTA_GROUP_PREFIX
from streaming.contract.usage_events import DIMENSIONS
from streaming.laws.compiled import lean
from streaming.laws.texts import Bytes, Index, Integers, bytes_in, bytes_of, found, index_of

MAX_CACHED: Final = 8
"""Sets whose columns are kept: each is as large as the policies, and a batch rarely sees more than two."""
MAX_QUOTAS: Final = 131_072
"""Quotas of a set whose limits are kept; those of further ones are found anew each time, in 20 us."""
FEW: Final = 32
"""An index is worth its making when one group in so many of the policies' is asked for."""
_PATH: Final = f"{Section.RESOURCE_GROUPS}."
_NOTHING: Final = bytes_of("")

Doubles = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Limits(NamedTuple):
    """Limits of groups, a row a group.

    Attributes:
        rates: per second, a column for each of DIMENSIONS; NaN: not limited.
        known: whether the policies know the group.
        shadow: decided, but nobody acts on it.
    """

    rates: Doubles
    known: Flags
    shadow: Flags


def no_limits(count: int) -> Limits:
    """Of groups that the policies do not know."""
    flags = np.zeros((2, count), dtype=np.bool_)
    return Limits(rates=np.full((count, len(DIMENSIONS)), nan), known=flags[0], shadow=flags[1])


class GroupPolicies:
    """The limits of every group that a set of policies knows."""

    def __init__(self, policies: PolicySet) -> None:
        self._policies = policies
        self._index: Index | None = None
        self._kinds = no_limits(0)
        self._kind: Integers = np.empty(0, dtype=np.int64)
        self._quotas: dict[str, GroupLimits | None] = {}

    def put(self, names: pa.Array, rows: Integers, limits: Limits) -> None:
        """Write the limits of these groups, as `group_limits` says them, into these rows."""
        if self._index is None and len(names) * FEW < len(self._policies.entries):
            self._put_each(names, rows, limits)
            return
        index = self._index or self._indexed()
        # One share serves both rates of a quota, which come from up to eight entries: no table of those.
        special = pc.starts_with(names, QUOTA_GROUP_PREFIX)
        if pc.any(special).as_py():
            self._put_each(names.filter(special), rows[special.to_numpy(zero_copy_only=False)], limits)
        text, ends = bytes_in(names)
        skipped = np.asarray(special.to_numpy(zero_copy_only=False), dtype=np.bool_)
        _put_all(index, self._kind, self._kinds, text, ends, skipped, rows, limits)

    def _put_each(self, names: pa.Array, rows: Integers, limits: Limits) -> None:
        for row, name in zip(rows.tolist(), names.to_pylist(), strict=True):
            _put(limits, row, self._said(name))

    def _said(self, name: str) -> GroupLimits | None:
        """Of one group; those of quotas, which take up to eight entries, are looked up once."""
        if name in self._quotas:
            return self._quotas[name]
        said = group_limits(self._policies, name)
        if name.startswith(QUOTA_GROUP_PREFIX) and len(self._quotas) < MAX_QUOTAS:
            self._quotas[name] = said
        return said

    def _indexed(self) -> Index:
        """Look at all entries once; many say the same."""
        known: dict[Any, int] = {}
        kinds: list[GroupLimits | None] = []
        names, kind = [], []
        for path, value in self._policies.entries.items():
            name = path.removeprefix(_PATH)
            if path.startswith(_PATH) and not name.startswith(QUOTA_GROUP_PREFIX):
                said = tuple(value.items())
                if said not in known:
                    known[said] = len(kinds)
                    kinds.append(group_limits(self._policies, name))
                names.append(name)
                kind.append(known[said])
        self._kind, self._kinds = np.array(kind, dtype=np.int64), no_limits(len(kinds))
        for number, limits in enumerate(kinds):
            _put(self._kinds, number, limits)
        self._index = index_of(pa.array(names, pa.string()))
        return self._index


@lru_cache(maxsize=MAX_CACHED)
def group_policies_of(policies: PolicySet) -> GroupPolicies:
    """The groups of a set, which never changes."""
    return GroupPolicies(policies)


def _put(limits: Limits, row: int, said: GroupLimits | None) -> None:
    limits.known[row] = said is not None
    limits.shadow[row] = said is not None and said.shadow
    limits.rates[row] = nan if said is None else [nan if rate is None else rate for rate in said.rates]


@lean
def _put_all(
    index: Index, kind: Integers, kinds: Limits, text: Bytes, ends: Integers, skipped: Flags,
    rows: Integers, limits: Limits,
) -> None:  # fmt: skip
    for i in range(len(rows)):
        if skipped[i]:
            continue
        number = found(index, text, ends[i], ends[i + 1], _NOTHING, 0, 0)
        row = rows[i]
        limits.known[row] = number >= 0
        limits.shadow[row] = number >= 0 and kinds.shadow[kind[number]]
        for dimension in range(limits.rates.shape[1]):
            limits.rates[row, dimension] = kinds.rates[kind[number], dimension] if number >= 0 else np.nan
