"""What a law works out once of a set of policies, such as an index of its entries."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from streaming.contract.policy import PolicySet

T = TypeVar("T")


class Derived(Generic[T]):
    """Looks up what was made of a set's entries; sets that share their entries share it too.

    Args:
        make: makes it.
        kept_max: so many are kept; the one used longest ago leaves.
    """

    def __init__(self, make: Callable[[PolicySet], T], kept_max: int) -> None:
        self._make = make
        self._kept_max = kept_max
        # The entries stand in the value, so that their id is nobody else's as long as it is a key.
        self._kept: OrderedDict[int, tuple[Mapping[str, Any], T]] = OrderedDict()

    def __call__(self, policies: PolicySet) -> T:
        """What is made of these policies."""
        key = id(policies.entries)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][1]
        made = self._make(policies)
        self._kept[key] = policies.entries, made
        if len(self._kept) > self._kept_max:
            self._kept.popitem(last=False)
        return made
