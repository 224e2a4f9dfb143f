"""What was read or worked out last, kept for the next time within a bound."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any


class Kept:
    """Values by key; those used longest ago leave when all are too large together.

    Args:
        size_max: bound on the sum of the sizes, in any unit; the newest value stays, however large it is.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._size = 0
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> Any | None:
        """The value of this key, None if there is none."""
        found = self._values.get(key)
        if found is None:
            return None
        self._values.move_to_end(key)
        return found[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a value of this size, in place of the one that this key had."""
        self._size -= self._values.pop(key, (None, 0))[1]
        self._values[key] = value, size
        self._size += size
        while self._size > self._size_max and len(self._values) > 1:
            self._size -= self._values.popitem(last=False)[1][1]
