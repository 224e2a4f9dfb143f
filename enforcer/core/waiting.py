"""Who waits while an account owes: first come, first served (docs/resource_groups.md, "Turns")."""

from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import Final, Protocol

RESERVED_MS: Final = 100.0
"""For how long a Fetch keeps others waiting for what it may bring: a broker with records answers sooner."""
_LOOK_AT: Final = 8
"""Reservations that are looked at in one step, so that a step costs the same whatever their number."""


class Pause(Protocol):
    """What holds the connection back; see pacing.Pacer."""

    def pause(self, wait_ms: float) -> None:
        """Handle nothing until `wake`, and for so long at most."""
        ...

    def wake(self) -> None:
        """Handle the request at the head again, soon."""
        ...


class Waiter(Protocol):
    """A connection that waits for its turn."""

    def wake(self) -> None:
        """Look again, soon: it may be its turn."""
        ...


class WaitingLine:
    """Those who wait for one account in one direction, and what is on its way to others already.

    The one in front looks at the account again by a timer of its own, and is woken when something changes.
    Everybody else is woken on reaching the front, so a step costs the same whatever the number of waiters.

    Attributes:
        queued_ms: what those who wait will cost, ms of the account's rate.
        split_from_ms: from when on one may pass in spite of the debt.
    """

    __slots__ = ("_queue", "_reserved", "_reserved_ms", "queued_ms", "split_from_ms")

    def __init__(self) -> None:
        self.queued_ms = 0.0
        self.split_from_ms = -inf
        self._queue: dict[Waiter, float] = {}
        self._reserved: dict[Waiter, tuple[float, float]] = {}
        self._reserved_ms = 0.0

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(list(self._queue))

    @property
    def busy(self) -> bool:
        """Whether anybody waits, or may have something on its way."""
        return bool(self._queue or self._reserved)

    def is_next(self, waiter: Waiter) -> bool:
        """Whether nobody waits in front of this one."""
        return not self._queue or next(iter(self._queue)) is waiter

    def join(self, waiter: Waiter, cost_ms: float) -> None:
        """Wait, behind those who do; who waits already keeps its place."""
        if waiter not in self._queue:
            self._queue[waiter] = cost_ms
            self.queued_ms += cost_ms

    def leave(self, waiter: Waiter) -> None:
        """Wait no more: admitted, or gone."""
        cost_ms = self._queue.get(waiter)
        if cost_ms is None:
            return
        first = self.is_next(waiter)
        del self._queue[waiter]
        # Sums of differences drift; with nobody there it is nothing.
        self.queued_ms = self.queued_ms - cost_ms if self._queue else 0.0
        if first:
            self.wake_next()

    def wake_next(self) -> None:
        """The one in front looks again."""
        if self._queue:
            next(iter(self._queue)).wake()

    def reserve(self, waiter: Waiter, cost_ms: float, now_ms: float) -> None:
        """Something is on its way that may cost so much; what this waiter had reserved before is settled."""
        self._take_back(waiter)
        self._reserved[waiter] = (cost_ms, now_ms + RESERVED_MS)
        self._reserved_ms += cost_ms

    def settle(self, waiter: Waiter) -> None:
        """It has come, or will not come."""
        if self._take_back(waiter):
            self.wake_next()

    def reserved_ms(self, now_ms: float) -> float:
        """What is on its way and may cost, ms of the account's rate; what takes long counts as nothing."""
        for waiter, (_, until_ms) in list(islice(self._reserved.items(), _LOOK_AT)):
            if until_ms > now_ms:
                # They stand in the order of time, so the rest is younger.
                break
            self._take_back(waiter)
        return self._reserved_ms

    def _take_back(self, waiter: Waiter) -> bool:
        cost_ms, _ = self._reserved.pop(waiter, (-1.0, 0.0))
        if cost_ms < 0.0:
            return False
        self._reserved_ms = self._reserved_ms - cost_ms if self._reserved else 0.0
        return True
