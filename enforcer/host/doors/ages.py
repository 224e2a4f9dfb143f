"""Connections that have lasted long enough: each ends once what is under way is answered."""

import random
from typing import Final, Generic, Protocol, TypeVar

DRAIN_MS: Final = 30_000
"""So long an answer may take until then; clients wait no longer."""
_SPREAD: Final = 0.1
"""Those that came together do not come back together."""


class Aging(Protocol):
    """A connection."""

    def drain(self, why: str) -> None:
        """Take nothing new, and end."""
        ...

    def drop(self, reason: str) -> None:
        """End at once."""
        ...


C = TypeVar("C", bound=Aging)


class Ages(Generic[C]):
    """When each connection is to end.

    Args:
        age_max_s: `connection_age_max_s`.
    """

    def __init__(self, age_max_s: int) -> None:
        self._age_max_s = age_max_s
        self._ends_ms: dict[C, float] = {}

    def enter(self, connection: C, now_ms: float) -> None:
        """It begins."""
        if self._age_max_s:
            self._ends_ms[connection] = now_ms + lifetime_s(self._age_max_s) * 1_000

    def leave(self, connection: C) -> None:
        """It is gone."""
        self._ends_ms.pop(connection, None)

    def look(self, connection: C, now_ms: float) -> None:
        """End it if it is time."""
        late_ms = now_ms - self._ends_ms.get(connection, now_ms + 1)
        if late_ms >= DRAIN_MS:
            connection.drop("age")
        elif late_ms >= 0:
            connection.drain("age")


def lifetime_s(age_max_s: int) -> float:
    """How long one connection may last."""
    return age_max_s * (1 - random.random() * _SPREAD)
