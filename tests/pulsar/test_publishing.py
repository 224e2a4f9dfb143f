"""SENDs under limits on a real broker, with the Python client, as its application sees it."""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from company_kit import Company
from publishing_clients import Driving, drive_pulsar
from pulsar import CompressionType, MessageId
from pulsar_kit import Admin, Sending, client, fresh, numbered, receive, send_all
from pulsar_proxy_kit import BOTH_WAYS, TLS_IN_SOAK, PulsarThread, joined, limited
from stack_kit import read_all, replayed

from enforcer.laws.concurrency.limits import ConcurrencyLimits
from weir.stack.pulsar import LocalPulsar


def round_trips(producer: Any, for_s: float) -> list[float]:
    """How long single messages take, one after the other, s."""
    took = []
    end = time.monotonic() + for_s
    while (began := time.monotonic()) < end:
        producer.send(b"x")
        took.append(time.monotonic() - began)
    return took


@TLS_IN_SOAK
def test_a_limited_producer_waits_and_its_neighbour_does_not(proxy: PulsarThread, admin: Admin) -> None:
    """Ten a second, 40 at once, nothing lost or out of order; beside it on its connection all is fast."""
    namespace, group = limited(proxy, admin, {"publishRateInMsgs": 10})
    with client(**proxy.way) as own:
        slow = own.create_producer(f"{namespace}/a", batching_enabled=False)
        free = own.create_producer(fresh("free"))
        reader = own.subscribe(f"{namespace}/a", "s")
        free.send(b"warm")
        alone = round_trips(free, 1)
        sending = Sending(slow, numbered(40))
        beside = round_trips(free, 2.5)
        sent = sending.wait()
        got = receive(reader, most=40)
    assert [each.data for each in got] == numbered(40)
    # Half a second of its rate at once, then one each tenth of a second: never sooner, and late by no more
    # than a busy machine takes.
    took = [each.ended - sent[0].began for each in sent]
    assert all(each >= (place - 6) / 10 for place, each in enumerate(took)), took
    assert took[-1] <= 5.0, took
    # On a machine with other work to do a round trip takes longer, throttled or not.
    assert statistics.median(beside) < max(0.005, 1.5 * statistics.median(alone))
    assert proxy.used(group)[0] == 40


def test_the_count_is_the_brokers(proxy: PulsarThread, admin: Admin) -> None:
    """Messages and bytes of single ones, batches and compressed ones, persistent or not."""
    namespace, group = limited(proxy, admin, {"publishRateInMsgs": 1_000_000})
    forms = [
        ("single", {"batching_enabled": False}),
        ("batches", {"batching_enabled": True, "batching_max_publish_delay_ms": 20}),
        ("packed", {"batching_enabled": True, "compression_type": CompressionType.LZ4}),
        ("zstd", {"batching_enabled": True, "compression_type": CompressionType.ZSTD}),
    ]
    with client(proxy.bootstrap) as own:
        for name, options in forms:
            send_all(own.create_producer(f"{namespace}/{name}", **options), [b"x" * 100] * 200)
        fleeting = namespace.replace("persistent", "non-persistent")
        send_all(own.create_producer(f"{fleeting}/fleeting", batching_enabled=False), [b"x" * 100] * 200)
        stats = [admin.stats(f"{namespace}/{name}") for name, _ in forms]
        stats.append(admin.stats(f"{fleeting}/fleeting"))
    assert proxy.used(group) == (
        sum(each["msgInCounter"] for each in stats),
        sum(each["bytesInCounter"] for each in stats),
    )
    assert proxy.used(group)[0] == 1_000


def test_a_topic_that_is_unloaded_while_sends_wait_loses_none(proxy: PulsarThread, admin: Admin) -> None:
    """Its client makes the producer again and sends what has no receipt: what waited is not stored twice."""
    namespace, _ = limited(proxy, admin, {"publishRateInMsgs": 20})
    topic = f"{namespace}/moved"
    with client(proxy.bootstrap) as own:
        sending = Sending(own.create_producer(topic, batching_enabled=False), numbered(60))
        time.sleep(1)
        admin.unload(topic)
        sending.wait()
        reader = own.create_reader(topic, MessageId.earliest)
        got = [int(each.data) for each in receive(reader, quiet_s=2)]
    assert list(dict.fromkeys(got)) == list(range(60))
    # What was on its way to the broker in that moment may be there twice, as without a proxy.
    assert len(got) <= 65
    assert proxy.sample("weir_publish_unsent_sends_total", reason="broker") > 0


def test_a_close_waits_for_what_was_sent(proxy: PulsarThread, admin: Admin) -> None:
    """All of it is stored before the producer is closed, as without a limit."""
    namespace, _ = limited(proxy, admin, {"publishRateInMsgs": 20})
    topic = f"{namespace}/closed"
    with client(proxy.bootstrap) as own:
        producer = own.create_producer(topic, batching_enabled=False)
        Sending(producer, numbered(40))
        producer.close()
        assert admin.stats(topic)["msgInCounter"] == 40
        assert admin.stats(topic)["publishers"] == []


@BOTH_WAYS
def test_sends_of_a_limited_broker_share_its_slots(proxy: PulsarThread, pulsar: LocalPulsar) -> None:
    """Never more in flight than the limit, whatever clients send at once."""
    partition = f"pulsar-{pulsar.service}"
    fixed = {"algorithm": "fixed", "fixed": {"limit": 3}}
    proxy.set({f"backpressure.partitions.{partition}": fixed})
    with client(**proxy.way) as own, client(**proxy.way) as other:
        senders = [
            Sending(each.create_producer(fresh("slots"), batching_enabled=False)) for each in (own, other)
        ]
        limiter = proxy.proxy.enforcement.of(ConcurrencyLimits).partitions.known[partition].limiter
        for sending in senders:
            for _ in range(100):
                sending.send(b"x" * 100)
        for sending in senders:
            sending.wait()
        assert limiter.take_use()[0] == 3
        assert limiter.in_flight == limiter.dropped == 0
        assert limiter.received == 200
    proxy.set({f"backpressure.partitions.{partition}": None})


@pytest.mark.soak
def test_a_deep_queue_costs_no_time_out(proxy: PulsarThread, admin: Admin) -> None:
    """A queue of less than 25 s ends well, and its neighbours know nothing of it."""
    namespace, _ = limited(proxy, admin, {"publishRateInMsgs": 10})
    with client(proxy.bootstrap) as own:
        slow = own.create_producer(f"{namespace}/a", batching_enabled=False)
        free = own.create_producer(fresh("free"))
        reader = own.subscribe(free.topic(), "s")
        alone = round_trips(free, 5)
        sending = Sending(slow, [b"x"] * 250)
        beside = round_trips(free, 20)
        got = receive(reader, most=len(beside) + len(alone))
        sent = sending.wait()
    assert max(each.ended - each.began for each in sent) > 20
    assert len(got) == len(beside) + len(alone)
    assert statistics.median(beside) < max(0.005, 1.5 * statistics.median(alone))


@pytest.mark.soak
def test_a_group_over_two_namespaces_has_one_limit(proxy: PulsarThread, admin: Admin) -> None:
    """300 messages a second, by single ones and by batches, over 30 s within 3 %."""
    namespace, group = limited(proxy, admin, {"publishRateInMsgs": 300})
    second = admin.namespace(f"public/{fresh('second')}")
    proxy.set({f"namespaces.{second}": {"resourcegroup": group}})
    batches = {"batching_enabled": True, "batching_max_messages": 20, "max_pending_messages": 200}
    with Driving(
        partial(drive_pulsar, proxy.bootstrap, f"{namespace}/a"),
        partial(drive_pulsar, proxy.bootstrap, f"persistent://{second}/b", **batches),
    ) as driving:
        driving.hold(300, settle_s=2)


RATE = 300
LIMITER = {"algorithm": "aimd", "useWindowed": False, "aimd": {"initialLimit": 20, "maxLimit": 40}}


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """Kafka and the job; rounds last a second."""
    with Company(tmp_path_factory.mktemp("live")) as running:
        running.put("broker", {"resourceUsagePublishIntervalInSecs": 1})
        yield running


@pytest.fixture(scope="module")
def proxies(company: Company, pulsar: LocalPulsar) -> Iterator[list[PulsarThread]]:
    """Two of them before the one broker."""
    with ExitStack() as stack:
        yield [stack.enter_context(joined(company, pulsar, name)) for name in ("p1", "p2")]


@pytest.mark.soak
def test_two_proxies_with_the_job(
    company: Company, proxies: list[PulsarThread], pulsar: LocalPulsar, admin: Admin, tmp_path: Path
) -> None:
    """A group over two namespaces has its limit within 3 % over 30 s, and each proxy its fair part; slots are
    told and limited, and a dump replays to what was decided.
    """
    namespaces, group = [admin.namespace(f"public/{fresh('live')}") for _ in proxies], fresh("live")
    partition = f"pulsar-{pulsar.service}"
    company.put(f"resourcegroups.{group}", {"publishRateInMsgs": RATE})
    for namespace in namespaces:
        company.put(f"namespaces.{namespace}", {"resourcegroup": group})
    company.put(f"backpressure.partitions.{partition}", LIMITER)
    for proxy in proxies:
        proxy.await_part(0.5)
    drives = [
        partial(drive_pulsar, proxy.bootstrap, f"persistent://{namespace}/t")
        for namespace, proxy in zip(namespaces, proxies, strict=True)
    ]
    with Driving(*drives) as driving:
        assert min(driving.hold(RATE, settle_s=20)) > 0.4 * RATE
    known = proxies[0].proxy.enforcement.of(ConcurrencyLimits).partitions.known[partition]
    assert known.limiter.samples.sent > 100
    assert sum(known.in_force.changes.values()) > 0
    time.sleep(3)
    live = decided(read_all(company.kafka.bootstrap, company.topics.decisions))
    again = decided(replayed(company.kafka.bootstrap, tmp_path, limit_s=300))
    assert {kind for kind, _ in live} >= {"share", "limit"}
    assert live == {name: again[name] for name in live}


def decided(values: Sequence[bytes]) -> dict[tuple[str, str], Any]:
    """Shares and limits by their ids."""
    found = [orjson.loads(value) for value in values]
    return {
        (each["type"], each["id"]): each
        for each in found
        if each["type"] in ("share", "limit") and "repeat" not in each
    }
