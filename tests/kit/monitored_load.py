"""A little of every law on a running `weir up --pulsar local`, so that every metric has something to show."""

import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Self

import pulsar
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, ResourceType
from pulsar_kit import Admin, client
from stack_kit import alter, new_topics
from threaded import Threaded

VALUE = b"x" * 500
GROUPED, LATE, BLOCKED = "acme.orders.t", "corp.late.evicted", "corp.late.blocked"
ON_PULSAR = "persistent://public/default/watched"
POLICIES = """\
version: 1
quotas:
  - entity: {user: null, client-id: null}
    controller_mutation_rate: 100
  - entity: {user: ANONYMOUS, client-id: watched}
    controller_mutation_rate: 0.5
    controller_mutation_burst: 2
resourcegroups:
  gold: {publishRateInMsgs: 40}
  silver: {publishRateInMsgs: 20}
tenants:
  acme: {resourcegroup: gold}
namespaces:
  public/default:
    resourcegroup: silver
    subscriptionDispatchRate: {dispatchThrottlingRateInMsg: 10, ratePeriodInSecond: 1}
topics:
  persistent://acme/orders/t:
    subscriptionDispatchRate:
      {dispatchThrottlingRateInMsg: 20, dispatchThrottlingRateInByte: 8000, ratePeriodInSecond: 1}
  persistent://corp/late/evicted:
    backlogQuotaMap:
      destination_storage: {limitSize: 4000, policy: consumer_backlog_eviction, actions: true}
      message_age: {limitTime: 3600, policy: consumer_backlog_eviction}
  persistent://corp/late/blocked:
    backlogQuotaMap:
      destination_storage: {limitSize: 4000, policy: producer_exception, actions: true}
backpressure:
  partitions:
    "*": {algorithm: fixed, fixed: {limit: 4}}
broker:
  resourceUsagePublishIntervalInSecs: 1
  backlogQuotaCheckIntervalInSeconds: 1
  preciseBacklogSize: true
"""
_WAIT_S = 20.0


class Load(Threaded):
    """Clients of all kinds, each in a thread that goes on until the end.

    Args:
        ready: the ready file of `weir up`.
    """

    def __init__(self, ready: dict[str, Any]) -> None:
        self._ready, self._number = ready, 0
        self.failed: list[str] = []
        works = (self._write, self._read, self._fall_behind, self._change, self._pulsar, self._administer)
        super().__init__(*(partial(self._run, work) for work in works), limit_s=2 * _WAIT_S)

    def __enter__(self) -> Self:
        new_topics(self._ready["kafka"], GROUPED, LATE, BLOCKED, partitions=2)
        return super().__enter__()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  # said by the test, which waits for what is missing
            self.failed.append(f"{work.__name__}: {error!r}")

    def _write(self) -> None:
        """More than the group's limit, on several connections, for a few slots."""
        producers = [self._producer(f"writer-{number}") for number in range(6)]
        while not self._stopping.wait(0.1):
            for producer in producers:
                with suppress(BufferError):
                    producer.produce(GROUPED, VALUE)
                producer.poll(0)
        for producer in producers:
            producer.purge()
            producer.flush(1)

    def _read(self) -> None:
        consumer = Consumer(
            {**self._client("reader"), "group.id": "readers", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([GROUPED])
        while not self._stopping.is_set():
            consumer.consume(50, 0.2)
        consumer.close()

    def _fall_behind(self) -> None:
        """Two groups that read nothing of what is written."""
        kafka = {"bootstrap.servers": self._ready["kafka"]}
        for name in (LATE, BLOCKED):
            slow = Consumer({**kafka, "group.id": f"slow-{name}", "enable.auto.commit": False})
            slow.commit(offsets=[TopicPartition(name, number, 0) for number in (0, 1)], asynchronous=False)
            slow.close()
        producer = self._producer("behind", **{"message.timeout.ms": "2000", "retries": "0"})
        while not self._stopping.wait(0.05):
            for name in (LATE, BLOCKED):
                with suppress(BufferError):
                    producer.produce(name, VALUE)
            producer.poll(0)
        producer.purge()
        producer.flush(1)

    def _change(self) -> None:
        """Partitions beyond the quota, and what nobody may do."""
        watched = AdminClient(self._client("watched"))
        sneaky = self._producer("sneaky", **{"message.timeout.ms": "2000"})
        while not self._stopping.wait(0.5):
            self._number += 1
            for made in (
                *watched.create_topics([NewTopic(f"made-{self._number}", 4, 1)], request_timeout=5).values(),
                *watched.create_topics([NewTopic(GROUPED, 1, 1)], request_timeout=5).values(),
                alter(watched, "1", {"log.cleaner.threads": 2}, ResourceType.BROKER, request_timeout=5),
            ):
                with suppress(KafkaException):
                    made.result(_WAIT_S)
            with suppress(BufferError, KafkaException):
                sneaky.produce("weir.policies", b"{}")
            with suppress(KafkaException):
                sneaky.list_topics(f"unknown-{self._number}", timeout=2)
            sneaky.poll(0)

    def _pulsar(self) -> None:
        """More than the group may publish, and a subscription may read; a topic that is new each time."""
        with client(self._ready["pulsar_proxy"]) as connected:
            consumer = connected.subscribe(ON_PULSAR, "s")
            producer = connected.create_producer(ON_PULSAR, send_timeout_millis=0, block_if_queue_full=False)
            while not self._stopping.wait(0.05):
                self._number += 1
                for _ in range(3):
                    with suppress(pulsar.PulsarException):
                        producer.send_async(VALUE, lambda _result, _id: None)
                with suppress(pulsar.Timeout):
                    consumer.acknowledge(consumer.receive(50))
                if self._number % 20 == 0:
                    with suppress(pulsar.PulsarException):
                        connected.create_producer(f"{ON_PULSAR}-{self._number}").close()

    def _administer(self) -> None:
        """Policies read and changed, calls for Pulsar, and one who speaks no HTTP."""
        admin = Admin(self._ready["admin"])
        host, _, port = self._ready["admin"].rpartition("/")[2].rpartition(":")
        while not self._stopping.wait(0.3):
            self._number += 1
            admin.ask("GET", "resourcegroups")
            admin.ask("PUT", "resourcegroups/bronze", {"publishRateInMsgs": 10 + self._number % 5})
            admin.ask("GET", "tenants")
            if self._number % 10 == 0:
                admin.ask("PUT", f"persistent/public/default/parts-{self._number}/partitions", 1)
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=2) as strange:
                strange.sendall(b"nonsense\r\n\r\n")
                strange.recv(100)

    def _producer(self, name: str, **more: str) -> Producer:
        return Producer({**self._client(name), "linger.ms": "0", **more})

    def _client(self, name: str) -> dict[str, str]:
        return {"bootstrap.servers": self._ready["proxy"], "client.id": name, "log_level": "0"}


def faulty_topic(kafka: str, *, wrong: bool) -> None:
    """Have `weir.policies` lose its cleanup policy for a while, past the proxy, or give it back."""
    policy = "delete" if wrong else "compact"
    admin = AdminClient({"bootstrap.servers": kafka})
    alter(admin, "weir.policies", {"cleanup.policy": policy}).result(_WAIT_S)
