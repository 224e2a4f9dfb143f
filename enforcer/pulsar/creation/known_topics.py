"""What all connections of a proxy know of topics: which are there or just being created, and how one asks."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from cachetools import LRUCache, TTLCache

from enforcer.laws.mutation.admission import CallLater
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from enforcer.laws.mutation.mutations import Mutations
from enforcer.pulsar.link import Link
from enforcer.pulsar.settings import PulsarSettings
from enforcer.wire.pulsar.commands import build, own_request_id
from enforcer.wire.pulsar.frames import PARTITIONED_METADATA
from enforcer.wire.pulsar.names import Topic
from enforcer.wire.pulsar.schema import new_body
from streaming.metrics import MetricTable, counter, gauge

KNOWN_TOPICS_MAX: Final = 10_000
"""Topics known that way."""
KNOWN_MS: Final = 5_000
"""How long a topic that was there is believed to be; made again within it, it may cost nothing."""
_AHEAD_MS: Final = 1_500
"""A quota is looked for so long before it is in force: connections are looked at once a second."""
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


class CreationMetrics(MetricTable):
    """What is counted of topics that clients would create (docs/metrics.md)."""

    prefix = "weir_creation_"

    topics = counter("Topics of requests that would create them, by what is known of them", "found")
    held = gauge("Requests kept that may create a topic")
    refused = counter("Requests that would create a topic and were refused", "why")


class Office:
    """What all connections share.

    Attributes:
        mutations: decides.
        known: topics that are there.
        metrics: counts.
        settings: waits and bounds.

    Args:
        coordinator: of the quotas.
        now_ms: the brokers' time.
        settings: see there.
        call_later: calls a function after so many ms.
    """

    def __init__(
        self, coordinator: QuotaCoordinator, now_ms: Callable[[], int], settings: PulsarSettings,
        call_later: CallLater,
    ) -> None:  # fmt: skip
        self.mutations = Mutations(coordinator, call_later)
        self.known = KnownTopics(KNOWN_MS, KNOWN_TOPICS_MAX, coordinator.clock.steady_ms)
        self.metrics = CreationMetrics(coordinator.metrics.registry)
        self.settings = settings
        self._policies, self._now_ms = coordinator.policies, now_ms

    def limits(self, user: str) -> bool:
        """Whether a quota applies to a user, or soon will."""
        now, at = self._now_ms(), self._policies.at
        return any(at(ts).mutation_quota(user, "") is not None for ts in (now, now + _AHEAD_MS))


class Questions:
    """Questions of our own on a client's connection: does a topic exist, and how many partitions has it?

    They are PARTITIONED_METADATA requests under ids of our own.

    Attributes:
        unanswered: those whose answer has not come, whoever may still wait for it.

    Args:
        link: the connection.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._first = self._next = own_request_id()
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self.unanswered = 0

    async def ask(self, topic: str, limit_s: float) -> Any:
        """Ask for a topic's partitions so that nothing is created; returns the body of the answer.

        Raises:
            TimeoutError: there was none within the limit.
        """
        body = new_body(PARTITIONED_METADATA, topic=topic, metadata_auto_creation_enabled=False)
        return await self.put(body, limit_s)

    async def put(self, body: Any, limit_s: float) -> Any:
        """Send a request with another id; returns the body of its answer.

        Raises:
            TimeoutError: there was none within the limit.
        """
        number = self._next
        self._next += 1
        body.request_id = number
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self.unanswered += 1
        self._link.to_broker(build(PARTITIONED_METADATA, body))
        try:
            async with asyncio.timeout(limit_s):
                return await answer
        finally:
            del self._asked[number]

    def take(self, body: Any) -> bool:
        """A PARTITIONED_METADATA_RESPONSE has come; whether it is to one of ours, in time or not."""
        if not self._first <= body.request_id < self._next:
            return False
        self.unanswered -= 1
        answer = self._asked.get(body.request_id)
        if answer is not None and not answer.done():
            answer.set_result(body)
        return True
