"""One budget for the memory of the process: what connections keep, and what large messages are gathered in.

Half of it is for connections; the other half for tables and what Python itself needs. When their half comes
near, who holds most ends first. Messages that must be whole before they are read have room within it, in
turn: who finds none is not read meanwhile.
"""

import logging
import resource
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from enforcer.core.metrics import Traffic

logger = logging.getLogger(__name__)

LARGE_BYTES: Final = 1_048_576
"""Up to this size a message needs no seat."""
_PAGE_BYTES: Final = resource.getpagesize()
_GROWN: Final = 64
"""While the process grows all are asked again for each such part of their half,"""
_LOOKS: Final = 20
"""and else once in so many looks, a second: to ask ten thousand takes longer than the time between two."""


class Holder(Protocol):
    """Who keeps bytes: a connection."""

    @property
    def held_bytes(self) -> int:
        """What it keeps: received and not handled, or waiting to be written."""

    def cut(self, reason: str) -> None:
        """End at once and keep nothing."""


def resident_bytes() -> int:
    """What the process has in memory now."""
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * _PAGE_BYTES


class Budget:
    """What all connections of a process may keep.

    Nothing is counted per request. Connections cannot keep more than the process has, so they are only asked
    when that exceeds their half.

    Attributes:
        gathered_bytes: of all large messages together.

    Args:
        limit_bytes: of the process.
        gathered_bytes: see there.
        holders: all who may be asked.
        traffic: shows what was found.
        measure: what the process has, bytes.
    """

    def __init__(
        self,
        limit_bytes: int,
        gathered_bytes: int,
        holders: Callable[[], Iterable[Holder]],
        traffic: Traffic,
        measure: Callable[[], int] = resident_bytes,
    ) -> None:
        self.gathered_bytes = self._room = gathered_bytes
        self._half_bytes = limit_bytes // 2
        self._holders = holders
        self._traffic = traffic
        self._measure = measure
        self._queue: deque[Seat] = deque()
        self._waking = False
        # What the process had when all were asked, or less if it had since; looks since then.
        self._asked_bytes = self._looks = 0

    def look(self) -> None:
        """End those who hold most, until the rest fits."""
        resident = self._traffic.resident = self._measure()
        self._asked_bytes = min(self._asked_bytes, resident)
        self._looks += 1
        grown = (resident - self._asked_bytes) * _GROWN >= self._half_bytes
        if resident <= self._half_bytes or not (grown or self._looks >= _LOOKS):
            return
        self._asked_bytes, self._looks = resident, 0
        holdings = [(holder.held_bytes, holder) for holder in self._holders()]
        total = sum(size for size, _ in holdings)
        if total <= self._half_bytes:
            return
        holdings.sort(key=lambda holding: holding[0])
        logger.warning("connections hold %d bytes, the greediest are ended", total)
        while total > self._half_bytes:
            size, holder = holdings.pop()
            total -= size
            holder.cut("memory")

    @property
    def crowded(self) -> bool:
        """Whether somebody waits for a seat."""
        return bool(self._queue)

    def take(self, seat: "Seat", size: int) -> bool:
        """Take room for a message; without it the seat is woken, in turn, when there is some."""
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
    """Where one connection gathers a large message.

    Attributes:
        held: bytes that it may gather, 0 while it needs no room or has none.

    Args:
        budget: whose room.
        wake: called when it is worth to ask again.
    """

    __slots__ = ("_budget", "held", "waiting", "wake")

    def __init__(self, budget: Budget, wake: Callable[[], None]) -> None:
        self._budget = budget
        self.wake = wake
        self.held = 0
        self.waiting = False

    def fits(self, need: int) -> bool:
        """Whether a message of so many bytes may be gathered now; a small one gives the room back.

        One that is as large as all room, and its length, has it when nobody else has any.
        """
        need = min(need, max(self._budget.gathered_bytes, LARGE_BYTES))
        if need <= LARGE_BYTES:
            self.leave()
            return True
        if 0 < self.held < need:
            # Another message, behind the one that it was for: it stands in line anew.
            self.leave()
        if not self.held and self._budget.take(self, need):
            self.held = need
        self.waiting = not self.held
        return self.held > 0

    @property
    def wanted(self) -> bool:
        """Whether others wait for what it holds."""
        return bool(self.held) and self._budget.crowded

    def leave(self) -> None:
        """Nothing large is gathered any more."""
        if self.held or self.waiting:
            size, self.held, self.waiting = self.held, 0, False
            self._budget.give(self, size)
