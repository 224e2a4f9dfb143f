"""What all connections of a proxy share to publish: accounts, bounds and counts."""

from math import inf
from typing import Final

from enforcer.core import bounds
from enforcer.core.account import PUBLISH, Account
from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.laws.backlog.block import Block
from enforcer.laws.backlog.blocks import Blocks
from enforcer.laws.shares.meter import Meter
from enforcer.laws.shares.topic_accounts import Bill, BillItem, ChargeResult, TopicAccounts
from enforcer.pulsar.publish.room import PublishMetrics, Room
from enforcer.pulsar.settings import PulsarSettings
from enforcer.wire.pulsar.commands import TEXT_MAX, ServerError
from streaming.contract.names import QUOTA_GROUP_PREFIX
from streaming.contract.usage_events import DIMENSIONS

_QUEUES_BYTES: Final = 134_217_728
"""SENDs that wait, of all connections; above it those are not read that hold more than their part."""
PUBLISH_QUEUE_BYTES: Final = 16_777_216
"""SENDs of one connection that wait: an eighth of what all may have; above it the client is not read until
half of them are gone."""

_NAMESPACES_PART: Final = 16
"""There is one namespace to remember for so many topics at least, and its name may be long."""
REFUSED, CLOSED = "refused", "closed"
"""What became of a producer: not made, and closed."""
CLOSES_MAX: Final = 1_000
"""Producers closed in one look at all connections, about a second; the others in the next ones."""
_CODES: Final = {
    True: ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR,
    False: ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION,
}
"""Whether it holds -> what tells the client's library so: whose waiting messages stay, and fail at once."""


class Closer:
    """What a block of a topic means to its producers.

    Attributes:
        blocks: of the proxy.

    Args:
        blocks: see there.
    """

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self._look_ms = -inf
        self._left = 0

    def refusal(self, topic: str) -> tuple[int, str] | None:
        """With which code and text a producer of a topic is refused; None: it is not."""
        if not self.blocks.active:
            return None
        block = self.blocks.block(topic)
        if block is None:
            return None
        self.count(block, REFUSED)
        return _CODES[block.holds], block.message

    def may_close(self, now_ms: float) -> bool:
        """Whether one more may be closed in the look of this time."""
        if now_ms != self._look_ms:
            self._look_ms, self._left = now_ms, CLOSES_MAX
        self._left -= 1
        return self._left >= 0

    def count(self, block: Block, outcome: str) -> None:
        """A producer met a block."""
        self.blocks.began(block)
        self.blocks.metrics.requests.labels(*block.kind, outcome).inc()


class PublishContext:
    """Says whom to charge for a SEND, and counts.

    Attributes:
        meter: all accounts.
        pulsar: settings of this kind alone.
        closer: what stands in the way of producers.
        room: what waits.
        metrics: counts of what is done to SENDs.

    Args:
        meter: see there.
        settings: of all proxies.
        pulsar: see there.
        metrics: counts of all proxies.
        blocks: topics that take nothing of their producers.
    """

    def __init__(
        self,
        meter: Meter,
        settings: ProxySettings,
        pulsar: PulsarSettings,
        metrics: Metrics,
        blocks: Blocks,
    ) -> None:
        self.meter = meter
        self.pulsar = pulsar
        self.closer = Closer(blocks)
        self.room = Room(PUBLISH_QUEUE_BYTES, _QUEUES_BYTES)
        self.metrics = PublishMetrics(metrics.registry, self.room, settings.metric_subjects)
        self._throttled = metrics.throttled_frames
        # All topics of a namespace have one account, so that one name stands for them.
        self._by_namespace = TopicAccounts[str](
            meter, "persistent://{}/-".format, max(1, bounds.TOPICS_MAX // _NAMESPACES_PART), 2 * TEXT_MAX
        )

    def of_user(self, user: str) -> Account | None:
        """The account of a user's own byte rate; None: it has none."""
        return self.meter.of_user(user, "", PUBLISH)

    def of_namespace(self, namespace: str) -> Account | None:
        """The account of a namespace's topics; None: it belongs to no group."""
        return self._by_namespace.of(namespace) if self.meter.grouped else None

    def bill(self, user: str, namespace: str, messages: int, size: int) -> Bill:
        """Whom a SEND is charged to."""
        own = self.of_user(user)
        owed = None
        if own is not None:
            self.meter.unmetered += own is self.meter.nowhere
            owed = BillItem(own, None, 0, size)
        return self._by_namespace.bill([(namespace, messages, size)], owed)

    def charge(self, bill: Bill, now_ms: float) -> ChargeResult:
        """Charge it."""
        charged = bill.charge(PUBLISH, now_ms)
        if charged.wait is not None:
            by = "user" if charged.wait.account.name.startswith(QUOTA_GROUP_PREFIX) else "group"
            self._throttled.labels(by, DIMENSIONS[charged.wait.dimension]).inc()
        return charged
