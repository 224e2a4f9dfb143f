"""Looks at a cluster again and again while a part runs; at Weir's own topics, to say loudly what is wrong.

The part goes on: what it can still do is better than nothing, and the job's records are not lost by waiting.
Nobody overlooks it: an error in the log at each look, and a metric that is not 0.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.kafka_io.weir_topics import TopicFault, admin_of, look
from streaming.metrics import MetricTable, counter, gauge

CHECK_MS = 10_000
"""How often a part looks at Weir's topics, ms."""
LOOK_LIMIT_S = 5.0
logger = logging.getLogger(__name__)


class Watch(ABC):
    """Looks again and again, in a thread: the library's calls block.

    Args:
        properties: librdkafka properties of the connection.
        interval_ms: time between two looks.
    """

    retry_s = 2.0
    """The same after one that found no cluster, if that is shorter."""

    def __init__(self, properties: Mapping[str, Any], interval_ms: int) -> None:
        self._properties = dict(properties)
        self._interval_s = interval_ms / 1000
        self._admin: AdminClient | None = None
        self._one_at_a_time = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End; a look that is under way is not waited for."""
        self._stopping.set()

    def look(self) -> bool:
        """Look once; whether the cluster answers."""
        with self._one_at_a_time:
            try:
                if self._admin is None:
                    self._admin = admin_of(self._properties)
                self._look(self._admin)
            # Also where this machine has no thread left for a client: it may have one at the next look.
            except (WeirError, KafkaException, TimeoutError) as error:
                logger.debug("%s: the cluster does not answer: %s", self._thread.name, error)
                # Another one may be answered (weir_topics.asked_until).
                self._admin = None
                return False
            except Exception:  # of a look; nobody would look again
                logger.exception("%s failed", self._thread.name)
            return True

    @abstractmethod
    def _look(self, admin: AdminClient) -> None:
        """Look once, and tell what is there.

        Raises:
            WeirError, KafkaException, TimeoutError: the cluster does not answer.
        """

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._stopping.wait(self._interval_s if self.look() else min(self.retry_s, self._interval_s))


class TopicMetrics(MetricTable):
    """What a part tells Prometheus of Weir's topics.

    Args:
        registry: of the part.
        part: its name, in the names of both.
    """

    topic_faults = gauge("1 for each thing that is wrong with a topic of Weir", "topic fault")
    topics_replaced = counter("How often a topic of Weir was deleted and made again", "topic")

    def __init__(self, registry: CollectorRegistry, part: str) -> None:
        self.prefix = f"weir_{part}_"
        super().__init__(registry)


class TopicWatch(Watch):
    """Looks at Weir's topics; an absent cluster says nothing about them.

    Args:
        cluster: that holds them.
        metrics: shows what is wrong.
        logger: says it.
        ids: of the topics as they were seen before, by name.
        on_replaced: told the name of a topic that was deleted and made again since it was first seen, in the
            thread.

    Attributes:
        faults: what was wrong when they were looked at last.
        replaced: topics that were made again since this watch began.
    """

    retry_s = inf

    def __init__(
        self,
        cluster: Cluster,
        *,
        metrics: TopicMetrics,
        logger: logging.Logger,
        ids: Mapping[str, str] | None = None,
        on_replaced: Callable[[str], None] = lambda _topic: None,
    ) -> None:
        super().__init__(cluster.properties, CHECK_MS)
        self._cluster = cluster
        self._metrics, self._logger, self._on_replaced = metrics, logger, on_replaced
        for name in cluster.topics.all():
            # From 0 on: a series that appears with 1 shows no increase.
            metrics.topics_replaced.labels(name)
        self._ids = dict(ids or {})
        self.faults: tuple[TopicFault, ...] = ()
        self.replaced: set[str] = set()

    def wrong(self, topic: str) -> str:
        """What was wrong with a topic when it was looked at last; empty: nothing."""
        return "; ".join(each.text for each in self.faults if each.topic == topic)

    def _look(self, admin: AdminClient) -> None:
        seen = look(admin, self._cluster, LOOK_LIMIT_S)
        for each in seen.faults:
            self._metrics.topic_faults.labels(each.topic, str(each.fault)).set(1)
            self._logger.error("%s", each.text)
        # Not all of them at first: a scrape in between would see none, and an alert begin anew.
        was, now = ({(each.topic, str(each.fault)) for each in some} for some in (self.faults, seen.faults))
        for labels in was - now:
            self._metrics.topic_faults.remove(*labels)
        for name in sorted({each.topic for each in self.faults} - {each.topic for each in seen.faults}):
            self._logger.warning("topic %s is as it must be again", name)
        self.faults = seen.faults
        for name, topic_id in seen.ids.items():
            if self._ids.setdefault(name, topic_id) != topic_id:
                self._ids[name] = topic_id
                self.replaced.add(name)
                self._metrics.topics_replaced.labels(name).inc()
                self._logger.error("topic %s was deleted and made again: what it held is gone", name)
                self._on_replaced(name)
