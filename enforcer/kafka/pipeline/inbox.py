"""A broker's answers that are gone through, as those to a metered Fetch, and so are taken in turns."""

from collections.abc import Callable

from enforcer.host.turns import Turns


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
