"""The names of topic ids that a connection asks for, which a test answers."""

from collections.abc import Callable, MutableMapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from clock_kit import Waiter

from enforcer.kafka.names import NameResolver


class Naming(NameResolver):
    """What one connection needs: its questions are `asked` of it.

    Args:
        names: of all connections.
        connection: see there.
        proven: whether the broker has answered it before.
    """

    def __init__(
        self, names: MutableMapping[bytes, str], connection: Waiter, steady_ms: Callable[[], float],
        proven: bool = True,
    ) -> None:  # fmt: skip
        link: Any = SimpleNamespace(pacer=connection)
        super().__init__(names, link, steady_ms)
        self.proven, self._questions = proven, connection.asked

    def _look_up(self, topics: list[bytes]) -> None:
        self._questions.append((topics, partial(self._learn, topics)))
