"""Limits of dispatch between a real Pulsar and its Python client: what comes when, noted at the client."""

import time
from contextlib import ExitStack
from pathlib import Path

import pulsar as client_library
import pytest
from proxy_kit import until
from pulsar_dispatch_kit import Reading, counts, filled, namespace, new_topic, rate
from pulsar_kit import Admin, client, receive, send_all
from pulsar_proxy_kit import PulsarThread, bare_proxy, limited
from tls_kit import Authority

from enforcer.pulsar.delivery.part import DeliveryPart
from weir.stack.pulsar import LocalPulsar

TYPES = {
    "Exclusive": client_library.ConsumerType.Exclusive, "Shared": client_library.ConsumerType.Shared,
    "Failover": client_library.ConsumerType.Failover, "Key_Shared": client_library.ConsumerType.KeyShared,
}  # fmt: skip
RATES = (10, 100, 1_000)
BATCHES = (1, 6, 30)


def overcount(proxy: PulsarThread, permits: int) -> None:
    """Let the proxy believe that brokers have so many more for each consumer: they have lost them."""

    def count() -> None:
        for connection in proxy.proxy.connections:
            for part in connection._parts:
                for consumer in part._consumers.values() if isinstance(part, DeliveryPart) else ():
                    consumer.permits.balance += permits

    proxy.do(count)


def test_a_subscription_gets_its_rate_from_the_first_message_on(pulsar: LocalPulsar, tmp_path: Path) -> None:
    """Batches of 30 too, of which real Pulsar sends 3,000 at once and then nothing for 29 s; and by TLS."""
    own = {"tls": Authority(tmp_path).door()}
    with bare_proxy(pulsar.service) as plain, bare_proxy(pulsar.service, own=own) as secured:
        cases, readings = [(proxy, batch) for proxy in (plain, secured) for batch in (1, 30)], []
        with ExitStack() as stack:
            for proxy, batch in cases:
                proxy.set(namespace(subscription=rate(100)))
                topic = filled(pulsar.service, 1_500, batch)
                readings.append(stack.enter_context(Reading(topic=topic, **proxy.way)))
                readings[-1].add(consumer_type=client_library.ConsumerType.Shared)
            time.sleep(5.0)
            found = [sum(counts(reading.times(), 4)) for reading in readings]
    # Noted by a client that shares a busy machine: what comes late for one second comes with the next.
    for (_, batch), came in zip(cases, found, strict=True):
        assert 300 <= came < 4 * 100 * 1.02 + batch


@pytest.mark.soak
def test_permits_that_the_broker_has_not_are_found(pulsar: LocalPulsar) -> None:
    """As where it has lost some: it is asked, its own count holds, and all comes."""
    with bare_proxy(pulsar.service) as proxy:
        proxy.set(namespace(subscription=rate(100)))
        topic = filled(pulsar.service, 500, 1)
        with Reading(proxy.bootstrap, topic) as reading:
            reading.add(consumer_type=client_library.ConsumerType.KeyShared)
            until(lambda: len(reading.times()) > 100)
            overcount(proxy, 7)
            until(lambda: len(reading.times()) == 500)
            asked = "weir_consumer_permit_questions_total"
            assert proxy.sample(asked, result="corrected") >= 1
            # Who has read all is asked for too, and nothing is wrong then.
            until(lambda: proxy.sample(asked, result="same") >= 1)
            assert proxy.sample(asked, result="unknown") == 0


@pytest.mark.soak
@pytest.mark.parametrize("kind", TYPES)
def test_rates_hold_within_two_percent(pulsar: LocalPulsar, kind: str) -> None:
    """Nine limits at once, each for 30 s from its first message on, and the last batch besides."""
    seconds = 30
    cases = [(each, batch) for each in RATES for batch in BATCHES]
    topics = {
        (each, batch): filled(pulsar.service, (each * (seconds + 5) + 10 * batch) // batch * batch, batch)
        for each, batch in cases
    }
    with bare_proxy(pulsar.service) as proxy, ExitStack() as stack:
        proxy.set({f"topics.{topics[case]}": {"subscriptionDispatchRate": rate(case[0])} for case in cases})
        readings = {case: stack.enter_context(Reading(proxy.bootstrap, topics[case])) for case in cases}
        for reading in readings.values():
            reading.add(consumer_type=TYPES[kind])
        time.sleep(seconds + 2)
        found = {case: counts(reading.times(), seconds) for case, reading in readings.items()}
    wrong = {
        case: seen
        for case, seen in found.items()
        if not 0.98 * case[0] * seconds - case[1] <= sum(seen) < 1.02 * case[0] * seconds + case[1]
    }
    assert not wrong


@pytest.mark.soak
@pytest.mark.parametrize("batch", [1, 30])
def test_a_limit_that_begins_in_mid_flow_passes_one_batch_more_at_most(
    pulsar: LocalPulsar, batch: int
) -> None:
    """Of what the broker still sends nothing goes on beyond the rate; what the client has it has."""
    with bare_proxy(pulsar.service) as proxy:
        topic = filled(pulsar.service, 30_000, batch)
        with Reading(proxy.bootstrap, topic) as reading:
            reading.add(receiver_queue_size=1_000)
            while len(reading.times()) < 3_000:
                time.sleep(0.001)
            proxy.set(namespace(subscription=rate(100)))
            time.sleep(6.0)
            place = {"broker": f"pulsar-{pulsar.service}", "topic": topic, "subscription": "sub"}
            passed = proxy.sample("weir_dispatch_delivered_msgs_total", **place)
            times = reading.times()
    assert passed <= 7 * 100 + batch
    late = [at for at in times if at > times[-1] - 4.0]
    assert 300 - batch <= len(late) <= 400 + batch


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["Shared", "Key_Shared", "Failover"])
@pytest.mark.parametrize("batch", [1, 30])
def test_several_consumers_have_one_rate(pulsar: LocalPulsar, kind: str, batch: int) -> None:
    """Each on a connection of its own; a standby has none of it."""
    with bare_proxy(pulsar.service) as proxy:
        topic = filled(pulsar.service, 3_000, batch)
        proxy.set(namespace(subscription=rate(100)))
        with Reading(proxy.bootstrap, topic) as reading:
            for _ in range(3):
                reading.add(consumer_type=TYPES[kind], apart=True)
            time.sleep(11.0)
            found = counts(reading.times(), 10)
            each = [len(got) for got in reading.got]
    assert 900 <= sum(found) < 1_000 + 3 * batch
    if kind == "Failover":
        assert sorted(each)[:2] == [0, 0]
    elif kind == "Shared":
        assert min(each) > 150


@pytest.mark.soak
def test_all_subscriptions_of_a_topic_and_of_a_broker_have_one_rate(pulsar: LocalPulsar) -> None:
    """Where real Pulsar lets each of two plan with the same rest."""
    with bare_proxy(pulsar.service) as proxy:
        topics = [filled(pulsar.service, 1_000, 1) for _ in range(2)]
        proxy.set(namespace(topic=rate(20)))
        with Reading(proxy.bootstrap, topics[0]) as reading:
            reading.add("one")
            reading.add("two")
            time.sleep(7.0)
            found, each = counts(reading.times(), 6), [len(got) for got in reading.got]
        assert max(found) <= 22 and sum(found) >= 100 and min(each) >= 20
        proxy.set({"namespaces.public/default": None, "broker": {"dispatchThrottlingRateInMsg": 20}})
        with ExitStack() as stack:
            readings = [stack.enter_context(Reading(proxy.bootstrap, topic)) for topic in topics]
            for reading in readings:
                reading.add("three")
            time.sleep(7.0)
            times = sorted(at for reading in readings for at in reading.times())
        assert max(counts(times, 6)) <= 22 and sum(counts(times, 6)) >= 100
        assert all(len(reading.times()) >= 20 for reading in readings)


@pytest.mark.soak
def test_bytes_are_limited_up_to_one_entry(pulsar: LocalPulsar, admin: Admin) -> None:
    """Charged as the broker counts them: its own counter says the same."""
    with bare_proxy(pulsar.service) as proxy:
        topic = filled(pulsar.service, 3_000, 30)
        proxy.set(namespace(subscription=rate(size=10_000)))
        with Reading(proxy.bootstrap, topic) as reading:
            reading.add(consumer_type=client_library.ConsumerType.Shared)
            time.sleep(8.5)
            stats = admin.stats(topic)["subscriptions"]["sub"]
            place = {"broker": f"pulsar-{pulsar.service}", "topic": topic, "subscription": "sub"}
            passed = proxy.sample("weir_dispatch_delivered_bytes_total", **place)
    entry = stats["bytesOutCounter"] / (stats["msgOutCounter"] / 30)
    assert abs(passed - stats["bytesOutCounter"]) <= 2 * entry
    assert passed <= 10 * 10_000 + entry


@pytest.mark.soak
def test_there_is_no_way_round_the_bucket(pulsar: LocalPulsar) -> None:
    """Coming back, a second connection, another name, SEEK, asking again: no message beyond the rate."""
    with bare_proxy(pulsar.service) as proxy:
        topic = filled(pulsar.service, 1_000, 1)
        proxy.set(namespace(subscription=rate(30, period=30)))
        shared = {"consumer_type": client_library.ConsumerType.Shared}
        total = 0
        for number in range(3):
            with client(proxy.bootstrap) as made:
                consumer = made.subscribe(
                    topic, "sub", consumer_name=f"name-{number}", **shared,
                    initial_position=client_library.InitialPosition.Earliest,
                )  # fmt: skip
                got = receive(consumer, for_s=2.0, acknowledge=False)
                total += len(got)
                if number == 1:
                    consumer.redeliver_unacknowledged_messages()
                    total += len(receive(consumer, for_s=1.5, acknowledge=False))
                if number == 2:
                    consumer.seek(client_library.MessageId.earliest)
                    total += len(receive(consumer, for_s=1.5, acknowledge=False))
        assert total == 30


@pytest.mark.soak
def test_readers_and_negative_acknowledgements_count(pulsar: LocalPulsar) -> None:
    """A reader has a subscription of its own; what comes again is charged again."""
    with bare_proxy(pulsar.service) as proxy, client(proxy.bootstrap) as made:
        topic = filled(pulsar.service, 500, 1)
        proxy.set(namespace(subscription=rate(20)))
        reader = made.create_reader(topic, client_library.MessageId.earliest)
        times = [got.at for got in receive(reader, for_s=5.0)]
        assert max(counts(times, 4)) <= 22 and len(times) >= 80
        consumer = made.subscribe(
            topic, "again", client_library.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100,
            initial_position=client_library.InitialPosition.Earliest,
        )  # fmt: skip
        again, until, times = 0, time.monotonic() + 6.0, []
        while time.monotonic() < until:
            try:
                message = consumer.receive(500)
            except client_library.Timeout:
                continue
            times.append(time.monotonic())
            again += message.redelivery_count() > 0
            consumer.negative_acknowledge(message)
        assert again > 0 and max(counts(times, 5)) <= 22 and len(times) >= 80


@pytest.mark.soak
def test_what_is_not_stored_is_exempt(pulsar: LocalPulsar) -> None:
    """Nothing is lost to a rate that cannot hold: 200 at once come at once."""
    with bare_proxy(pulsar.service) as proxy, client(proxy.bootstrap) as made:
        proxy.set(namespace(subscription=rate(10), topic=rate(10)))
        topic = new_topic().replace("persistent", "non-persistent")
        consumer = made.subscribe(topic, "sub")
        producer = made.create_producer(topic)
        for _ in range(200):
            producer.send_async(b"x", lambda _result, _id: None)
        producer.flush()
        assert len(receive(consumer, most=200, for_s=3.0)) == 200
        assert proxy.sample("weir_consumer_exempt_total", why="non_persistent") == 1


@pytest.mark.soak
def test_limits_gone_everything_comes(pulsar: LocalPulsar) -> None:
    """All permits that were kept back go on, and nothing is left behind."""
    with bare_proxy(pulsar.service) as proxy:
        topic = filled(pulsar.service, 5_000, 6)
        proxy.set(namespace(subscription=rate(10)))
        with Reading(proxy.bootstrap, topic) as reading:
            reading.add()
            time.sleep(2.0)
            assert proxy.sample("weir_consumer_banked_permits") > 0
            proxy.set({"namespaces.public/default": None})
            deadline = time.monotonic() + 10.0
            while len(reading.times()) < 4_998 and time.monotonic() < deadline:
                time.sleep(0.05)
            data = [int.from_bytes(got.data[:8], "big") for got in reading.got[0]]
            assert data == list(range(len(data))) and len(data) >= 4_998
            assert proxy.sample("weir_consumer_banked_permits") == 0


LARGE = 12 << 20
CHUNKS = 3
"""Of each such message: a frame holds five MiB."""
MESSAGES = 4


def content(number: int) -> bytes:
    """Of one message; no two chunks are alike."""
    return b"".join(b"%016d" % (number << 32 | place) for place in range(LARGE >> 4))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("publish", "dispatch"),
    [({"publishRateInMsgs": 3}, rate(3)), ({"publishRateInBytes": LARGE}, rate(size=LARGE))],
    ids=["chunks", "bytes"],
)
@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_chunks_are_charged_one_by_one_and_arrive_whole(
    pulsar: LocalPulsar, admin: Admin, kind: str, publish: dict[str, int], dispatch: dict[str, int]
) -> None:
    """A second for each message, both ways, and the group pays for what the broker counts."""
    with bare_proxy(pulsar.service, lone=True) as proxy, client(proxy.bootstrap) as made:
        namespace, group = limited(proxy, admin, publish, subscriptionDispatchRate=dispatch)
        topic = f"{namespace}/large"
        producer = made.create_producer(
            topic, batching_enabled=False, chunking_enabled=True, block_if_queue_full=True
        )
        began = time.monotonic()
        send_all(producer, map(content, range(MESSAGES)))
        # Half of a second's rate may go at once, and a group may owe for one chunk.
        assert time.monotonic() - began > MESSAGES - 2
        stats = admin.stats(topic)
        assert proxy.used(group) == (stats["msgInCounter"], stats["bytesInCounter"])
        assert stats["msgInCounter"] == MESSAGES * CHUNKS
        began = time.monotonic()
        consumer = made.subscribe(
            topic, "s", getattr(client_library.ConsumerType, kind),
            initial_position=client_library.InitialPosition.Earliest,
        )  # fmt: skip
        for number in range(MESSAGES):
            message = consumer.receive(20_000)
            assert message.data() == content(number)
            consumer.acknowledge(message)
        assert time.monotonic() - began > MESSAGES - 2
        place = {"broker": f"pulsar-{pulsar.service}", "topic": topic, "subscription": "s"}
        assert proxy.sample("weir_dispatch_delivered_msgs_total", **place) == MESSAGES * CHUNKS
