"""Room for large messages that must be whole before they are read; who finds none is not read meanwhile."""

from collections import deque
from collections.abc import Callable
from typing import Final

LARGE_BYTES: Final = 1_048_576
"""Up to this size a message needs no place in the pool."""


class Pool:
    """Bytes for all large messages together.

    Args:
        room: how many.
    """

    def __init__(self, room: int) -> None:
        self.size = room
        """All of it."""
        self._room = room
        self._queue: deque[Seat] = deque()
        self._waking = False

    @property
    def crowded(self) -> bool:
        """Whether somebody waits."""
        return bool(self._queue)

    def take(self, seat: "Seat", size: int) -> bool:
        """Take room; without it the seat is woken, in turn, when there is some."""
        first = not self._queue or self._queue[0] is seat
        if first and size <= self._room:
            if self._queue:
                self._queue.popleft()
            self._room -= size
            return True
        if seat not in self._queue:
            self._queue.append(seat)
        return False

    def give(self, seat: "Seat", size: int) -> None:
        """Give room back, and leave the queue."""
        self._room += size
        if seat in self._queue:
            self._queue.remove(seat)
        if self._waking:
            return
        # Whoever is woken may leave, so that the next one is first.
        self._waking = True
        try:
            while self._queue:
                first = self._queue[0]
                first.wake()
                if self._queue and self._queue[0] is first:
                    break
        finally:
            self._waking = False


class Seat:
    """One connection's place in the pool.

    Attributes:
        held: bytes that it may gather, 0 while it needs no place or has none.

    Args:
        pool: whose.
        wake: called when it is worth to ask again.
    """

    __slots__ = ("_pool", "held", "waiting", "wake")

    def __init__(self, pool: Pool, wake: Callable[[], None]) -> None:
        self._pool = pool
        self.wake = wake
        self.held = 0
        self.waiting = False

    def fits(self, need: int) -> bool:
        """Whether a message of so many bytes may be gathered now; a small one gives the place back.

        One that is as large as the whole pool, and its length, has a place when nobody else has one.
        """
        need = min(need, max(self._pool.size, LARGE_BYTES))
        if need <= LARGE_BYTES:
            self.leave()
            return True
        if not self.held and self._pool.take(self, need):
            self.held = need
        self.waiting = not self.held
        return self.held > 0

    @property
    def wanted(self) -> bool:
        """Whether others wait for what it holds."""
        return bool(self.held) and self._pool.crowded

    def leave(self) -> None:
        """Nothing large is gathered any more."""
        if self.held or self.waiting:
            size, self.held, self.waiting = self.held, 0, False
            self._pool.give(self, size)
