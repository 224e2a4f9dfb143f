"""The mutation quotas of one set of policies as columns, found by the bytes of subjects.

What an entry means and the order of the levels are `contract.policy`'s; here is only a faster way to them,
for a hundred thousand subjects a batch. tests/unit/test_quotas.py holds both equal.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming.columns.byte_strings import (
    NOWHERE,
    USER_IS,
    Bytes,
    Index,
    Integers,
    after_word,
    bytes_in,
    bytes_of,
    cut,
    found,
    index_of,
    is_canonical,
    name_end,
)
from streaming.columns.compiled import lean
from streaming.laws.mutation.rates import sample_count
from streaming.policy.derived import Derived
from streaming.policy.policy_set import Algorithm, Candidate, MutationQuota, PolicySet, mutation_quota_at

MAX_CACHED: Final = 8
"""Sets whose columns are kept: each is as large as the policies, and a batch rarely sees more than two."""
QUOTAS_PREFIX: Final = "quotas["
_ANY_CLIENT: Final = bytes_of(",client-id=<default>")
_ANY_USER: Final = bytes_of("user=<default>,")
_ALONE: Final = ("user=<default>", "client-id=<default>", "user=<default>,client-id=<default>")
_NOTHING: Final = bytes_of("")


class Quotas:
    """Entries that set a mutation rate, numbered in the order of the set.

    Attributes:
        rate: mutations per second.
        burst: mutations that may be done at once.
        samples: windows of the sampled rate; 0: token bucket.
        shadow: decided, not enforced.
    """

    def __init__(self, policies: PolicySet) -> None:
        names, of_name = [], []
        kinds: list[MutationQuota] = []
        known: dict[Any, int] = {}
        for path, value in policies.entries.items():
            if not path.startswith(QUOTAS_PREFIX):
                continue
            # Many entries say the same, and looking up what one says is much cheaper than working it out.
            said = tuple(value.items())
            if said not in known:
                quota = mutation_quota_at(Candidate(level=0, path=path, subject=""), value)
                known[said] = NOWHERE if quota is None else len(kinds)
                kinds += [] if quota is None else [quota]
            if known[said] >= 0:
                names.append(path[len(QUOTAS_PREFIX) : -1])
                of_name.append(known[said])
        kind = np.array(of_name, dtype=np.int64)
        self.rate = np.array([quota.rate for quota in kinds], dtype=np.float64)[kind]
        self.burst = np.array([quota.burst for quota in kinds], dtype=np.float64)[kind]
        self.samples = np.array([_samples(quota) for quota in kinds], dtype=np.int64)[kind]
        self.shadow = np.array([quota.shadow for quota in kinds], dtype=np.bool_)[kind]
        self._index = index_of(pa.array(names, pa.string()))
        text = [bytes_of(name) for name in _ALONE]
        self._alone = np.array(
            [found(self._index, name, 0, len(name), _NOTHING, 0, 0) for name in text], dtype=np.int64
        )

    def sampled(self, numbers: Integers) -> NDArray[np.bool_]:
        """Whether these entries count by the sampled rate."""
        return self.samples[numbers] > 0

    def of(self, subjects: pa.Array) -> Integers:
        """Number of the entry that limits each subject, -1 for none; as `mutation_quota_of_subject`."""
        text, ends = bytes_in(subjects)
        numbers = np.empty(len(subjects), dtype=np.int64)
        _find_all(self._index, self._alone, text, ends, numbers)
        return numbers

    def charged(self, asking: pa.Array) -> pa.Array:
        """The subject that a user with a client-id is charged under, empty for none; as `mutation_quota`.

        Args:
            asking: both, as the canonical subject that names both.
        """
        text, ends = bytes_in(asking)
        bounds = np.empty((2, len(asking)), dtype=np.int64)
        _charge_all(self._index, self._alone, text, ends, bounds)
        return cut(text, bounds[0], bounds[1] - bounds[0])


def _samples(quota: MutationQuota) -> int:
    return sample_count(quota.rate, quota.burst) if quota.algorithm == Algorithm.SAMPLED_RATE else 0


quotas_of: Final = Derived(Quotas, MAX_CACHED)
"""The quotas of a set, which never changes."""


@lean
def _find_all(index: Index, alone: Integers, text: Bytes, ends: Integers, numbers: Integers) -> None:
    for i in range(len(numbers)):
        at, end = ends[i], ends[i + 1]
        numbers[i] = NOWHERE
        if at < end and is_canonical(text, at, end):
            numbers[i] = _find(index, alone, text, at, end)


@lean
def _find(index: Index, alone: Integers, text: Bytes, at: int, end: int) -> int:
    """Number of the entry that limits a canonical subject: levels 3, 6 of a user, 7, 8 of a client-id, and
    1, 2, 4, 5 of both (facts/kip599.md 1.6).
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


@lean
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
