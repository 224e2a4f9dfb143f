"""What the collectors follow on Weir's topics: policies, shares, and decisions on backlogs."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Generic, TypeVar

from confluent_kafka import Message
from prometheus_client import CollectorRegistry

from enforcer.core.feeds.complaints import Complaints
from enforcer.core.feeds.decisions import decisions_in
from enforcer.core.feeds.policies import Policies, policies_tail
from enforcer.core.feeds.rows import packed
from enforcer.core.law import DecisionReader
from enforcer.laws.shares.decisions import READER as SHARE_READER
from streaming.contract.backlog.actions import TYPE as ACTION
from streaming.contract.backlog.actions import BacklogAction, backlog_action
from streaming.contract.backlog.decisions import BacklogDecision, backlog_decision
from streaming.contract.decisions import Share
from streaming.contract.errors import WeirError
from streaming.contract.events import PolicyChange
from streaming.contract.fields import Fields
from streaming.contract.names import namespace_of
from streaming.contract.topics import Cluster
from streaming.kafka_io.brokers_clock import BrokersClock
from streaming.kafka_io.reader import NO_LOG
from streaming.kafka_io.tail import Tail
from streaming.kafka_io.topic_watch import TopicMetrics, TopicWatch
from streaming.policy.policy_set import PolicySet
from weir.logs.times import wall_ms

T = TypeVar("T")

START_S = 30.0
STOP_S = 2.0
_SHARE = b'{"type":"share"'
_SHARES: Final = {SHARE_READER.type: SHARE_READER}
_BACKLOG: Final = (b'{"type":"backlog"', b'{"type":"backlog_action"')


def watch_for(cluster: Cluster, topic: str, anew: Callable[[], None]) -> TopicWatch:
    """Tells when a topic was made again; what else is wrong with topics the job says, and shows."""
    return TopicWatch(
        cluster, metrics=TopicMetrics(CollectorRegistry(), "collect"), logger=NO_LOG,
        on_replaced=lambda name: anew() if name == topic else None,
    )  # fmt: skip


class _Feed(Generic[T]):
    """A topic, followed from `start` to `stop`; made again it is read from its start."""

    def __init__(self, cluster: Cluster, topic: str, tail: Tail[T]) -> None:
        self._topic, self._tail = topic, tail
        self._watch = watch_for(cluster, topic, tail.begin_anew)

    def begin(self) -> None:
        """Begin to read; see `caught_up`."""
        self._tail.start(asyncio.get_running_loop())
        self._watch.start()

    async def start(self) -> None:
        """As `begin`, and wait until what was there has been delivered.

        Raises:
            WeirError: not in time.
        """
        self.begin()
        try:
            async with asyncio.timeout(START_S):
                await self._tail.caught_up.wait()
        except TimeoutError as error:
            raise WeirError(f"{self._topic} could not be read to its end within {START_S:.0f} s") from error

    @property
    def caught_up(self) -> bool:
        """Whether what was there at the beginning has been delivered."""
        return self._tail.caught_up.is_set()

    async def stop(self) -> None:
        """End it."""
        self._watch.stop()
        await self._tail.stop(STOP_S)


class PolicyFeed(_Feed[PolicyChange]):
    """The policies.

    Args:
        cluster: that holds them.
        unusable: counts a record that cannot be used.

    Attributes:
        clock: its brokers', by which they are dated; who writes there teaches it.
    """

    def __init__(self, cluster: Cluster, unusable: Callable[[], None]) -> None:
        topic = cluster.topics.policies
        clock = self.clock = BrokersClock(lambda: time.monotonic() * 1000, wall_ms)
        policies = self._policies = Policies(clock.now_ms, dated=lambda: clock.known)
        complaints = Complaints(topic, unusable)
        super().__init__(cluster, topic, policies_tail(cluster.properties, topic, policies, complaints))

    def policies(self) -> PolicySet:
        """Those in force now."""
        return self._policies.now


class DecisionFeed(_Feed[T]):
    """What somebody wants of the decisions.

    Args:
        cluster: that holds them.
        read: what is wanted of a record; tells the second argument of what cannot be used; must not raise.
        take: gets each, in order, in the loop.
        unusable: counts a record that cannot be used.
        back_ms: what was written so long before the newest record or later is read too.
    """

    def __init__(
        self, cluster: Cluster, read: Callable[[Message, Callable[[str], None]], Sequence[T]],
        take: Callable[[T], None], unusable: Callable[[], None], back_ms: int,
    ) -> None:  # fmt: skip
        topic = cluster.topics.decisions
        complaints = Complaints(topic, unusable)

        def deliver(found: list[T]) -> None:
            for one in found:
                take(one)

        # Our own clock may be ahead of the brokers', and would leave out what was written just now.
        tail = Tail(
            cluster.properties, topic, back_ms=back_ms, from_newest=True,
            parse=lambda message: read(message, complaints), deliver=deliver,
        )  # fmt: skip
        super().__init__(cluster, topic, tail)


def shares_in(now_ms: Callable[[], int], message: Message, unusable: Callable[[str], None]) -> list[Share]:
    """The shares in a record that still stand by `now_ms`, each with what is left of its life."""
    # Of all decisions the shares alone matter, and there may be a great many others.
    if not packed(message) and not (message.value() or b"").startswith(_SHARE):
        return []
    age_ms = max(0, now_ms() - message.timestamp()[1])
    shares = [one for _, one in decisions_in(message, _SHARES, None, unusable)]
    return [replace(one, ttl_ms=one.ttl_ms - age_ms) for one in shares if age_ms < one.ttl_ms]


def backlogs_in(message: Message, unusable: Callable[[str], None]) -> list[BacklogDecision | BacklogAction]:
    """Decisions and actions on backlogs in a record, in order; `unusable` is told why others are left out."""
    if not packed(message) and not (message.value() or b"").startswith(_BACKLOG):
        return []
    return [one for _, one in decisions_in(message, _BACKLOGS, None, unusable)]


def _action(fields: Fields) -> BacklogAction:
    action = backlog_action(fields)
    # It becomes a path where a cluster is asked for it.
    namespace_of(action.topic)
    return action


_BACKLOGS: Final = {
    "backlog": DecisionReader(type="backlog", parse=backlog_decision),
    ACTION: DecisionReader(type=ACTION, parse=_action),
}
