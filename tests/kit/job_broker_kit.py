"""Events and policies into Weir's topics and decisions out of them, as proxies and their users do it."""

import base64
import time
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from confluent_kafka import Producer
from law_kit import quota
from stack_kit import read_all, records, until

from streaming.contract.topics import Topics
from weir.logs.topic_reader import Record

WAIT_S = 60.0
USERS = 12
TOPICS = Topics()
Event = dict[str, Any]


class Broker:
    """Writes events and policies, reads decisions.

    Args:
        bootstrap: `HOST:PORT`.
        client: more of its producer's properties.
    """

    def __init__(self, bootstrap: str, client: Mapping[str, Any] | None = None) -> None:
        self.bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **(client or {})})

    def write(self, topic: str, value: Event | bytes | None, key: str | None = None, **more: Any) -> None:
        """Send one record."""
        written = orjson.dumps(value) if isinstance(value, dict) else value
        self._producer.produce(topic, written, key, **more)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all is there."""
        assert self._producer.flush(WAIT_S) == 0

    def tell(self, policies: Mapping[str, Any], ts: int = 1) -> None:
        """Change policies, in force from this time on."""
        for path, value in policies.items():
            self.write(TOPICS.policies, {"type": "policy", "ts": ts, "path": path, "value": value}, path)

    def limit(self, user: str, rate: float) -> None:
        """Publish a quota in force from the beginning of time."""
        self.tell({f"quotas[user={user}]": quota(rate)})

    def request(self, name: str, user: str, mutations: int, **fields: Any) -> None:
        """Send one strict request as a proxy does."""
        subject = f"user={user}"
        items = [{"name": name, "mutations": mutations}]
        event = {"type": "request", "id": name, "user": user, "items": items, "subject": subject} | fields
        self.write(TOPICS.requests, event, subject)

    def values(self, topic: str) -> list[bytes]:
        """The values of all that stands on a topic, of packed records those of their rows."""
        return read_all(self.bootstrap, topic)

    def records(self, topic: str) -> list[Record]:
        """All that stands on a topic, of packed records the rows."""
        return list(records(self.bootstrap, topic))

    def until(self, enough: Callable[[list[Event]], Any]) -> list[Event]:
        """The decisions so far, once they are enough."""

        def found() -> list[Event]:
            events = [orjson.loads(value) for value in self.values(TOPICS.decisions)]
            return events if enough(events) else []

        decided: list[Event] = until(found, what="decisions", limit_s=WAIT_S, poll_s=0.2)
        return decided

    def wait_for(self, names: set[str]) -> list[Event]:
        """Wait until all of these are decided; returns everything on the topic."""
        return self.until(lambda found: names <= {one["id"] for one in found})


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
    incomplete = b'{"type":"policy","path":"quotas[user=u1]","value":{"rate":1}}'
    bad: list[tuple[str, str | None, bytes | None]] = [
        (TOPICS.requests, None, b"\xff\x00 not JSON"),
        (TOPICS.requests, "", None),
        (TOPICS.requests, None, b"[" * 3000),
        (TOPICS.requests, "user=u1", b'{"type":"unheard-of"}'),
        (TOPICS.requests, None, b"x" * 900_000),
        (TOPICS.policies, "quotas[user=u1]", incomplete),
        (TOPICS.policies, "no path", b""),
    ]
    for topic, key, value in bad:
        broker.write(topic, value, key)
    # Without a key, by the fields that say whose it is; decided, so the query goes on.
    keyless = {"type": "request", "id": "keyless", "user": "u3", "items": [], "subject": "user=u3"}
    broker.write(TOPICS.requests, keyless)
    broker.flush()
    broker.wait_for({"keyless"})
    until(lambda: len(broker.values("weir.deadletter")) >= len(bad), what="dead letters", limit_s=WAIT_S)
    found = [orjson.loads(letter) for letter in broker.values("weir.deadletter")]
    assert sorted(letter["topic"] for letter in found) == sorted(topic for topic, _, _ in bad)
    values = {base64.b64decode(letter["value_base64"])[:1000] for letter in found}
    assert values == {(value or b"")[:1000] for _, _, value in bad}
