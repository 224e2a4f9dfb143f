"""Metering and shares at a real broker: each client library, each way of naming topics, three proxies."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from broker_fixtures import own_cluster, serving
from cluster_kit import Cluster, fresh
from confluent_kafka import Producer
from consuming_kit import Arrivals, confluent, kafka_python
from kafka import KafkaProducer
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.producer import ProduceResponse
from kafka_kit import decode
from proxy_kit import Decider, ProxyThread, until
from stack_kit import new_topics, put, read_all
from traffic_kit import batch, fetch_request, produce, produce_of
from wire_client import WireClient, metadata_request

from enforcer.core.account import Account
from enforcer.wire.kafka.batches import count_records

INTERVAL = {"resourceUsagePublishIntervalInSecs": 1}
cluster = own_cluster("shares")


@pytest.fixture(scope="module")
def proxy(cluster: Cluster) -> Iterator[ProxyThread]:
    """The one proxy that is alive."""
    with serving(cluster, id="alone") as running:
        yield running


@pytest.fixture(scope="module")
def shares(cluster: Cluster) -> Iterator[Decider]:
    """The law of shares, with rounds of a second."""
    cluster.policies.put("broker", INTERVAL)
    with Decider(cluster.kafka.bootstrap, cluster.topics, "shares") as decider:
        yield decider
    cluster.policies.put("broker", None)


@pytest.fixture
def group(cluster: Cluster, shares: Decider) -> Iterator[Callable[..., str]]:
    """Make groups, each with a namespace of its own; returns the name of a topic in it."""
    with ExitStack() as undo:

        def make(**limits: Any) -> str:
            name = fresh("g")
            topic = cluster.policies.group(name, **limits)
            undo.callback(cluster.policies.ungroup, name)
            new_topics(cluster.kafka.bootstrap, topic)
            # Its leader may be told of it a little later.
            until(lambda: led(cluster, topic), what=f"a leader of {topic}")
            return topic

        yield make


def led(cluster: Cluster, topic: str) -> bool:
    """Whether the leader of a new topic answers for it."""
    with WireClient(cluster.kafka.bootstrap) as direct:
        direct.send_frame(fetch_request(11, {topic: 1}, epoch=-1)[0])
        read = decode(FetchResponse, 11, direct.receive_frame())
        return bool(read.responses[0].partitions[0].error_code == 0)


def account(proxy: ProxyThread, topic: str) -> Account | None:
    """A group's account at a proxy, once there is one."""
    return proxy.proxy.meter.accounts.get(topic.split(".")[1])


def metered(proxy: ProxyThread, topic: str, proxies: int = 1) -> None:
    """Wait until the proxy knows the group of a topic, and how many proxies divide its limit."""
    path = f"namespaces.acme/{topic.split('.')[1]}"
    until(lambda: path in proxy.entries, what=f"the proxy knows the group of {topic}")
    proxy.await_part(1 / proxies)


def used(proxy: ProxyThread, topic: str) -> list[int]:
    """Records and bytes, published and dispatched."""
    found = account(proxy, topic)
    return [0] * 4 if found is None else found.used


def confluent_produce(bootstrap: str, topic: str, count: int) -> None:
    """librdkafka: Produce by name, or by id where it can."""
    put(bootstrap, topic, *[b"x" * 100] * count)


def python_produce(bootstrap: str, topic: str, count: int) -> None:
    """kafka-python."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)
    for _ in range(count):
        producer.send(topic, b"x" * 100)
    producer.flush(30)
    producer.close(5)


@pytest.mark.parametrize("write", [confluent_produce, python_produce])
def test_every_producer_is_counted(
    proxy: ProxyThread, group: Callable[..., str], write: Callable[[str, str, int], None]
) -> None:
    """To the record; bytes are those of the batches."""
    topic = group(publishRateInMsgs=1_000_000)
    metered(proxy, topic)
    write(proxy.bootstrap, topic, 500)
    records, size, _, _ = used(proxy, topic)
    assert records == 500
    assert 500 * 100 < size < 500 * 190


@pytest.mark.parametrize("read", [confluent, kafka_python])
def test_every_consumer_is_counted(
    cluster: Cluster, proxy: ProxyThread, group: Callable[..., str], read: Callable[..., Arrivals]
) -> None:
    """At least what it got: a client may fetch a batch twice, or drop the head of one."""
    topic = group(dispatchRateInMsgs=1_000_000)
    metered(proxy, topic)
    confluent_produce(cluster.kafka.bootstrap, topic, 500)
    assert len(read(proxy.bootstrap, fresh("c"), topic, 500)) >= 500
    assert 500 <= used(proxy, topic)[2] <= 1_000
    assert used(proxy, topic)[0] == 0


def test_without_groups_nothing_is_read(cluster: Cluster, proxy: ProxyThread) -> None:
    """The meter is off, so a broken record set costs nothing and passes."""
    meter = proxy.proxy.meter
    # What other tests had ends record by record: namespaces before their groups.
    until(lambda: not meter.active and not meter.accounts, what="an idle meter")
    topic = fresh("plain")
    confluent_produce(proxy.bootstrap, topic, 10)
    assert not meter.active and not meter.accounts


def send(client: WireClient, topic: str, count: int, version: int = 9, acks: int = 1) -> None:
    """Send a Produce request."""
    client.send_frame(produce(version, {topic: [batch(count)]}, acks)[0])


def answer(client: WireClient, version: int = 9) -> tuple[int, int]:
    """Error and throttle time of the next Produce response."""
    read = decode(ProduceResponse, version, client.receive_frame())
    return read.responses[0].partition_responses[0].error_code, read.throttle_time_ms


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_produce_is_throttled_and_the_next_one_waits(
    proxy: ProxyThread, group: Callable[..., str], wire: Callable[..., WireClient], version: int
) -> None:
    """The response comes at once and says how long; what is sent before that has its turn then."""
    topic = group(publishRateInMsgs=100)
    metered(proxy, topic)
    client = wire("throttled")
    send(client, topic, 2, version)
    assert answer(client, version) == (0, 0)
    # Alone it has the whole limit with or without a share, and half a second of it in stock: 48 or a little
    # more are left of 50, and 98 are half a second too many.
    send(client, topic, 98, version)
    error, told_ms = answer(client, version)
    assert error == 0 and 480 <= told_ms <= 500
    send(client, topic, 1, version)
    assert client.silent_for(told_ms / 1000 * 0.5)
    assert answer(client, version)[0] == 0


def test_a_producer_without_acks_waits_too(
    cluster: Cluster, proxy: ProxyThread, group: Callable[..., str], wire: Callable[..., WireClient]
) -> None:
    """It has no response that could tell it, and none is waited for."""
    topic = group(publishRateInMsgs=100)
    metered(proxy, topic)
    client = wire("no-acks")
    send(client, topic, 100, acks=0)
    send(client, topic, 1, acks=0)
    client.send(metadata_request([]))
    assert client.silent_for(0.2)
    assert used(proxy, topic)[0] == 100
    client.receive_frame()
    assert used(proxy, topic)[0] == 101


def test_produce_by_an_id_that_the_proxy_has_not_seen(
    cluster: Cluster, proxy_with: Callable[..., ProxyThread], group: Callable[..., str]
) -> None:
    """It is looked up on the client's connection; the first response is throttled already."""
    topic = group(publishRateInMsgs=100)
    with WireClient(cluster.kafka.bootstrap) as direct:
        topic_id = until(lambda: direct.metadata([topic], 12).topics[0].topic_id, what="an id")
    proxy = proxy_with(id=fresh("ids"))
    metered(proxy, topic, proxies=2)
    with WireClient(proxy.bootstrap) as client:
        client.send(produce_of(13, topic_id, records=batch(100)))
        read = decode(ProduceResponse, 13, client.receive_frame())
        assert read.responses[0].partition_responses[0].error_code == 0
        # Of two proxies each has half: 25 in stock, and 75 of debt at 50 a second. A share is due in a round.
        assert read.throttle_time_ms == 1_000
    assert used(proxy, topic)[0] == 100


def test_fetch_is_made_smaller_throttled_and_its_session_goes_on(
    cluster: Cluster, proxy: ProxyThread, group: Callable[..., str], wire: Callable[..., WireClient]
) -> None:
    """A consumer with a backlog gets it in slices; the broker's session sees every request."""
    topic = group(dispatchRateInMsgs=400)
    metered(proxy, topic)
    with WireClient(cluster.kafka.bootstrap) as direct:
        for _ in range(20):
            direct.send_frame(produce(9, {topic: [batch(100, size=400)]})[0])
            assert answer(direct)[0] == 0
    client = wire("reader")
    seen, offset, session, epoch, throttled = 0, 0, 0, 0, 0
    began = time.monotonic()
    while seen < 2_000:
        assert time.monotonic() - began < 30
        # In a session only what changed is named.
        named = {topic: 1} if seen or not epoch else {}
        client.send_frame(fetch_request(11, named, epoch=epoch, session=session, offset=offset)[0])
        read = decode(FetchResponse, 11, client.receive_frame())
        assert read.error_code == 0
        throttled += read.throttle_time_ms > 0
        session, epoch = read.session_id, epoch + 1
        for row in (part for found in read.responses for part in found.partitions):
            count = count_records(row.records, 0, len(row.records)) if row.records else 0
            assert count <= 100, "more than 250 ms of the whole limit"
            seen, offset = seen + count, offset + count
    assert session > 0 and throttled > 0
    assert used(proxy, topic)[2] == 2_000


def test_a_users_byte_rate(
    cluster: Cluster, shares: Decider, proxy: ProxyThread, wire: Callable[..., WireClient]
) -> None:
    """Cluster-wide, as a group of its own, by the bytes of whole requests; the metric says who waits."""
    name, topic = fresh("rated"), fresh("rated-topic")
    path = f"quotas[user=ANONYMOUS,client-id={name}]"
    cluster.policies.put(path, {"producer_byte_rate": 10_000})
    until(lambda: path in proxy.entries, what="the quota")
    before = proxy.metric("throttled_frames_total", by="user", dimension="publishRateInBytes")
    client = wire(name)
    client.metadata([topic], 4, create=True)
    frame, _ = produce(9, {topic: [batch(40, size=100)]}, client_id=name)
    for _ in range(2):
        client.send_frame(frame)
        _, told_ms = answer(client)
    assert told_ms > 0
    assert proxy.metric("throttled_frames_total", by="user", dimension="publishRateInBytes") > before
    subject = f"quota/user=ANONYMOUS,client-id={name}"
    until(lambda: [e for e in shares.events if subject in e.get("usage", {})], what="its report")

    def shared_out() -> bool:
        # Who is silent again before the round ends is no member.
        client.send_frame(frame)
        answer(client)
        return any(decision.get("group") == subject for decision in shares.decisions)

    until(shared_out, what="its share")
    cluster.policies.put(path, None)


def test_a_shadow_group_is_only_counted(
    proxy: ProxyThread, shares: Decider, group: Callable[..., str], wire: Callable[..., WireClient]
) -> None:
    """Nobody waits; its reports say that somebody would have."""
    topic = group(publishRateInMsgs=100, shadow=True)
    metered(proxy, topic)
    client = wire("shadow")
    for _ in range(5):
        send(client, topic, 100)
        assert answer(client) == (0, 0)
    name = topic.split(".")[1]

    def reported() -> bool:
        found = [event["usage"][name] for event in shares.events if name in event.get("usage", {})]
        return any(report["throttledMs"]["publishRateInMsgs"] > 0 for report in found)

    until(reported, what="time that would have been waited")


def test_a_namespace_moves_and_is_detached_under_load(
    cluster: Cluster, proxy: ProxyThread, group: Callable[..., str]
) -> None:
    """Nothing is lost or sent twice, and the next request counts in the new group."""
    topic = group(publishRateInMsgs=100_000)
    other = group(publishRateInMsgs=100_000)
    metered(proxy, other)
    name, new = topic.split(".")[1], other.split(".")[1]
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "linger.ms": "1", "log_level": "0"})
    moves = {100: {"resourcegroup": new}, 200: None}
    for number in range(300):
        producer.produce(topic, value=b"%d" % number)
        producer.flush(20)
        if number in moves:
            path, value = f"namespaces.acme/{name}", moves[number]
            cluster.policies.put(path, value)
            until(lambda path=path, value=value: proxy.entries.get(path) == value, what="the move")
    assert used(proxy, topic)[0] == 101
    assert used(proxy, other)[0] == 100
    assert read_all(cluster.kafka.bootstrap, topic) == [b"%d" % number for number in range(300)]


def test_metrics_of_a_group(proxy: ProxyThread, group: Callable[..., str]) -> None:
    """Pulsar's names and ours, once a share has come."""
    topic = group(publishRateInMsgs=1_000)
    metered(proxy, topic)
    name = topic.split(".")[1]
    read = proxy.proxy.metrics.registry.get_sample_value
    sent = 0

    def shared_out() -> float | None:
        # Who is silent again before the round ends is no member.
        nonlocal sent
        confluent_produce(proxy.bootstrap, topic, 100)
        sent += 100
        return read("weir_group_state", {"group": name, "state": "active"})

    until(shared_out, what="a share")
    labels = {"ResourceGroup": name, "MonitoringClass": "Publish"}
    assert read("pulsar_resource_group_messages_used_total", labels) == sent
    # The only member: limit x use / use, by doubles.
    whole = pytest.approx(1_000, rel=1e-15)
    assert read("pulsar_resource_group_calculated_messages_quota", labels) == whole
    assert read("weir_group_share", {"group": name, "dimension": "publishRateInMsgs"}) == whole
    assert read("weir_group_members", {"group": name}) == 1
