"""Bytes of SENDs that wait and what closes their producers, bounded for each connection and for the process.

A connection above its bound is not read until half of that is gone: its client's other frames wait too then,
as they do on a broker, which knows nothing finer. Where the process holds too much, only those are not read
that hold more than their part of it, so that who is throttled for long takes nothing from others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

EACH_BYTES: Final = 300
"""What a SEND that waits takes beside its own bytes."""


@dataclass(slots=True, eq=False)
class HeldBytes:
    """What one connection holds.

    Attributes:
        stop_reading: called when it holds too much.
        read_on: called when it does not any more.
        size: bytes.
        unread: it is not read.
    """

    stop_reading: Callable[[], None]
    read_on: Callable[[], None]
    size: int = 0
    unread: bool = False


class Room:
    """All of it.

    Attributes:
        size: bytes that all connections hold.
        sends: SENDs that all hold, and CLOSE_PRODUCERs behind them.

    Args:
        each_max: bound of a connection, bytes.
        all_max: bound of all together; with many small holders it may be twice that.
    """

    def __init__(self, each_max: int, all_max: int) -> None:
        self.size = self.sends = 0
        self._each_max = each_max
        self._all_max = all_max
        self._holding: set[HeldBytes] = set()
        self._unread: set[HeldBytes] = set()

    @property
    def unread(self) -> int:
        """Connections that are not read."""
        return len(self._unread)

    def take(self, held: HeldBytes, size: int) -> None:
        """One of them begins to wait."""
        size += EACH_BYTES
        held.size += size
        self.size += size
        self.sends += 1
        self._holding.add(held)
        if not held.unread and held.size > self._bound():
            held.unread = True
            self._unread.add(held)
            held.stop_reading()

    def give(self, held: HeldBytes, size: int) -> None:
        """It waits no more."""
        size += EACH_BYTES
        was_full = self.size > self._all_max
        held.size -= size
        self.size -= size
        self.sends -= 1
        if not held.size:
            self._holding.discard(held)
        if was_full and self.size <= self._all_max:
            for each in list(self._unread):
                self._look(each)
        elif held.unread:
            self._look(held)

    def _look(self, held: HeldBytes) -> None:
        if held.size <= self._bound() // 2:
            held.unread = False
            self._unread.discard(held)
            held.read_on()

    def _bound(self) -> int:
        if self.size <= self._all_max:
            return self._each_max
        return min(self._each_max, self._all_max // max(1, len(self._holding)))
