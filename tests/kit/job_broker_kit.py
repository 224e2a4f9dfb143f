"""Events and policies into Weir's topics and decisions out of them, as proxies and their users do it."""

import base64
import time
from typing import Any

import orjson
from confluent_kafka import Producer
from law_kit import quota
from spark_kit import TOPICS
from stack_kit import read_all, records, until

from weir.logs.topic_reader import Record

WAIT_S = 60.0
USERS = 12


class Broker:
    """Writes events and policies, reads decisions.

    Args:
        bootstrap: `HOST:PORT`.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})

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

    def values(self, topic: str) -> list[bytes]:
        """The values of all that stands on a topic, of packed records those of their rows."""
        return read_all(self._bootstrap, topic)

    def records(self, topic: str) -> list[Record]:
        """All that stands on a topic, of packed records the rows."""
        return list(records(self._bootstrap, topic))

    def wait_for(self, names: set[str]) -> list[bytes]:
        """Wait until all of these are decided; returns everything on the topic."""

        def decided() -> list[bytes]:
            values = self.values("weir.decisions")
            return values if names <= {orjson.loads(value)["id"] for value in values} else []

        found: list[bytes] = until(decided, what=f"{len(names)} decisions", limit_s=WAIT_S, poll_s=0.2)
        return found


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
    until(lambda: len(broker.values("weir.deadletter")) >= len(bad), what="dead letters", limit_s=WAIT_S)
    found = [orjson.loads(letter) for letter in broker.values("weir.deadletter")]
    assert sorted(letter["topic"] for letter in found) == sorted(topic for topic, _, _ in bad)
    values = {base64.b64decode(letter["value_base64"])[:1000] for letter in found}
    assert values == {(value or b"")[:1000] for _, _, value in bad}
