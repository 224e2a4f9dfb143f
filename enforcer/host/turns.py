"""Shares the event loop out: what takes long is done in turns, so that one client does not hold up all."""

from collections.abc import Callable
from typing import Final

TURN_S: Final = 0.01
"""After so long the loop looks at its sockets again, whatever else is to be done."""

SAY_S: Final = 10.0
"""Between two lines in the log that a client causes."""


class Turns:
    """The time that requests which are read have taken in this round of the loop.

    Args:
        call_soon: calls a function in the next round of the loop, before what is handed to it later.
        now_s: a clock, s.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], now_s: Callable[[], float]) -> None:
        self._call_soon = call_soon
        self._now_s = now_s
        self._used_s = 0.0
        self._waiting: dict[Callable[[], None], None] = {}
        self._said_s = -SAY_S

    def may_say(self) -> bool:
        """Whether a line that anybody can cause may be logged again."""
        now_s = self._now_s()
        if now_s - self._said_s < SAY_S:
            return False
        self._said_s = now_s
        return True

    def begin(self) -> float | None:
        """Begin to handle a request: the time now, to be given to `end`; None: it must wait for its turn."""
        return None if self._used_s >= TURN_S else self._now_s()

    def over(self, begun_s: float) -> bool:
        """Whether what began then has taken a turn's time, others in this round counted."""
        return self._used_s + self._now_s() - begun_s >= TURN_S

    def wait(self, go: Callable[[], None]) -> None:
        """Call it in a later round, first come, first served."""
        self._waiting[go] = None

    def waits(self, go: Callable[[], None]) -> bool:
        """Whether it is still to be called."""
        return go in self._waiting

    def end(self, begun_s: float) -> None:
        """The request that began then is handled."""
        if not self._used_s:
            self._call_soon(self._next_round)
        self._used_s += self._now_s() - begun_s

    def _next_round(self) -> None:
        self._used_s = 0.0
        try:
            while self._waiting and self._used_s < TURN_S:
                go = next(iter(self._waiting))
                del self._waiting[go]
                go()
        finally:
            if self._waiting and not self._used_s:
                # A mistake of one before it began: the others have their turn all the same.
                self._call_soon(self._next_round)


class Inbox:
    """What a broker sent and has had no turn yet.

    Args:
        turns: of all connections.
        take: takes what has its turn.
        pause: called while something waits: no more shall come.
        resume: called when nothing waits any more.
    """

    __slots__ = ("_pause", "_resume", "_take", "_turns", "_unread")

    def __init__(
        self,
        turns: Turns,
        take: Callable[[bytes], None],
        pause: Callable[[], None],
        resume: Callable[[], None],
    ) -> None:
        self._turns = turns
        self._take = take
        self._pause = pause
        self._resume = resume
        self._unread: list[bytes] = []

    def __len__(self) -> int:
        """Bytes that wait."""
        return sum(map(len, self._unread))

    def add(self, data: bytes) -> None:
        """Bytes of answers: taken now, or in a later round of the loop, behind those that wait."""
        begun_s = None if self._unread else self._turns.begin()
        if begun_s is None:
            self._unread.append(data)
            self._pause()
            self._turns.wait(self.take_all)
            return
        try:
            self._take(data)
        finally:
            self._turns.end(begun_s)

    def take_all(self) -> None:
        """Its turn has come, or nothing more will."""
        if not self._unread:
            return
        data, self._unread = b"".join(self._unread), []
        begun_s = self._turns.begin()
        try:
            self._take(data)
        finally:
            if begun_s is not None:
                self._turns.end(begun_s)
            self._resume()

    def drop(self) -> None:
        """The connection is over."""
        self._unread.clear()
