"""The permits of one consumer: those its client gave, and those its broker still has of them.

A client gives permits by FLOW, a broker sends a consumer entries while it has any and takes their messages
off, below zero if the last entry held more (docs/pulsar/dispatch.md). Who keeps permits back decides when
the next entry comes; in the end the broker gets exactly those that the client gave.

At a broker without permits one more lets one entry go, of whatever size:

>>> permits = Permits()
>>> permits.give(1_000)
>>> permits.grant(1)
1
>>> permits.sent(30)
>>> permits.balance, permits.grant(1), permits.bank
(-29, 30, 969)
"""

from math import inf
from typing import Final

PERMITS_MAX: Final = 2**31 - 1
"""Brokers count permits in 32 bits with a sign. What a client gives beyond that is not kept."""
_KEPT: Final = 256
"""Entries after which the sums are halved, so that the newest weigh most."""


class Permits:
    """The permits of one consumer.

    Attributes:
        bank: given by the client, not forwarded.
        balance: forwarded, less those of the messages that came; below 0 the broker sends nothing.
        moves: how often a message came, or permits passed: what a broker said before is not of now.
    """

    __slots__ = ("balance", "bank", "moves")

    def __init__(self) -> None:
        self.bank = self.balance = self.moves = 0

    def give(self, permits: int) -> None:
        """The client gives some, or they are given back for messages that it never gets."""
        self.bank = min(PERMITS_MAX, self.bank + permits)

    def passed(self, permits: int) -> None:
        """The client gave some, and they were forwarded at once."""
        self.moves += 1
        self.balance = min(PERMITS_MAX, self.balance + permits)

    def sent(self, permits: int) -> None:
        """A message came that took so many."""
        self.moves += 1
        self.balance = max(-PERMITS_MAX, self.balance - permits)

    def grant(self, entries: int) -> int:
        """How many to forward so that the broker may send so many entries now, and no more.

        Each entry takes one permit at least; who has fewer than one for each gets fewer entries.
        """
        permits = max(0, min(self.bank, entries - self.balance))
        self.bank -= permits
        self.balance += permits
        return permits

    def grant_all(self) -> int:
        """All that were kept back, to be forwarded."""
        permits, self.bank = self.bank, 0
        self.passed(permits)
        return permits


class MeanEntry:
    """Messages and bytes of an entry as a consumer got them lately: how many may be planned for what is left.

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
