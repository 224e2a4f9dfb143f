"""What a law works out once of a set of policies, such as an index of its entries."""

from collections.abc import Callable
from typing import Generic, TypeVar, cast

from streaming.contract.lru_cache import Kept
from streaming.policy.policy_set import PolicySet

T = TypeVar("T")


class Derived(Generic[T]):
    """Looks up what was made of a set's entries; sets that share their entries share it too.

    Args:
        make: makes it.
        kept_max: so many are kept; the one used longest ago leaves.
    """

    def __init__(self, make: Callable[[PolicySet], T], kept_max: int) -> None:
        self._make = make
        # The entries stand in the value, so that their id is nobody else's as long as it is a key.
        self._kept = Kept(kept_max)

    def __call__(self, policies: PolicySet) -> T:
        """What is made of these policies."""
        entries = policies.entries
        found = self._kept.get(id(entries))
        if found is None:
            found = entries, self._make(policies)
            self._kept.put(id(entries), found, 1)
        return cast(T, found[1])
