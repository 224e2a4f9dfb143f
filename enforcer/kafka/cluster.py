"""What the proxy itself asks the cluster: its brokers, its default partition count, ids of Weir's topics."""

import logging
import re
import struct
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource

from enforcer.host.sockets import Address
from enforcer.kafka.guard.protected import IDS_MAX, OwnTopics
from streaming.kafka_io.topic_watch import Watch

DEFAULT_PARTITIONS_REFRESH_MS: Final = 60_000
"""num.partitions changes by an operator's hand, so once a minute is soon enough."""

logger = logging.getLogger(__name__)

BROKERS_MS: Final = 3_000
"""How often it is looked which brokers there are: one that joins has its ports within 5 s."""
_ASK_LIMIT_S: Final = 5.0
PROTECTED_IDS_REFRESH_MS: Final = 2_000
"""So long a topic of Weir's that is made anew is protected by its name alone."""
# All names of a cluster are a large answer: other topics under the prefix are looked for each so many looks.
_LIST_EACH: Final = 30
_NOT_THERE: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)
_DEFAULT_PARTITIONS: Final = "num.partitions"
_LISTENER: Final = re.compile(r"([^,:/\s]+)://(?:\[([^\]]+)\]|([^,:]*)):(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """One look at the cluster.

    Attributes:
        brokers: (id, host, port) of every broker, at the listener that was asked.
        listeners: broker id -> name of each of its listeners, and the address there, as far as it was asked.
        default_partitions: num.partitions; None if it was not looked at, or we may not read it.
    """

    brokers: tuple[tuple[int, str, int], ...]
    listeners: Mapping[int, Mapping[str, Address]] = field(default_factory=dict)
    default_partitions: int | None = None

    def beside(self, known: Collection[Address]) -> list[tuple[int, str, int]]:
        """The brokers at the listener that has one of these addresses; none if that is not a single one."""
        names = {name for its in self.listeners.values() for name, at in its.items() if at in known}
        if len(names) != 1:
            return []
        (name,) = names
        return [(node_id, *its[name]) for node_id, its in self.listeners.items() if name in its]


def listeners_in(setting: str) -> dict[str, Address]:
    """Name of each listener of a broker's setting, and its address."""
    return {name: (six or host, int(port)) for name, six, host, port in _LISTENER.findall(setting)}


class ClusterWatch(Watch):
    """Looks at the brokers.

    Args:
        properties: librdkafka properties of the connection.
        elsewhere: clients use another listener than this connection.
        deliver: gets each view, in the thread.
    """

    def __init__(
        self, properties: Mapping[str, str], elsewhere: bool, deliver: Callable[[ClusterView], object]
    ) -> None:
        super().__init__(properties, BROKERS_MS)
        self._elsewhere = elsewhere
        self._deliver = deliver
        self._due_s = 0.0
        self._listeners: dict[int, dict[str, Address]] = {}

    def _look(self, admin: AdminClient) -> None:
        found = admin.list_topics(topic="", timeout=_ASK_LIMIT_S).brokers.values()
        brokers = tuple((broker.id, str(broker.host), broker.port) for broker in found)
        # First of all: to ask for settings may take long.
        self._deliver(ClusterView(brokers=brokers, listeners=self._listeners))
        if time.monotonic() >= self._due_s:
            self._listeners = {}
            self._due_s = time.monotonic() + DEFAULT_PARTITIONS_REFRESH_MS / 1000
        # The number of partitions is the same for all.
        asked = [node_id for node_id, _, _ in brokers][: None if self._elsewhere else 1]
        new = [node_id for node_id in asked if node_id not in self._listeners]
        if new:
            self._deliver(self._settings(admin, brokers, new))

    def _settings(
        self, admin: AdminClient, brokers: tuple[tuple[int, str, int], ...], new: list[int]
    ) -> ClusterView:
        """The cluster, after new brokers were asked; who does not tell is asked again with all others."""
        default = None
        resources = [ConfigResource(ConfigResource.Type.BROKER, str(node_id)) for node_id in new]
        answers = [admin.describe_configs([one], request_timeout=_ASK_LIMIT_S)[one] for one in resources]
        listeners = dict(self._listeners)
        for node_id, answer in zip(new, answers, strict=True):
            listeners[node_id] = {}
            try:
                said = {name: str(entry.value or "") for name, entry in answer.result(_ASK_LIMIT_S).items()}
            except (KafkaException, TimeoutError) as error:
                logger.info("the settings of broker %d cannot be read: %s", node_id, error)
                continue
            listeners[node_id] = listeners_in(said.get("advertised.listeners") or said.get("listeners", ""))
            if said.get(_DEFAULT_PARTITIONS, "").isdigit():
                default = int(said[_DEFAULT_PARTITIONS])
        self._listeners = listeners
        return ClusterView(brokers=brokers, listeners=listeners, default_partitions=default)


class IdWatch(Watch):
    """Looks which ids Weir's topics have now: requests may name one by it, and one made again has a new one.

    Args:
        properties: librdkafka properties of the connection.
        protected: says which topics are Weir's.
        deliver: gets the ids each time, in the thread.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        protected: OwnTopics,
        deliver: Callable[[frozenset[bytes]], object],
    ) -> None:
        super().__init__(properties, PROTECTED_IDS_REFRESH_MS)
        self._own = protected.topics.all()
        self._protected = protected
        self._names = self._own
        self._ids: dict[str, bytes] = {}
        self._deliver = deliver
        self._looks = 0

    def _look(self, admin: AdminClient) -> None:
        if self._looks % _LIST_EACH == 0:
            self._names = self._listed(admin)
        before, self._ids = self._ids, ids_of(admin, self._names)
        # Who does not know one now, as a broker that has just begun, takes no id away yet.
        self._deliver(frozenset((before | self._ids).values()))
        self._looks += 1

    def _listed(self, admin: AdminClient) -> tuple[str, ...]:
        others = [
            name
            for name in admin.list_topics(timeout=_ASK_LIMIT_S).topics
            if name not in self._own and self._protected.has(name.encode())
        ]
        return (*self._own, *sorted(others)[: IDS_MAX - len(self._own)])


def ids_of(admin: AdminClient, names: tuple[str, ...]) -> dict[str, bytes]:
    """The ids of those topics that are there, by name.

    Raises:
        KafkaException: the cluster does not answer.
        TimeoutError: it takes too long.
    """
    found = {}
    answers = admin.describe_topics(TopicCollection(list(names)), request_timeout=_ASK_LIMIT_S)
    for name, answer in answers.items():
        try:
            found[name] = _bytes(answer.result(2 * _ASK_LIMIT_S).topic_id)
        except KafkaException as error:
            # One that is not ours to see must not keep the others unknown.
            if error.args[0].code() not in _NOT_THERE:
                raise
    return found


def _bytes(topic_id: Any) -> bytes:  # confluent_kafka.Uuid, which has no types
    return struct.pack(">qq", topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits())
