"""What all connections of a proxy know of topics: which are there, and which are just being created."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

from cachetools import LRUCache, TTLCache

from enforcer.wire.pulsar.names import Topic

_DEFAULTS_KEEP_MS: Final = 60_000.0
"""Believed for long: whatever comes of the next question is charged all the same."""


class KnownTopics:
    """Topics that were there a short while ago, and whose turn it is to create one.

    Deletions are not heard of, so nothing is believed for long.

    Attributes:
        partitions: of the partitioned ones, by name.
        defaults: what came of a namespace's last question that could create a topic; 0: no partitions.
        unheard: by user and namespace: the last such question whose answer was not waited for, how many
            there were, and what was charged for all of them.

    Args:
        keep_ms: how long it is believed.
        topics_max: bound on the topics, and on the namespaces; what was not used for longest goes first.
        steady_ms: the steady clock.
    """

    def __init__(self, keep_ms: float, topics_max: int, steady_ms: Callable[[], float]) -> None:
        self._topics: TTLCache[str, bool] = TTLCache(topics_max, keep_ms, steady_ms)
        self.partitions: TTLCache[str, int] = TTLCache(topics_max, keep_ms, steady_ms)
        self.defaults: TTLCache[str, int] = TTLCache(topics_max, _DEFAULTS_KEEP_MS, steady_ms)
        # A client that leaves each time would never be charged: it is kept until the number is known.
        self.unheard: LRUCache[tuple[str, str], tuple[str, int, int]] = LRUCache(topics_max)
        # By name: the turn, and how many have it or wait for it.
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}

    def has(self, name: str, topic: Topic | None) -> bool:
        """Whether a topic is there for producers and consumers, as far as is known.

        The partitions of a partitioned topic are, before they are stored one by one: with it they were paid.
        """
        if name in self._topics:
            return True
        return topic is not None and 0 <= topic.partition < self.partitions.get(topic.whole, 0)

    def is_paid(self, name: str) -> bool:
        """Whether a topic was created here a short while ago, and somebody was charged for it."""
        return self._topics.get(name, False)

    def note(self, name: str, partitions: int, *, paid: bool = False) -> None:
        """A topic is there, with so many partitions; 0: it has none."""
        if partitions:
            self.partitions[name] = partitions
        else:
            self._topics[name] = paid

    def note_unheard(self, user: str, namespace: str, name: str, charged: int) -> None:
        """A client has left before it was known how many partitions come of its question."""
        _, questions, paid = self.unheard.get((user, namespace), ("", 0, 0))
        self.unheard[user, namespace] = name, questions + 1, paid + charged

    @asynccontextmanager
    async def turn(self, name: str, limit_s: float) -> AsyncGenerator[bool]:
        """Wait until nobody else is about to create this topic; True if somebody was.

        Raises:
            TimeoutError: that took longer than the limit.
        """
        lock, users = self._turns.get(name, (asyncio.Lock(), 0))
        self._turns[name] = lock, users + 1
        try:
            async with asyncio.timeout(limit_s):
                await lock.acquire()
            try:
                yield users > 0
            finally:
                lock.release()
        finally:
            lock, users = self._turns.pop(name)
            if users > 1:
                self._turns[name] = lock, users - 1
