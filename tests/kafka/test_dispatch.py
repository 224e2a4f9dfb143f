"""Limits of dispatch at real consumers: rates, order, groups side by side (docs/protocol_notes.md 3.6)."""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from broker_fixtures import apart, serving
from cluster_kit import Cluster, fresh
from confluent_kafka import Consumer, Producer
from consuming_kit import (
    LIMIT_S,
    TRIES,
    Arrivals,
    aio,
    confluent,
    filled,
    holds,
    in_order,
    java,
    kafka_python,
    new_confluent,
    new_java,
    rate,
)
from counted_kit import Counted, count_by, full_name, wall_ms
from kafka import KafkaConsumer
from proxy_kit import ProxyThread, until
from threaded import together
from tls_kit import Way
from traffic_kit import batch

Start = Callable[..., ProxyThread]


def limited(start: Start, **limits: Any) -> tuple[ProxyThread, Counted]:
    """A proxy with limits."""
    running = start()
    counted = Counted(wall_ms, **limits)
    count_by(running.proxy, counted)
    return running, counted


RATES = [
    # Client, limit a second, records in a batch, records: the first second's and those of whole turns.
    pytest.param(confluent, 1_000, 1, 4_000, marks=pytest.mark.soak),
    pytest.param(aio, 100, 6, 402, marks=pytest.mark.soak),
    (new_confluent, 100, 1, 400),
    # Then every client with every rate and batch.
    *(
        pytest.param(client, *case, marks=pytest.mark.soak)
        for client in (confluent, kafka_python, aio, java, new_confluent, new_java)
        for case in (
            (10, 1, 90), (10, 6, 102), (10, 30, 120), (100, 1, 900), (100, 6, 1_002), (100, 30, 1_020),
            (1_000, 1, 9_000), (1_000, 6, 10_002), (1_000, 30, 9_990 + 30),
        )
    ),
]  # fmt: skip


def measured_rate(
    cluster: Cluster, start: Start, consume: Callable[..., Arrivals], limit: int, per_batch: int, count: int
) -> float:
    """What a group gets in a second, every record once."""
    group, topic = fresh("group"), filled(cluster.kafka.bootstrap, count, per_batch)
    running, counted = limited(start, subscriptions={(full_name(topic), group): (limit, 0)})
    arrivals = consume(running.bootstrap, group, topic, count)
    in_order(arrivals, count)
    assert {delivered.place[2] for delivered in counted.delivered} == {group}
    return rate(arrivals)


@pytest.mark.parametrize(("consume", "limit", "per_batch", "count"), RATES)
def test_rates(
    cluster: Cluster, proxy_with: Start, consume: Any, limit: int, per_batch: int, count: int
) -> None:
    """Within 2 % in the long run, whatever client, protocol and batches."""
    holds(lambda: measured_rate(cluster, proxy_with, consume, limit, per_batch, count), limit)


@pytest.mark.parametrize("way", ["tls"], indirect=True)
@pytest.mark.parametrize(
    ("consume", "named"),
    [
        (confluent, "rdkafka"),
        pytest.param(kafka_python, "python", marks=pytest.mark.soak),
        pytest.param(java, "java", marks=pytest.mark.soak),
    ],
)
def test_a_rate_over_tls(
    cluster: Cluster, proxy_with: Start, consume: Callable[..., Arrivals], named: str, way: Way
) -> None:
    """With a login it is the same."""
    start, consume = partial(proxy_with, **way.settings), partial(consume, **getattr(way, named))
    holds(lambda: measured_rate(cluster, start, consume, 100, 1, 300), 100)


def test_others_go_at_full_speed(cluster: Cluster, proxy_with: Start) -> None:
    """Another group on the topic, and another topic of the limited consumer, do not wait."""
    group, other = fresh("group"), fresh("other")
    slow, fast = filled(cluster.kafka.bootstrap, 60, 6), filled(cluster.kafka.bootstrap, 30_000, 500)
    running, _ = limited(proxy_with, subscriptions={(full_name(slow), group): (10, 0)})
    found: dict[str, Arrivals] = {slow: [], fast: []}
    consumer = Consumer({
        "bootstrap.servers": running.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
    })  # fmt: skip
    consumer.subscribe([slow, fast])
    begun = time.monotonic()
    beside: Arrivals = []
    aside = threading.Thread(
        target=lambda: beside.extend(confluent(running.bootstrap, other, slow, 60, **{"client.id": other}))
    )
    aside.start()
    while len(found[slow]) < 42 and time.monotonic() < begun + LIMIT_S:
        for message in consumer.consume(500, 0.05):
            found[message.topic()].append((time.time(), message.partition(), message.offset()))
    consumer.close()
    aside.join()
    in_order(found[fast], 30_000)
    in_order(beside, 60)
    # Those that are not limited have got all long before the limited one has got 42, in four periods' bursts.
    slow_s = found[slow][-1][0] - found[slow][0][0]
    assert slow_s > 1.9
    assert found[fast][-1][0] - found[fast][0][0] < slow_s / 2
    assert beside[-1][0] - beside[0][0] < slow_s / 2


@pytest.mark.soak
def test_a_group_with_less_of_its_own_beside_a_hungry_one(cluster: Cluster, proxy_with: Start) -> None:
    """Under a topic's 40 a second it gets its 10 in each period, and the hungry one the rest."""
    found = [rates_beside(cluster, proxy_with)]
    while not fair(*found[-1]) and len(found) < TRIES:
        found.append(rates_beside(cluster, proxy_with))
    assert fair(*found[-1]), found


def fair(small: float, together: float) -> bool:
    """Whether both are what the limits say; see `holds`."""
    return small == pytest.approx(10, rel=0.1) and together == pytest.approx(40, rel=0.05)


def rates_beside(cluster: Cluster, proxy_with: Start) -> tuple[float, float]:
    """What the group with a limit of its own gets in a second, and both together."""
    topic, small, hungry = filled(cluster.kafka.bootstrap, 400, 1), fresh("small"), fresh("hungry")
    running, _ = limited(
        proxy_with, topics={full_name(topic): (40, 0)}, subscriptions={(full_name(topic), small): (10, 0)}
    )
    found: dict[str, Arrivals] = {}

    def consume(group: str, count: int) -> None:
        found[group] = confluent(running.bootstrap, group, topic, count, **{"client.id": group})

    together(lambda: consume(small, 100), lambda: consume(hungry, 330))
    # While both read, but for the first periods, in which they find their turns.
    since = max(arrivals[0][0] for arrivals in found.values()) + 2
    until = min(arrivals[-1][0] for arrivals in found.values())
    since_s, until_s = int(since) + 1, int(until)
    counts = {
        group: sum(since_s <= at < until_s for at, _, _ in arrivals) for group, arrivals in found.items()
    }
    return counts[small] / (until_s - since_s), sum(counts.values()) / (until_s - since_s)


@pytest.mark.soak
def test_a_rebalance_under_throttle(cluster: Cluster, proxy_with: Start) -> None:
    """A member that joins takes partitions over; the limit is still one, and no record is lost."""
    group, count = fresh("group"), 120
    topic = filled(cluster.kafka.bootstrap, count // 2, 6, partitions=2)
    running, _ = limited(proxy_with, subscriptions={(full_name(topic), group): (20, 0)})
    properties = {
        "bootstrap.servers": running.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": "100", "heartbeat.interval.ms": "500",
    }  # fmt: skip
    members = [Consumer(properties), Consumer(properties)]
    members[0].subscribe([topic])
    found: Arrivals = []
    deadline = time.monotonic() + LIMIT_S
    while len({arrival[1:] for arrival in found}) < count and time.monotonic() < deadline:
        for member in members:
            for message in member.consume(100, 0.02):
                found.append((time.time(), message.partition(), message.offset()))
        if len(found) >= 40 and not members[1].assignment():
            members[1].subscribe([topic])
    for member in members:
        member.close()
    assert {arrival[1:] for arrival in found} == {
        (partition, offset) for partition in (0, 1) for offset in range(count // 2)
    }
    assert len(found) <= count
    # A period's burst that comes late begins the count late.
    assert len(found) <= 20 * (int(found[-1][0]) - int(found[0][0]) + 2)


@pytest.mark.soak
def test_a_limit_that_comes_while_clients_read(cluster: Cluster, proxy_with: Start) -> None:
    """Their fetch sessions end as a broker would end them: no record is lost, and from then on it holds."""
    group = fresh("group")
    topic = filled(cluster.kafka.bootstrap, 600, 6)
    running, counted = limited(proxy_with)
    consumer = KafkaConsumer(
        topic, bootstrap_servers=running.bootstrap, group_id=group, auto_offset_reset="earliest",
        fetch_max_wait_ms=100, max_partition_fetch_bytes=1_024,
    )  # fmt: skip
    found: Arrivals = []
    slow: Arrivals = []
    deadline = time.monotonic() + LIMIT_S
    while len(slow) < 120 and time.monotonic() < deadline:
        for messages in consumer.poll(timeout_ms=10_000, max_records=6).values():
            for message in messages:
                (slow if counted.active else found).append((time.time(), message.partition, message.offset))
        if len(found) >= 300 and not counted.active:
            counted.topics[full_name(topic)] = (20, 0)
            counted.change()
    consumer.close()
    in_order(found + slow, len(found) + len(slow))
    # What had been fetched before comes at once.
    assert slow[-1][0] - slow[-80][0] > 2.5


@pytest.mark.parametrize(
    "level", ["read_committed", pytest.param("read_uncommitted", marks=pytest.mark.soak)]
)
def test_aborted_transactions_do_not_count(cluster: Cluster, proxy_with: Start, level: str) -> None:
    """Where the consumer does not see them; nor do the markers of either."""
    group, topic = fresh("group"), filled(cluster.kafka.bootstrap, 1, 1)
    producer = Producer({"bootstrap.servers": cluster.kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(LIMIT_S)
    for commits in (False, True, False, True):
        producer.begin_transaction()
        for _ in range(20):
            producer.produce(topic, b"x" * 100)
        producer.flush(LIMIT_S)
        (producer.commit_transaction if commits else producer.abort_transaction)(LIMIT_S)
    count = 41 if level == "read_committed" else 81
    running, counted = limited(proxy_with, subscriptions={(full_name(topic), group): (40, 0)})
    arrivals = confluent(running.bootstrap, group, topic, count, **{"isolation.level": level})
    assert len(arrivals) == count
    assert sum(delivered.msgs for delivered in counted.delivered) == count


def test_groups_with_one_client_id(cluster: Cluster, proxy_with: Start) -> None:
    """What they were told to read says whose a fetch is."""
    groups = [fresh("group"), fresh("group")]
    topics = [filled(cluster.kafka.bootstrap, 60, 6), filled(cluster.kafka.bootstrap, 60, 6)]
    running, counted = limited(proxy_with, subscriptions={(full_name(topics[0]), groups[0]): (20, 0)})
    found: dict[str, Arrivals] = {}

    def consume(group: str, topic: str) -> None:
        found[group] = confluent(running.bootstrap, group, topic, 60)

    together(*(partial(consume, *pair) for pair in zip(groups, topics, strict=True)))
    assert found[groups[0]][-1][0] - found[groups[0]][0][0] > 1.0
    assert {delivered.place[2] for delivered in counted.delivered} == {groups[0]}
    known = running.proxy.metrics.registry.get_sample_value
    assert known("weir_dispatch_ambiguous_fetches_total") == 0


@pytest.mark.parametrize("dimension", [pytest.param("Msg", marks=pytest.mark.soak), "Byte"])
def test_policies_limit_a_subscription(cluster: Cluster, dimension: str) -> None:
    """The proxy's own arithmetic, by a policy, without the job's decisions."""
    holds(lambda: rate_by_policy(cluster, dimension), 30)


def rate_by_policy(cluster: Cluster, dimension: str) -> float:
    """What a group gets in a second, a batch of 30 of which is a limit in messages or bytes."""
    group = fresh("group")
    topic = filled(cluster.kafka.bootstrap, 210, 30)
    size = len(batch(30, size=100))
    limit = 30 if dimension == "Msg" else size
    with apart(cluster, topic) as own, serving(own) as running:
        dispatch = running.proxy.dispatch
        rates = {"dispatchRate": {f"dispatchThrottlingRateIn{dimension}": limit}}
        own.policies.put(f"topics.{full_name(topic)}", {"subscriptions": {group: rates}})
        until(lambda: dispatch.active and dispatch.limits(full_name(topic), group))
        arrivals = confluent(running.bootstrap, group, topic, 150)
    in_order(arrivals, 150)
    return rate(arrivals)
