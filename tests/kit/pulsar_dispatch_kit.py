"""Dispatch limits in front of a real Pulsar, by a proxy whose policies a test sets: no Kafka, no job."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pulsar
from context_kit import enforce
from pulsar_kit import Got, client, fresh
from pulsar_proxy_kit import PulsarThread, bare_proxy

from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.laws.shares.groups import Groups
from enforcer.pulsar.delivery.part import DeliveryPart
from weir.stack.pulsar import LocalPulsar

SUBSCRIPTION = "sub"


class Limited:
    """A proxy, and the policies that it follows.

    Args:
        proxy: it runs.
    """

    def __init__(self, proxy: PulsarThread) -> None:
        self.proxy = proxy

    def paths(self, changes: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Policies from now on, by path."""
        done = threading.Event()

        def apply() -> None:
            enforcement = self.proxy.proxy.enforcement
            enforce(enforcement.context.policies, enforcement.context.brokers_ms(), changes)
            enforcement.of(Dispatch).look()
            enforcement.of(Groups).look()
            done.set()

        self.proxy.call(apply)
        assert done.wait(10)

    def overcount(self, permits: int) -> None:
        """Let the proxy believe that brokers have so many more for each consumer: they have lost them."""
        done = threading.Event()

        def count() -> None:
            for connection in self.proxy.proxy.connections:
                for part in connection._parts:
                    for consumer in part._consumers.values() if isinstance(part, DeliveryPart) else ():
                        consumer.permits.balance += permits
            done.set()

        self.proxy.call(count)
        assert done.wait(10)

    def sample(self, name: str, **labels: str) -> float:
        """A metric of its own; 0 if it was never touched."""
        return self.proxy.proxy.metrics.registry.get_sample_value(name, labels) or 0.0

    @property
    def service(self) -> str:
        """Where clients connect to."""
        return self.proxy.bootstrap


@contextmanager
def limited(pulsar_: LocalPulsar, own: dict[str, Any] | None = None, **settings: Any) -> Iterator[Limited]:
    """A proxy of its own before a broker; settings as of `bare_proxy`."""
    with bare_proxy(pulsar_.service, own=own, **settings) as proxy:
        yield Limited(proxy)


def rate(msgs: int = -1, size: int = -1, period: int = 1) -> dict[str, int]:
    """A dispatch rate's entry."""
    return {
        "dispatchThrottlingRateInMsg": msgs,
        "dispatchThrottlingRateInByte": size,
        "ratePeriodInSecond": period,
    }


def namespace(*, subscription: Any = None, topic: Any = None) -> dict[str, Any]:
    """Policies of public/default."""
    entry = {"subscriptionDispatchRate": subscription, "dispatchRate": topic}
    return {"namespaces.public/default": {key: value for key, value in entry.items() if value}}


def fill(service: str, topic: str, messages: int, batch: int, size: int = 100) -> None:
    """Publish a backlog, in batches of exactly so many."""
    with client(service) as made:
        producer = made.create_producer(
            topic, batching_enabled=batch > 1, batching_max_messages=max(2, batch),
            batching_max_publish_delay_ms=60_000 if batch > 1 else 1,
            batching_max_allowed_size_in_bytes=4 * 1024 * 1024, max_pending_messages=50_000,
            block_if_queue_full=True,
        )  # fmt: skip
        for number in range(messages):
            producer.send_async(number.to_bytes(8, "big") + b"x" * (size - 8), _must)
        producer.flush()


def _must(result: Any, _: Any) -> None:
    assert result == pulsar.Result.Ok, result


class Reading(AbstractContextManager[Any]):
    """Consumers that note each message when it comes, in threads of the client's.

    Args:
        service: HOST:PORT, or a URL.
        topic: what they read.
        way: options of the clients.
    """

    def __init__(self, service: str, topic: str, **way: Any) -> None:
        self.service, self.topic, self._way = service, topic, way
        self.got: list[list[Got]] = []
        self._clients: list[Any] = []
        self._stack: list[Any] = []

    def add(self, subscription: str = SUBSCRIPTION, *, apart: bool = False, **options: Any) -> Any:
        """One more consumer; on a connection of its own where it is to be `apart`."""
        if apart or not self._clients:
            made = client(self.service, **self._way)
            self._stack.append(made)
            self._clients.append(made.__enter__())
        noted: list[Got] = []
        self.got.append(noted)

        def note(consumer: Any, message: Any) -> None:
            noted.append(Got(time.monotonic(), message.data(), message.topic_name()))
            consumer.acknowledge(message)

        options = {"initial_position": pulsar.InitialPosition.Earliest, "message_listener": note, **options}
        return self._clients[-1].subscribe(self.topic, subscription, **options)

    def times(self) -> list[float]:
        """When messages came, all consumers together."""
        return sorted(got.at for noted in self.got for got in noted)

    def __exit__(self, *_: object) -> None:
        for made in self._stack:
            made.__exit__(None, None, None)


def counts(times: list[float], seconds: int) -> list[int]:
    """Messages in each second from the first one on."""
    return [sum(1 for at in times if second <= at - times[0] < second + 1) for second in range(seconds)]


def new_topic() -> str:
    """A topic that no other test has."""
    return f"persistent://public/default/{fresh('dispatch')}"
