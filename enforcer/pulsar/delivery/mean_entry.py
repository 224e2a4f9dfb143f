"""The mean entry that a consumer got lately: how many may be planned for what is left."""

from math import inf
from typing import Final

_KEPT: Final = 256
"""Entries after which the sums are halved, so that the newest weigh most."""


class MeanEntry:
    """Messages and bytes of an entry.

    >>> mean = MeanEntry()
    >>> mean.add(30, 3_000)
    >>> mean.entries(100, inf, by_entry=False), mean.entries(10, inf, by_entry=False)
    (3, 1)
    >>> mean.entries(10, 15_000, by_entry=True)
    5
    """

    __slots__ = ("_bytes", "_entries", "_msgs")

    def __init__(self) -> None:
        self._msgs = self._bytes = self._entries = 0.0

    def add(self, msgs: int, size: int) -> None:
        """Take an entry."""
        if self._entries >= _KEPT:
            self._msgs, self._bytes, self._entries = self._msgs / 2, self._bytes / 2, self._entries / 2
        self._msgs += msgs
        self._bytes += size
        self._entries += 1.0

    @property
    def known(self) -> bool:
        """Whether any was seen."""
        return self._entries > 0.0

    def units(self, entries: int, *, by_entry: bool) -> tuple[float, float]:
        """What so many entries bring: messages (or entries, if these are counted) and bytes."""
        if not self.known:
            return float(entries), 0.0
        of_each = 1.0 if by_entry else self._msgs / self._entries
        return entries * of_each, entries * self._bytes / self._entries

    def entries(self, units: float, size: float, *, by_entry: bool) -> int:
        """Whole entries that fit into what is left; 1 if none does, or if it is not known how large they are.

        Args:
            units: messages, or entries where these are counted; infinite: not limited.
            size: bytes; infinite: not limited.
            by_entry: entries are counted.
        """
        if not self.known:
            return 1
        of_each, its_size = self.units(1, by_entry=by_entry)
        fitting = min(units / of_each, size / its_size if its_size else inf, float(2**31))
        return max(1, int(fitting))
