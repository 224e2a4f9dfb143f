"""The limits of resource groups under one set of policies as columns, found by the bytes of names.

What an entry means is `contract.group_policy`'s; here is only a faster way to it, for a hundred thousand
groups a round. tests/unit/test_shares_limits.py holds both equal.
"""

from math import nan
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming.columns.byte_strings import Bytes, Index, Integers, bytes_in, bytes_of, found, index_of
from streaming.columns.compiled import lean
from streaming.contract.names import QUOTA_GROUP_PREFIX
from streaming.contract.usage_events import DIMENSIONS
from streaming.policy.derived import Derived
from streaming.policy.groups import GroupLimits, group_limits
from streaming.policy.policy_set import PolicySet, Section

MAX_CACHED: Final = 64
"""Sets whose columns are kept: those of a worker's shards have a part of the groups each, and a batch rarely
sees more than two of one shard."""
MAX_QUOTAS: Final = 131_072
"""Quotas of a set whose limits are kept; those of further ones are found anew each time, in 20 us."""
LEARNT_PARTS: Final = 8
"""The index of those is made anew when so great a part of them is not in it."""
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


class _Table(NamedTuple):
    """Limits by name.

    Attributes:
        names: an index of them.
        kind: what each one has, a row of `kinds`.
        kinds: limits that differ from each other; many names have the same.
    """

    names: Index
    kind: Integers
    kinds: Limits


class GroupPolicies:
    """The limits of every group that a set of policies knows."""

    def __init__(self, policies: PolicySet) -> None:
        self._policies = policies
        self._named: _Table | None = None
        self._quotas: dict[str, GroupLimits | None] = {}
        self._learnt = _table([], [])

    def put(self, names: pa.Array, rows: Integers, limits: Limits) -> None:
        """Write the limits of these groups, as `group_limits` says them, into these rows."""
        if self._named is None and len(names) * FEW < len(self._policies.entries):
            self._put_each(names, rows, limits)
            return
        self._named = self._named or self._indexed()
        quotas = pc.starts_with(names, QUOTA_GROUP_PREFIX).to_numpy(zero_copy_only=False)
        self._put_quotas(names.filter(pa.array(quotas)), rows[quotas], limits)
        _put_all(self._named, names.filter(pa.array(~quotas)), rows[~quotas], limits)

    def _put_quotas(self, names: pa.Array, rows: Integers, limits: Limits) -> None:
        """One share serves both rates of a quota, which come from up to eight entries: a table of all that
        there may be is not to be had, so this one holds those that were asked for before.
        """
        missing = _put_all(self._learnt, names, rows, limits)
        if len(missing):
            self._put_each(names.take(pa.array(missing)), rows[missing], limits)
        # Made anew each time that it grows by a part, not for every name.
        if (len(self._quotas) - len(self._learnt.kind)) * LEARNT_PARTS > len(self._quotas):
            self._learnt = _table(list(self._quotas), list(self._quotas.values()))

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

    def _indexed(self) -> _Table:
        """Look at all entries once; many say the same."""
        known: dict[Any, GroupLimits | None] = {}
        names, limits = [], []
        for path, value in self._policies.entries.items():
            name = path.removeprefix(_PATH)
            if path.startswith(_PATH) and not name.startswith(QUOTA_GROUP_PREFIX):
                said = tuple(value.items())
                if said not in known:
                    known[said] = group_limits(self._policies, name)
                names.append(name)
                limits.append(known[said])
        return _table(names, limits)


def _table(names: list[str], limits: list[GroupLimits | None]) -> _Table:
    """Of names that differ from each other."""
    numbers: dict[GroupLimits | None, int] = {}
    kind = [numbers.setdefault(said, len(numbers)) for said in limits]
    kinds = no_limits(len(numbers))
    for said, number in numbers.items():
        _put(kinds, number, said)
    return _Table(index_of(pa.array(names, pa.string())), np.array(kind, dtype=np.int64), kinds)


group_policies_of: Final = Derived(GroupPolicies, MAX_CACHED)
"""The groups of a set, which never changes."""


def _put(limits: Limits, row: int, said: GroupLimits | None) -> None:
    limits.known[row] = said is not None
    limits.shadow[row] = said is not None and said.shadow
    limits.rates[row] = nan if said is None else [nan if rate is None else rate for rate in said.rates]


def _put_all(table: _Table, names: pa.Array, rows: Integers, limits: Limits) -> Integers:
    """Write what the table says into these rows; the places of the groups that it does not know."""
    text, ends = bytes_in(names)
    missing = np.empty(len(rows), dtype=np.int64)
    return missing[: _find_all(table, text, ends, rows, limits, missing)]


@lean
def _find_all(
    table: _Table, text: Bytes, ends: Integers, rows: Integers, limits: Limits, missing: Integers
) -> int:
    count = 0
    for i in range(len(rows)):
        number, row = found(table.names, text, ends[i], ends[i + 1], _NOTHING, 0, 0), rows[i]
        limits.known[row] = limits.shadow[row] = False
        for dimension in range(limits.rates.shape[1]):
            limits.rates[row, dimension] = np.nan
        if number < 0:
            missing[count] = i
            count += 1
            continue
        kind = table.kind[number]
        limits.known[row], limits.shadow[row] = table.kinds.known[kind], table.kinds.shadow[kind]
        for dimension in range(limits.rates.shape[1]):
            limits.rates[row, dimension] = table.kinds.rates[kind, dimension]
    return count
