"""Dispatch limits in front of a real Pulsar: policies, backlogs, and consumers that note what comes."""

import time
from contextlib import ExitStack
from functools import partial
from typing import Any

import pulsar
from pulsar_kit import Got, client, fresh

SUBSCRIPTION = "sub"


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


def filled(service: str, messages: int, batch: int, topic: str = "") -> str:
    """A topic with a backlog of messages of 100 bytes, in batches of exactly so many; its name."""
    topic = topic or new_topic()
    with client(service) as made:
        producer = made.create_producer(
            topic, batching_enabled=batch > 1, batching_max_messages=max(2, batch),
            batching_max_publish_delay_ms=60_000 if batch > 1 else 1,
            batching_max_allowed_size_in_bytes=4 * 1024 * 1024, max_pending_messages=50_000,
            block_if_queue_full=True,
        )  # fmt: skip
        for number in range(messages):
            producer.send_async(number.to_bytes(8, "big") + b"x" * 92, _must)
        producer.flush()
    return topic


def _must(result: Any, _: Any) -> None:
    assert result == pulsar.Result.Ok, result


class Reading(ExitStack):
    """Consumers that note each message when it comes, in threads of the client's.

    Args:
        service: HOST:PORT, or a URL.
        topic: what they read.
        way: options of the clients.
    """

    def __init__(self, service: str, topic: str, **way: Any) -> None:
        super().__init__()
        self.topic, self._make = topic, partial(client, service, **way)
        self.got: list[list[Got]] = []
        self._client: pulsar.Client | None = None

    def add(self, subscription: str = SUBSCRIPTION, *, apart: bool = False, **options: Any) -> Any:
        """One more consumer; on a connection of its own where it is to be `apart`."""
        if apart or self._client is None:
            self._client = self.enter_context(self._make())
        noted: list[Got] = []
        self.got.append(noted)

        def note(consumer: Any, message: Any) -> None:
            noted.append(Got(time.monotonic(), message.data(), message.topic_name()))
            consumer.acknowledge(message)

        options = {"initial_position": pulsar.InitialPosition.Earliest, "message_listener": note, **options}
        return self._client.subscribe(self.topic, subscription, **options)

    def times(self) -> list[float]:
        """When messages came, all consumers together."""
        return sorted(got.at for noted in self.got for got in noted)


def counts(times: list[float], seconds: int) -> list[int]:
    """Messages in each second from the first one on."""
    return [sum(1 for at in times if second <= at - times[0] < second + 1) for second in range(seconds)]


def new_topic() -> str:
    """A topic that no other test has."""
    return f"persistent://public/default/{fresh('dispatch')}"
