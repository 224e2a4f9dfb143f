"""Events and policies into Weir's topics and decisions out of them, as proxies and their users do it."""

import base64
import time
from typing import Any

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition
from law_kit import quota
from spark_kit import TOPICS

from weir.logs.topic_reader import records_of

WAIT_S = 60.0
USERS = 12


class Broker:
    """Writes events and policies, reads decisions.

    Args:
        bootstrap: `HOST:PORT`.
    """

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._reader = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "t", "enable.auto.commit": False}
        )

    def write(self, topic: str, key: str | None, value: bytes | None) -> None:
        """Send one record."""
        self._producer.produce(topic, key=key, value=value)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all is there."""
        assert self._producer.flush(WAIT_S) == 0

    def limit(self, user: str, rate: float) -> None:
        """Publish a quota in force from the beginning of time."""
        path = f"quotas[user={user}]"
        change = {"type": "policy", "ts": 1, "path": path, "value": quota(rate)}
        self.write(TOPICS[1], path, orjson.dumps(change))

    def request(self, name: str, user: str, mutations: int, **fields: Any) -> None:
        """Send one strict request as a proxy does."""
        subject = f"user={user}"
        items = [{"name": name, "mutations": mutations}]
        event = {"type": "request", "id": name, "user": user, "items": items, "subject": subject} | fields
        self.write(TOPICS[0], subject, orjson.dumps(event))

    def values(self, topic: str, number: int) -> list[bytes]:
        """The values in one partition, of packed records those of their rows."""
        return [record.value for message in self.read(topic, number) for record in records_of(message)]

    def read(self, topic: str, number: int = 0) -> list[Any]:
        """Everything on a topic's partition up to its present end."""
        partition = TopicPartition(topic, number, 0)
        _, end = self._reader.get_watermark_offsets(partition, timeout=WAIT_S)
        self._reader.assign([partition])
        found: list[Any] = []
        deadline = time.monotonic() + WAIT_S
        while len(found) < end:
            assert time.monotonic() < deadline
            found += [message for message in self._reader.consume(1000, timeout=0.2) if not message.error()]
        return found

    def wait_for(self, names: set[str]) -> list[bytes]:
        """Wait until all of these are decided; returns everything on the topic."""
        deadline = time.monotonic() + WAIT_S
        while True:
            values = self.values("weir.decisions", 0)
            if names <= {orjson.loads(value)["id"] for value in values}:
                return values
            assert time.monotonic() < deadline, f"{len(values)} decisions for {len(names)} requests"
            time.sleep(0.2)

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()


def load(broker: Broker, first: int, seconds: float) -> set[str]:
    """Some hundred requests a second, more than the quotas allow; returns their ids."""
    names: set[str] = set()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(5):
            number = first + len(names)
            broker.request(f"r{number}", f"u{number % USERS}", number % 7)
            names.add(f"r{number}")
        time.sleep(0.02)
    broker.flush()
    return names


def check_dead_letters(broker: Broker) -> None:
    """Records that cannot be used, without keys, values or sense, each become one dead letter."""
    bad: list[tuple[str, str | None, bytes | None]] = [
        (TOPICS[0], None, b"\xff\x00 not JSON"),
        (TOPICS[0], "", None),
        (TOPICS[0], None, b"[" * 3000),
        (TOPICS[0], "user=u1", b'{"type":"unheard-of"}'),
        (TOPICS[0], None, b"x" * 900_000),
        (TOPICS[1], "quotas[user=u1]", b'{"type":"policy","path":"quotas[user=u1]","value":{"rate":1}}'),
        (TOPICS[1], "no path", b""),
    ]
    for topic, key, value in bad:
        broker.write(topic, key, value)
    # Without a key, by the fields that say whose it is; decided, so the query goes on.
    broker.write(
        TOPICS[0], None, b'{"type":"request","id":"keyless","user":"u3","items":[],"subject":"user=u3"}'
    )
    broker.flush()
    broker.wait_for({"keyless"})
    deadline = time.monotonic() + WAIT_S
    while len(letters := broker.values("weir.deadletter", 0)) < len(bad):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    found = [orjson.loads(letter) for letter in letters]
    assert sorted(letter["topic"] for letter in found) == sorted(topic for topic, _, _ in bad)
    values = {base64.b64decode(letter["value_base64"])[:1000] for letter in found}
    assert values == {(value or b"")[:1000] for _, _, value in bad}
