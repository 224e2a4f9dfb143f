"""Ways round a limit of dispatch, by one client at a real broker (docs/protocol_notes.md 3.6)."""

import struct
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from cluster_kit import Cluster, fresh
from consuming_kit import filled
from counted_kit import Counted, count_by
from kafka.protocol.consumer import FetchRequest, FetchResponse, HeartbeatRequest, HeartbeatResponse
from kafka_kit import build, request
from proxy_kit import ProxyThread, until
from traffic_kit import batch
from wire_client import WireClient

from enforcer.kafka.dispatch.context import LARGE_MS
from enforcer.wire.kafka.batches import count_records
from enforcer.wire.kafka.traffic import FETCH_PARTS_MAX

VERSION = 12
PER_BATCH, BATCHES = 10, 20
LIMIT = 20
GENERATIONS = count(1)
Start = Callable[..., ProxyThread]


@pytest.fixture(scope="module")
def topic(cluster: Cluster) -> str:
    """A topic of one partition with 20 batches of ten records."""
    return filled(cluster.kafka.bootstrap, PER_BATCH * BATCHES, PER_BATCH)


@pytest.fixture(scope="module")
def running(cluster: Cluster) -> Iterator[ProxyThread]:
    """A proxy that soon answers who has to wait."""
    with ProxyThread(cluster.config(id="ways", dispatch_hold_ms=20)) as started:
        yield started


def limited(running: ProxyThread, **limits: Any) -> Counted:
    """From now on time stands still for it: there is one period, so what is over its limit is seen."""
    counted = Counted(lambda: 500.0, generation=next(GENERATIONS), **limits)
    count_by(running.proxy, counted)
    return counted


def asked(name: str, offset: int, *places: tuple[int, ...], most: int = 1 << 20, **fields: Any) -> Any:
    """A Fetch request that lists a topic in several places, with these partitions."""
    common = {"fetch_offset": offset, "partition_max_bytes": most}
    topics = [
        {"topic": name, "partitions": [common | {"partition": part} for part in parts]} for parts in places
    ]
    whole = {"max_wait_ms": 10, "min_bytes": 1, "max_bytes": 1 << 22, "session_epoch": -1}
    return build(FetchRequest, VERSION, topics=topics, **whole | fields)


def records_of(answer: Any) -> bytes:
    """All that came."""
    return b"".join(part.records or b"" for topic in answer.responses for part in topic.partitions)


def messages(content: bytes) -> int:
    """Whole and part batches, each with all that it says that it holds."""
    count = pos = 0
    while pos < len(content):
        (length,) = struct.unpack_from(">i", content, pos + 8) if len(content) - pos >= 12 else (0,)
        count += PER_BATCH
        pos += 12 + length if length else len(content)
    return count


WAYS: dict[str, Callable[[str, int, int], Any]] = {
    "plain": lambda name, offset, size: asked(name, offset, (0,)),
    "replica": lambda name, offset, size: asked(name, offset, (0,), replica_id=7),
    "debugging replica": lambda name, offset, size: asked(name, offset, (0,), replica_id=-2),
    "twice": lambda name, offset, size: asked(name, offset, (0,), (99,)),
    "behind": lambda name, offset, size: asked(name, offset, (99,), (0,)),
    "same partition": lambda name, offset, size: asked(name, offset, (0, 0), (0,)),
    "half a batch": lambda name, offset, size: asked(name, offset, (0,), most=2 * size - 1),
    "session": lambda name, offset, size: asked(name, offset, (0,), session_epoch=0),
    "committed": lambda name, offset, size: asked(name, offset, (0,), isolation_level=1),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_way_round_a_limit(running: ProxyThread, topic: str, way: str) -> None:
    """However it asks, and from however many connections, it gets what the limit lets it."""
    limited(running, topics={f"persistent://public/default/{topic}": (LIMIT, 0)})
    size = len(batch(PER_BATCH, size=100))
    got = offset = 0
    for _ in range(4):
        with WireClient(running.bootstrap) as client:
            for _ in range(3):
                content = records_of(client.answer_to(WAYS[way](topic, offset, size)))
                got += messages(content)
                offset = got
    assert got <= LIMIT
    assert way == "replica" or got == LIMIT


def test_a_group_that_a_client_only_names_is_not_charged(running: ProxyThread, topic: str) -> None:
    """The broker knows no such member, so its fetches are not that group's."""
    name, group = f"persistent://public/default/{topic}", fresh("victim")
    counted = limited(running, subscriptions={(name, group): (LIMIT, 0)})
    with WireClient(running.bootstrap) as client:
        client.send(build(HeartbeatRequest, 4, group_id=group, generation_id=1, member_id="m"))
        assert client.receive(HeartbeatResponse, 4).error_code != 0
        assert messages(records_of(client.answer_to(asked(topic, 0, (0,))))) == PER_BATCH * BATCHES
    assert counted.delivered == []


VERY_MANY = tuple(range(1, FETCH_PARTS_MAX + 2))
"""Partitions that no topic has."""
FAR = 0x0102030405060708
"""Stands for the offset that is asked for: kafka-python takes seconds to write so many partitions."""


def test_nobody_escapes_dispatch_limits_by_very_many_partitions(running: ProxyThread, topic: str) -> None:
    """Whoever asks for more than can be told apart gets a batch a second, all such requests together."""
    limited(running, topics={f"persistent://public/default/{topic}": (LIMIT, 0)})
    frame, _ = request(asked(topic, FAR, VERY_MANY, (0,)))
    head, _, tail = frame.rpartition(struct.pack(">q", FAR))
    began, got = time.monotonic(), []
    for number in range(3):
        with WireClient(running.bootstrap) as client:
            client.send_frame(head + struct.pack(">q", number * PER_BATCH) + tail)
            got.append(messages(records_of(client.receive(FetchResponse, VERSION))))
    assert got == [PER_BATCH] * 3 and time.monotonic() - began >= 2 * LARGE_MS / 1000


@pytest.mark.soak
def test_nobody_escapes_a_group_by_very_many_partitions(cluster: Cluster, proxy_with: Start) -> None:
    """All that it gets is counted, and waited for."""
    group = fresh("many")
    running = proxy_with()
    topic = cluster.policies.group(group, dispatchRateInMsgs=2)
    filled(cluster.kafka.bootstrap, PER_BATCH * BATCHES, PER_BATCH, name=topic)
    meter = running.proxy.meter
    until(lambda: meter.of_topic(topic), what="the group")
    got, waits = 0, list[int]()
    with WireClient(running.bootstrap) as client:
        # A proxy that is alone may give half a second's worth at first, and owes nothing for that.
        while not (waits and waits[-1]) and len(waits) < BATCHES:
            answer = client.answer_to(asked(topic, got, VERY_MANY, (0,)))
            content = records_of(answer)
            # What is cut off of a batch nobody can read; of so large an answer it is not taken out.
            got += count_records(content, 0, len(content))
            waits.append(answer.throttle_time_ms)
    assert waits[-1] > 0
    assert 0 < got == meter.accounts[group].used[2]
