"""Byte rates and groups under attack: many connections, lies about counts, names nobody has."""

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from broker_fixtures import apart, own_cluster
from cluster_kit import Cluster, fresh
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceResponse
from kafka_kit import build, decode
from process_kit import MIB, proxy_process
from proxy_kit import ProxyThread, until
from stack_kit import new_topics
from threaded import together
from traffic_kit import batch, fetch_request, produce
from wire_client import Closed, WireClient

from enforcer.core.account import Account
from enforcer.wire.kafka.batches import count_records

LIMIT = 100_000
BATCH = batch(1, size=40_000)
ATTACK_S = 3.0
LIE = 2**31 - 1
"""Records that a lying batch claims."""
cluster = own_cluster("rates")


@pytest.fixture(scope="module")
def guard(cluster: Cluster) -> Iterator[ProxyThread]:
    """A proxy that needs no job of shares: alone it has the whole limit."""
    with ProxyThread(cluster.config(id="guard")) as running:
        yield running


@pytest.fixture
def group(cluster: Cluster, guard: ProxyThread) -> Iterator[Callable[..., str]]:
    """Make groups, each with a namespace of its own; returns the name of a topic in it."""
    with ExitStack() as undo:

        def make(**limits: Any) -> str:
            topic = grouped(cluster, guard, **limits)
            undo.callback(cluster.policies.ungroup, topic.split(".")[1])
            return topic

        yield make


def grouped(cluster: Cluster, guard: ProxyThread, **limits: Any) -> str:
    """A topic in a namespace and a group of its own, which a proxy knows and has for itself."""
    name = fresh("attacked")
    topic = cluster.policies.group(name, **limits)
    new_topics(cluster.kafka.bootstrap, topic)
    until(lambda: f"namespaces.acme/{name}" in guard.entries, what="the proxy knows the group")
    guard.await_part(1.0)
    return topic


def account(proxy: ProxyThread, topic: str) -> Account:
    """A group's account."""
    return proxy.proxy.meter.accounts[topic.split(".")[1]]


def debt(proxy: ProxyThread, topic: str) -> float:
    """The largest debt of a group, as seconds of its limit."""
    found = proxy.proxy.meter.accounts.get(topic.split(".")[1])
    if found is None:
        return 0.0
    return max(bucket.debt / bucket.rate for bucket in found.buckets if bucket is not None)


def offset_of(cluster: Cluster, topic: str) -> int:
    """How many records a topic has."""
    with WireClient(cluster.kafka.bootstrap) as direct:
        direct.send_frame(fetch_request(11, {topic: 1}, max_bytes=1, epoch=-1)[0])
        read = decode(FetchResponse, 11, direct.receive_frame())
        return int(read.responses[0].partitions[0].high_watermark)


def error_of(client: WireClient) -> int:
    """Error of the next Produce response."""
    read = decode(ProduceResponse, 9, client.receive_frame())
    return int(read.responses[0].partition_responses[0].error_code)


def written(client: WireClient, topic: str, data: bytes) -> int:
    """Produce it, and wait for the answer; its error."""
    client.send_frame(produce(9, {topic: [data]})[0])
    return error_of(client)


def one_connection_per_request(guard: ProxyThread, topic: str, until_s: float, name: str = "tests") -> None:
    """Connect, produce, wait for the answer as long as it is worth it, connect anew."""
    frame = produce(9, {topic: [BATCH]}, client_id=name)[0]
    while (left_s := until_s - time.monotonic()) > 0:
        with WireClient(guard.bootstrap, name) as client:
            client.send_frame(frame)
            try:
                client.receive_frame(left_s)
            except TimeoutError:
                return


@pytest.mark.soak
def test_one_connection_per_request(cluster: Cluster, guard: ProxyThread, group: Callable[..., str]) -> None:
    """New connections owe what the old ones did: the limit holds, and one request more."""
    topic = group(publishRateInBytes=LIMIT)
    until_s = time.monotonic() + ATTACK_S
    together(*[lambda: one_connection_per_request(guard, topic, until_s)] * 8)
    passed = offset_of(cluster, topic) * len(BATCH)
    assert 0.7 * LIMIT * ATTACK_S < passed <= LIMIT * (ATTACK_S + 1.0) + 2 * len(BATCH)


def test_connections_made_ready_before(
    cluster: Cluster, guard: ProxyThread, group: Callable[..., str]
) -> None:
    """Forty clients that have each sent a little are no way for forty large requests at once."""
    topic = group(publishRateInBytes=LIMIT)
    with ExitStack() as stack:
        clients = [stack.enter_context(WireClient(guard.bootstrap)) for _ in range(40)]
        for client in clients:
            assert written(client, topic, batch(1)) == 0
        before = offset_of(cluster, topic)
        for client in clients:
            client.send_frame(produce(9, {topic: [BATCH]})[0])
        time.sleep(ATTACK_S)
        passed = (offset_of(cluster, topic) - before) * len(BATCH)
    assert 0.5 * LIMIT * ATTACK_S < passed <= LIMIT * (ATTACK_S + 1.0) + 2 * len(BATCH)


def test_a_byte_rate_of_a_user(cluster: Cluster, guard: ProxyThread) -> None:
    """The same for the rate of a client, with requests that are large enough to be streamed otherwise."""
    name, topic = fresh("rated"), fresh("rated-topic")
    path = f"quotas[user=ANONYMOUS,client-id={name}]"
    cluster.policies.put(path, {"producer_byte_rate": LIMIT})
    until(lambda: path in guard.entries, what="the quota")
    new_topics(cluster.kafka.bootstrap, topic)
    guard.await_part(1.0)
    until_s = time.monotonic() + ATTACK_S
    together(*[lambda: one_connection_per_request(guard, topic, until_s, name)] * 8)
    cluster.policies.put(path, None)
    passed = offset_of(cluster, topic) * len(BATCH)
    assert 0.5 * LIMIT * ATTACK_S < passed <= LIMIT * (ATTACK_S + 1.0) + 2 * len(BATCH)


def test_many_fetches_at_once(cluster: Cluster, guard: ProxyThread, group: Callable[..., str]) -> None:
    """Forty clients that fetch the same get what the limit admits, in batches larger than a slice."""
    topic = group(dispatchRateInBytes=LIMIT)
    with WireClient(cluster.kafka.bootstrap) as direct:
        for _ in range(3):
            assert written(direct, topic, BATCH) == 0
    got = []
    until_s = time.monotonic() + ATTACK_S

    def attack() -> None:
        with WireClient(guard.bootstrap) as client:
            while (left_s := until_s - time.monotonic()) > 0:
                client.send_frame(fetch_request(11, {topic: 1}, epoch=-1)[0])
                try:
                    got.append(fetched(client, left_s))
                except TimeoutError:
                    return

    together(*[attack] * 40)
    assert 0.5 * LIMIT * ATTACK_S < sum(got) <= LIMIT * (ATTACK_S + 1.0) + 3 * len(BATCH)


def fetched(client: WireClient, limit_s: float) -> int:
    """Bytes of records in the next Fetch response."""
    read = decode(FetchResponse, 11, client.receive_frame(limit_s))
    assert read.error_code == 0
    rows = [row.records or b"" for found in read.responses for row in found.partitions]
    assert all(count_records(row, 0, len(row)) for row in rows if row)
    return sum(map(len, rows))


def lying() -> bytes:
    """A batch of one record that claims many."""
    honest = bytearray(batch(1))
    struct.pack_into(">i", honest, 57, LIE)
    return bytes(honest)


def test_a_lie_about_counts(cluster: Cluster, guard: ProxyThread, group: Callable[..., str]) -> None:
    """A batch counts for no more than its bytes can hold, and for nothing once the broker has refused it."""
    topic = group(publishRateInMsgs=1_000)
    with WireClient(guard.bootstrap) as client:
        assert written(client, topic, lying()) != 0
        assert debt(guard, topic) == 0 and account(guard, topic).refunded[0] == account(guard, topic).used[0]
        assert written(client, topic, batch(3)) == 0
    assert account(guard, topic).used[0] - account(guard, topic).refunded[0] == 3


def test_a_lie_without_acks(cluster: Cluster, guard: ProxyThread, group: Callable[..., str]) -> None:
    """The leader is asked all the same; its refusal costs the connection, as at a broker, and no more."""
    topic = group(publishRateInMsgs=1_000)
    compressed = bytearray(lying())
    compressed[22] |= 4  # zstd, by its attributes
    with WireClient(guard.bootstrap) as client:
        client.send_frame(produce(9, {topic: [bytes(compressed)]}, acks=0)[0])
        assert client.closed_within(5.0)
    until(lambda: account(guard, topic).refunded[0] == account(guard, topic).used[0], what="a refund")
    assert debt(guard, topic) == 0 and offset_of(cluster, topic) == 0


@pytest.mark.parametrize("acks", [0, 1])
def test_a_topic_that_does_not_exist(guard: ProxyThread, group: Callable[..., str], acks: int) -> None:
    """It costs the group that its name would belong to nothing."""
    topic = f"{group(publishRateInMsgs=100)}-absent"
    with WireClient(guard.bootstrap) as client:
        client.send_frame(produce(9, {topic: [batch(5_000)]}, acks)[0])
        if acks:
            assert error_of(client) == 3
        else:
            assert client.closed_within(5.0)
    assert debt(guard, topic) == 0 and account(guard, topic).used[0] == 5_000


def test_nobody_is_charged_before_authentication(cluster: Cluster, group: Callable[..., str]) -> None:
    """Where the broker demands SASL, who has not authenticated is cut off, and the group owes nothing."""
    topic = group(publishRateInMsgs=100)
    with ProxyThread(cluster.config(id="strict", sasl=True)) as guard:
        until(lambda: f"resourcegroups.{topic.split('.')[1]}" in guard.entries, what="the group")
        for acks in (0, 1, -1):
            with WireClient(guard.bootstrap) as client:
                with suppress(OSError):
                    for _ in range(3):
                        client.send_frame(produce(9, {topic: [batch(5_000)]}, acks)[0])
                assert client.closed_within(5.0)
        assert topic.split(".")[1] not in guard.proxy.meter.accounts


def test_a_debt_has_a_limit(cluster: Cluster) -> None:
    """Of a request of a hundred seconds' worth two are waited off, the rest is forgiven and counted."""
    with apart(cluster, "mild") as own, ProxyThread(own.config(id="mild", debt_max_s=2)) as guard:
        topic = grouped(own, guard, publishRateInMsgs=50)
        with WireClient(guard.bootstrap) as client:
            assert written(client, topic, batch(5_000)) == 0
            assert 1.5 < debt(guard, topic) <= 2.0
            client.send_frame(produce(9, {topic: [batch(1)]})[0])
            began = time.monotonic()
            assert error_of(client) == 0 and 1.0 < time.monotonic() - began < 4.0
        labels = {"group": topic.split(".")[1], "dimension": "publishRateInMsgs"}
        forgiven = guard.proxy.metrics.registry.get_sample_value("weir_group_forgiven_total", labels)
        # Half a second was in stock and two are kept: 5,000 - 25 - 100.
        assert forgiven == pytest.approx(4_875, abs=0.5)


def test_who_leaves_is_served_no_sooner(guard: ProxyThread, group: Callable[..., str]) -> None:
    """What clients sent before they left has its turn, at the rate of the group, and no more than that."""
    topic = group(publishRateInMsgs=100)
    with WireClient(guard.bootstrap) as client, ExitStack() as stack:
        assert written(client, topic, batch(100)) == 0
        leaving = [stack.enter_context(WireClient(guard.bootstrap)) for _ in range(4)]
        for one in leaving:
            one.send_frame(produce(9, {topic: [batch(50)]})[0])
        time.sleep(0.2)
        client.send_frame(produce(9, {topic: [batch(1)]})[0])
        for one in leaving:
            one.socket.close()
        began = time.monotonic()
        assert error_of(client) == 0 and 1.0 < time.monotonic() - began < 5.0
    assert account(guard, topic).used[0] == 301


@pytest.mark.soak
def test_who_reads_no_answers_keeps_nobody_waiting(
    cluster: Cluster, guard: ProxyThread, group: Callable[..., str]
) -> None:
    """In front of a group's line without being able to go on; it does when it reads."""
    topic, large, fetches = group(publishRateInMsgs=100), fresh("large"), 40
    with WireClient(cluster.kafka.bootstrap) as direct:
        direct.metadata([large], 4, create=True)
        until(lambda: direct.metadata([large], 4).topics[0].error_code == 0, what="the topic")
        assert written(direct, large, batch(1, size=900_000)) == 0
    wanted, one = fetch_request(11, {large: 1}, epoch=-1)[0], produce(9, {topic: [batch(1)]})[0]
    with ExitStack() as stack:
        clients = [stack.enter_context(WireClient(guard.bootstrap)) for _ in range(5)]
        for client in clients:
            client.send_frame(one)
            assert error_of(client) == 0
        owing, bystander, *attackers = clients
        assert written(owing, topic, batch(300)) == 0
        for client in attackers:
            frames = [wanted] * fetches + [one]
            client.socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
        connections = guard.proxy.connections
        until(lambda: sum(each._full for each in connections) == len(attackers), what="full sockets")
        assert guard.proxy.meter.lines.waiting(account(guard, topic).counters[0]) == len(attackers)
        bystander.send_frame(one)
        assert error_of(bystander) == 0
        began, count = time.monotonic(), 0
        while time.monotonic() < began + ATTACK_S:
            assert written(bystander, topic, batch(20)) == 0
            count += 20
        assert 60 * ATTACK_S < count <= 100 * (ATTACK_S + 1.0) + 20
        for client in attackers:
            assert all(fetched(client, 20.0) for _ in range(fetches)) and error_of(client) == 0


def test_a_long_queue_keeps_no_other_group_waiting(guard: ProxyThread, group: Callable[..., str]) -> None:
    """Forty connections of a group that owes, and one of a group that does not."""
    topic, other = group(publishRateInMsgs=10), group(publishRateInMsgs=10_000)
    with ExitStack() as stack:
        for _ in range(40):
            client = stack.enter_context(WireClient(guard.bootstrap))
            client.send_frame(produce(9, {topic: [batch(100)]})[0])
        bystander = stack.enter_context(WireClient(guard.bootstrap))
        for _ in range(20):
            began = time.monotonic()
            assert written(bystander, other, batch(1)) == 0 and time.monotonic() - began < 1.0


def test_other_requests_do_not_wait(guard: ProxyThread, group: Callable[..., str]) -> None:
    """Who owes may still ask for metadata; only data waits."""
    topic = group(publishRateInMsgs=100)
    with WireClient(guard.bootstrap) as client:
        assert written(client, topic, batch(400)) == 0
        client.send(build(MetadataRequest, 9, topics=[]))
        client.receive_frame(1.0)
        client.send_frame(produce(9, {topic: [batch(1)]})[0])
        with pytest.raises((TimeoutError, Closed)):
            client.receive_frame(1.0)


@pytest.mark.soak
def test_names_that_nobody_has_met_before(cluster: Cluster, tmp_path: Path) -> None:
    """2,400 client-ids of 32 kB, each with a byte rate of its own, and as many topics: memory stays."""
    policies: dict[str, Any] = {
        "quotas[user=<default>,client-id=<default>]": {"producer_byte_rate": 10**9},
        "tenants.acme": {"resourcegroup": "made-up"},
        "resourcegroups.made-up": {"publishRateInMsgs": 10**9},
    }
    for path, value in policies.items():
        cluster.policies.put(path, value)
    with proxy_process(cluster, tmp_path, cluster.topics) as proxy, WireClient(proxy.bootstrap) as client:
        client.metadata([])
        before = proxy.resident
        for number in range(2_400):
            name = f"{number}-".ljust(32_000, "x")
            frame, _ = produce(9, {f"acme.{number}.t".ljust(240, "x"): [batch(1)]}, client_id=name)
            client.send_frame(frame)
            assert error_of(client) != 0
        growth = proxy.resident - before
    for path in policies:
        cluster.policies.put(path, None)
    assert growth < 32 * MIB
