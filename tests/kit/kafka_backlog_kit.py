"""A real cluster with groups that lag, and a KafkaCluster that looks at it."""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import TopicPartition as KafkaPartition
from kafka.errors import KafkaError, NoError
from kafka.structs import OffsetAndMetadata
from threaded import until

from streaming.collect.backlog.cluster import Eviction, RoundQuestion, RoundResult
from streaming.collect.kafka.cluster import KafkaCluster
from streaming.contract.backlog.actions import Position
from streaming.contract.backlog.decisions import EvictionPlan
from streaming.contract.broker_events import Backlog
from streaming.contract.namespaces import Namespaces
from streaming.contract.topics import Cluster
from streaming.kafka_io.admin_client import AdminClient as PythonAdmin
from streaming.laws.backlog.law import Quota, Rules, judge

LIMIT_S = 20.0
PATTERN = "tenant.namespace.topic"
NEVER = -1


def full_name(topic: str) -> str:
    """Pulsar's name of a Kafka topic."""
    return Namespaces(PATTERN).full_name(topic)


class Looker(AbstractContextManager[Any]):
    """A KafkaCluster and the loop that it runs in.

    Args:
        bootstrap: `HOST:PORT` of the cluster.
    """

    def __init__(self, bootstrap: str) -> None:
        self._runner = asyncio.Runner()
        self.cluster = KafkaCluster(Cluster(bootstrap), Namespaces(PATTERN))

    def __exit__(self, *_: object) -> None:
        self.cluster.close()
        self._runner.close()

    def look(self, *, precise_age: bool = False, expires: bool = False) -> RoundResult:
        """One check."""
        wants = RoundQuestion(precise_age=precise_age, expires=lambda topic: expires)
        return self._runner.run(self.cluster.look(wants))

    def report(self, topic: str, **wants: bool) -> Backlog:
        """What one check says of a Kafka topic, or of Pulsar's name of a partition."""
        name = topic if "://" in topic else full_name(topic)
        looked = self.look(**wants)
        return next(one for one in looked.reports if one.topic == name)

    def planned(self, topic: str, share: int = 2) -> tuple[Backlog, list[EvictionPlan]]:
        """What one check says, and what must go to leave such a share of the log, a half or a fourth."""
        report = self.report(topic)
        return report, plans(report, size=sum(one.size for one in report.ledgers) // share)

    def prepare(self, report: Backlog, planned: EvictionPlan, *, may_delete: bool = False) -> Eviction | None:
        """As KafkaCluster."""
        return self._runner.run(self.cluster.prepare(report, planned, may_delete=may_delete))

    def carry_out(self, eviction: Eviction) -> None:
        """As KafkaCluster."""
        self._runner.run(self.cluster.carry_out(eviction))

    def passed(self, topic: str, subscriptions: Sequence[tuple[str, Position]]) -> list[bool | None]:
        """As KafkaCluster."""
        return self._runner.run(self.cluster.passed(full_name(topic), subscriptions))


def rules(*, size: int = NEVER, seconds: int = NEVER, precise: bool = True) -> Rules:
    """Quotas that evict."""
    limits = [Quota(limit=limit, policy="consumer_backlog_eviction") for limit in (size, seconds)]
    return Rules(size=limits[0], age=limits[1], precise_size=precise, precise_age=precise)


def plans(report: Backlog, **quotas: Any) -> list[EvictionPlan]:
    """What the law wants gone."""
    return [EvictionPlan(**line) for line in judge(report, rules(**quotas))["evict"]]


class Lagging:
    """A topic and its groups.

    Args:
        bootstrap: of the cluster.
        topic: Kafka's name.
        partitions: how many it has.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int = 1) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self._partitions = partitions
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.create()

    def create(self) -> None:
        """Create the topic."""
        self.admin.create_topics([NewTopic(self.topic, self._partitions, 1)])[self.topic].result(LIMIT_S)

    def recreate(self) -> None:
        """Delete the topic and create it anew."""
        self.admin.delete_topics([self.topic])[self.topic].result(LIMIT_S)
        until(lambda: self.topic not in self.admin.list_topics(timeout=LIMIT_S).topics, LIMIT_S)
        self.create()

    def write(self, count: int, size: int = 100, partition: int = 0, times: Iterable[int] = ()) -> None:
        """Write records, a batch each so that all take the same."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, "batch.num.messages": 1})
        at = list(times) or [0] * count
        for number in range(count):
            more = {"timestamp": at[number]} if at[number] else {}
            producer.produce(self.topic, f"{number:0{size}d}".encode(), partition=partition, **more)
        assert producer.flush(LIMIT_S) == 0

    def commit(self, group: str, offset: int, partition: int = 0) -> None:
        """Move a group without members.

        By kafka-python: confluent_kafka 2.16.1 crashes where a coordinator that still loads refuses.
        """
        part, deadline = KafkaPartition(self.topic, partition), time.monotonic() + LIMIT_S
        with closing(self._python_admin()) as admin:
            # The coordinator of a new cluster is not there at once.
            while True:
                with contextlib.suppress(KafkaError):
                    moved = admin.alter_group_offsets(group, {part: OffsetAndMetadata(offset, "", -1)})
                    if moved[part] is NoError:
                        return
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def committed(self, group: str) -> int:
        """How far a group has come in the first partition; -1: it has committed nothing."""
        with closing(self._python_admin()) as admin:
            found = admin.list_group_offsets({group: None})[group]
        part = KafkaPartition(self.topic, 0)
        return int(found[part].offset) if part in found else -1

    def _python_admin(self) -> Any:
        return PythonAdmin(cluster=Cluster(self.bootstrap), timeout_ms=round(LIMIT_S * 1000))

    def join(self, group: str, protocol: str = "classic") -> Consumer:
        """A member that has got its partitions, and commits nothing by itself."""
        consumer = Consumer({
            "bootstrap.servers": self.bootstrap, "group.id": group, "group.protocol": protocol,
            "enable.auto.commit": False, "auto.offset.reset": "earliest",
        })  # fmt: skip
        consumer.subscribe([self.topic])
        deadline = time.monotonic() + LIMIT_S
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        return consumer

    def rest(self, group: str, end: int) -> list[int]:
        """The offsets of the first partition that a group still gets, up to the end."""
        consumer = Consumer({
            "bootstrap.servers": self.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        })  # fmt: skip
        with closing(consumer):
            consumer.assign([TopicPartition(self.topic, 0, max(0, self.committed(group)))])
            found = list[int]()
            deadline = time.monotonic() + LIMIT_S
            while not found or found[-1] < end - 1:
                assert time.monotonic() < deadline
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    found.append(int(message.offset() or 0))
            return found
