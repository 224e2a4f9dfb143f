"""One connection's Fetch requests under limits of dispatch, without a connection: what goes to the broker."""

from collections.abc import Mapping
from typing import Any

import pytest
from cachetools import LRUCache
from clock_kit import Waiter
from counted_kit import Counted
from counted_kit import full_name as full
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka_kit import build, decode, response
from naming_kit import Naming
from sample_kit import sample_of
from traffic_kit import batch, fetch_request, key_of, topic_id

from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.kafka.addresses.brokers import Brokers
from enforcer.kafka.dispatch.context import FetchContext
from enforcer.kafka.dispatch.fetches import Fetches, Plan
from enforcer.kafka.groups.readers import Client

CLIENT = Client("alice", "10.0.0.1", "tests")
ADDRESS = ("kafka", 9092)
BROKER = "broker-kafka:9092"
GROUP = "g"


class World:
    """What connections share, with a clock; every topic `t` is limited to ten messages a second at first."""

    def __init__(self, settings: Mapping[str, Any] | None = None, **limits: Any) -> None:
        self.now_ms = 5_000.0
        self.counted = Counted(lambda: self.now_ms, **(limits or {"topics": {full("t"): (10, 0)}}))
        self.metrics = Metrics(1)
        self.names: LRUCache[bytes, str] = LRUCache(1_000)
        self.brokers = Brokers(
            listen_host="", advertise="", port_base=0, brokers_max=1, serve=lambda _socket, _broker: None,
            domain="example.com",
        )  # fmt: skip
        self.desk = FetchContext(
            self.counted, ProxySettings(**settings or {}), self.metrics, self.brokers, self.names,
            lambda: self.now_ms,
        )

    def change(self) -> None:
        """Limits may have changed."""
        self.counted.generation += 1

    def counter(self, name: str) -> float:
        """A metric of ours."""
        return sample_of(self.metrics.registry, f"weir_dispatch_{name}_fetches_total", {})


class Rig(Waiter):
    """A connection.

    Args:
        world: what it shares with others.
        version: of its requests.
        proven: whether the broker has answered it before.
        met: whether it has waited for what other proxies know of it.
    """

    def __init__(self, world: World, version: int = 12, proven: bool = True, met: bool = True) -> None:
        super().__init__()
        self.world, self.version = world, version
        naming = Naming(world.names, self, lambda: world.now_ms, proven)
        self.fetches = Fetches(world.desk, self, naming)
        self.fetches.met = met

    def plan(self, topics: Mapping[str, int], **fields: Any) -> Plan | None:
        """What becomes of a request for topics with so many partitions."""
        frame, header = fetch_request(self.version, topics, **fields)
        return self.fetches.plan(frame, header, CLIENT, ADDRESS)

    def sent(self, topics: Mapping[str, int], **fields: Any) -> tuple[Any, Plan]:
        """The same as it goes to the broker."""
        plan = self.plan(topics, **fields)
        assert plan is not None and plan.frame
        return decode(FetchRequest, self.version, plan.frame), plan

    def begins(self, topics: Mapping[str, int], session: int = 9) -> None:
        """A session begins with a request for these topics, and the broker says which."""
        _, plan = self.sent(topics, epoch=0)
        assert plan.cut is None and plan.look is not None
        plan.look(fetched(self.version, {}, 0, session_id=session))

    def names(self, message: Any) -> list[bytes]:
        """The topics of a message."""
        topics = message.topics if isinstance(message, FetchRequest) else message.responses
        if self.version >= 13:
            return [topic.topic_id.bytes for topic in topics]
        return [topic.topic.encode() for topic in topics]

    def got(self, plan: Plan, topics: Mapping[str, list[bytes]], high: int = 1_000, **fields: Any) -> Any:
        """What the client gets when the broker sends these records."""
        assert plan.cut is not None
        found = plan.cut(fetched(self.version, topics, high, **fields))
        return decode(FetchResponse, self.version, found)

    def gets(self, topics: Mapping[str, int], records: Mapping[str, list[bytes]], **fields: Any) -> Any:
        """What the client gets when a request for topics goes on and the broker sends these records."""
        return self.got(self.sent(topics)[1], records, **fields)

    def key(self, name: str) -> bytes:
        """A topic as messages name it."""
        return key_of(name, self.version >= 13)


def two_waiting() -> tuple[World, Rig, Rig]:
    """Two connections; the first was delivered all of a second's rate, and both ask for more."""
    world = World({"dispatch_hold_ms": 10_000})
    first, second = Rig(world), Rig(world)
    first.gets({"t": 1}, {"t": [batch(10)]})
    assert first.plan({"t": 1}) is None and second.plan({"t": 1}) is None
    return world, first, second


def counted_looks(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of which topics it is asked from now on what is left."""
    looks, left = list[str](), world.counted.left_at

    def look(moment: Any, topic: str, group: str, others: Any = None) -> Any:
        looks.append(topic)
        return left(moment, topic, group, others)

    monkeypatch.setattr(world.counted, "left_at", look)
    return looks


def fetched(version: int, topics: Mapping[str, list[bytes]], high: int, **fields: Any) -> bytes:
    """A Fetch response whose partitions have this high watermark."""
    offsets = {"high_watermark": high, "last_stable_offset": high, "log_start_offset": 0}
    data = [
        {
            "topic_id" if version >= 13 else "topic": topic_id(name) if version >= 13 else name,
            "partitions": [
                {"partition_index": index, "records": records, **offsets}
                for index, records in enumerate(batches)
            ],
        }
        for name, batches in topics.items()
    ]
    return response(build(FetchResponse, version, responses=data, **fields))


def sizes(message: Any) -> list[list[int]]:
    """Bytes of the records of each partition of each topic."""
    return [[len(part.records or b"") for part in topic.partitions] for topic in message.responses]
