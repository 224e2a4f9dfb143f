"""Who has logged in: how many connections each user has, and who is still nobody after too long."""

from collections import Counter
from typing import Generic, TypeVar

from streaming.contract.events import ANONYMOUS

C = TypeVar("C")


class Users(Generic[C]):
    """The users of all connections.

    Args:
        limit: `connections_per_user`.
        login_s: `login_timeout_s`.
    """

    def __init__(self, limit: int, login_s: int) -> None:
        self._limit, self._login_ms = limit, login_s * 1_000
        self._late_ms: dict[C, float] = {}
        self._user_of: dict[C, str] = {}
        self._counts: Counter[str] = Counter()

    def come(self, connection: C, now_ms: float) -> None:
        """It begins."""
        if self._login_ms:
            self._late_ms[connection] = now_ms + self._login_ms

    def know(self, connection: C, user: str) -> bool:
        """Whose it is; False: that user has as many as it may, and nothing is kept of it."""
        if self._user_of.get(connection) == user:
            return True
        self._leave_user(connection)
        if user == ANONYMOUS:
            return True
        self._late_ms.pop(connection, None)
        if not self._limit:
            return True
        if self._counts[user] >= self._limit:
            return False
        self._counts[user] += 1
        self._user_of[connection] = user
        return True

    def leave(self, connection: C) -> None:
        """It is gone."""
        self._late_ms.pop(connection, None)
        self._leave_user(connection)

    def is_late(self, connection: C, now_ms: float) -> bool:
        """Whether it should have logged in by now."""
        return now_ms >= self._late_ms.get(connection, now_ms + 1)

    def _leave_user(self, connection: C) -> None:
        if (user := self._user_of.pop(connection, None)) is not None:
            self._counts[user] -= 1
            if not self._counts[user]:
                del self._counts[user]
