"""The mutation quotas of one set of policies as columns, found by the bytes of subjects.

What an entry means and the order of the levels are `policy.policy_set`'s; here is only a faster way to them,
for a hundred thousand subjects a batch. A property test holds both equal.
"""

from typing import Any, Final, NamedTuple

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
    cut,
    found,
    is_canonical,
    name_end,
)
from streaming.columns.compiled import inner, lean
from streaming.columns.limit_index import NOTHING, LimitIndex
from streaming.policy.derived import PolicyCache
from streaming.policy.policy_set import Algorithm, Candidate, MutationQuota, PolicySet, mutation_quota_at
from streaming.policy.schema import sampled_windows
from streaming.state.row_names import row_name

QUOTAS_PREFIX: Final = "quotas["
_ANY_CLIENT: Final = bytes_of(",client-id=<default>")
_ANY_USER: Final = bytes_of("user=<default>,")
DEFAULTS: Final = ("user=<default>", "client-id=<default>", "user=<default>,client-id=<default>")
"""Entries that may limit any subject of their form."""
_NOTHING: Final = bytes_of("")


class Quota(NamedTuple):
    """What an entry says.

    Attributes:
        rate: mutations per second.
        burst: mutations that may be done at once.
        samples: windows of the sampled rate; 0: token bucket.
        shadow: decided, not enforced.
    """

    rate: float
    burst: float
    samples: int
    shadow: bool


class Quotas(LimitIndex[Quota]):
    """Entries that set a mutation rate, by subject and by the name of its row; fields are those of Quota."""

    def __init__(self, policies: PolicySet) -> None:
        names: list[str] = []
        listed: list[Quota] = []
        known: dict[Any, Quota | None] = {}
        for path, value in policies.entries.items():
            if not path.startswith(QUOTAS_PREFIX):
                continue
            # Many entries say the same, and looking up what one says is much cheaper than working it out.
            said = tuple(value.items())
            if said not in known:
                known[said] = _quota(mutation_quota_at(Candidate(level=0, path=path, subject=""), value))
            quota = known[said]
            if quota is not None:
                name = path[len(QUOTAS_PREFIX) : -1]
                names.append(name)
                listed.append(quota)
                row = row_name(name)
                if row != name:
                    names.append(row)
                    listed.append(quota)
        super().__init__(names, listed)
        self.rate, self.burst = self.column("rate", 0.0), self.column("burst", 0.0)
        self.samples, self.shadow = self.column("samples", 0), self.column("shadow", False)
        text = [bytes_of(name) for name in DEFAULTS]
        self._alone = np.array(
            [found(self.index, name, 0, len(name), _NOTHING, 0, 0) for name in text], dtype=np.int64
        )

    def of(self, subjects: pa.Array) -> Integers:
        """Number of what limits each subject, or the subject of each row, NOTHING if none does; as
        `mutation_quota_of_subject`.
        """
        text, ends = bytes_in(subjects)
        numbers = np.empty(len(subjects), dtype=np.int64)
        _find_all(self.index, self.number, self._alone, text, ends, numbers)
        return numbers

    def charged(self, asking: pa.Array) -> pa.Array:
        """The subject that a user with a client-id is charged under, empty for none; as `mutation_quota`.

        Args:
            asking: both, as the canonical subject that names both.
        """
        text, ends = bytes_in(asking)
        bounds = np.empty((2, len(asking)), dtype=np.int64)
        _charge_all(self.index, self._alone, text, ends, bounds)
        return cut(text, bounds[0], bounds[1] - bounds[0])


def _quota(quota: MutationQuota | None) -> Quota | None:
    if quota is None:
        return None
    sampled = quota.algorithm == Algorithm.SAMPLED_RATE
    return Quota(
        rate=quota.rate, burst=quota.burst, shadow=quota.shadow,
        samples=sampled_windows(quota.rate, quota.burst) if sampled else 0,
    )  # fmt: skip


quotas_of: Final = PolicyCache(Quotas)
"""The quotas of a set, which never changes."""


@lean
def _find_all(
    index: Index, number: Integers, alone: Integers, text: Bytes, ends: Integers, numbers: Integers
) -> None:
    for i in range(len(numbers)):
        at, end = ends[i], ends[i + 1]
        numbers[i] = NOTHING
        if at < end and is_canonical(text, at, end):
            entry = _find(index, alone, text, at, end)
            if entry >= 0:
                numbers[i] = number[entry]


@inner
def _find(index: Index, alone: Integers, text: Bytes, at: int, end: int) -> int:
    """Number of the entry that limits a canonical subject: levels 3, 6 of a user, 7, 8 of a client-id, and
    1, 2, 4, 5 of both (docs/contract.md 2).
    """
    number = found(index, text, at, end, _NOTHING, 0, 0)
    if number >= 0:
        return number
    user = after_word(text, at, end, USER_IS)
    if user < 0:
        return int(alone[1])
    comma = name_end(text, user, end)
    if comma == end:
        return int(alone[0])
    number = found(index, text, at, comma, _ANY_CLIENT, 0, len(_ANY_CLIENT))
    if number < 0:
        number = found(index, _ANY_USER, 0, len(_ANY_USER), text, comma + 1, end)
    return number if number >= 0 else int(alone[2])


@lean
def _charge_all(index: Index, alone: Integers, text: Bytes, ends: Integers, bounds: Integers) -> None:
    for i in range(len(ends) - 1):
        bounds[0, i], bounds[1, i] = _charged(index, alone, text, ends[i], ends[i + 1])


@inner
def _charged(index: Index, alone: Integers, text: Bytes, at: int, end: int) -> tuple[int, int]:
    """The part of a canonical subject of both that is charged: levels 1 to 8 in turn."""
    comma = name_end(text, at + len(USER_IS), end)
    if (
        found(index, text, at, end, _NOTHING, 0, 0) >= 0
        or found(index, text, at, comma, _ANY_CLIENT, 0, len(_ANY_CLIENT)) >= 0
    ):
        return at, end
    if found(index, text, at, comma, _NOTHING, 0, 0) >= 0:
        return at, comma
    if found(index, _ANY_USER, 0, len(_ANY_USER), text, comma + 1, end) >= 0 or alone[2] >= 0:
        return at, end
    if alone[0] >= 0:
        return at, comma
    if alone[1] >= 0 or found(index, text, comma + 1, end, _NOTHING, 0, 0) >= 0:
        return comma + 1, end
    return at, at
