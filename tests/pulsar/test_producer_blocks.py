"""Producers of topics beyond their backlog quota on a real Pulsar, with its clients: nothing is lost."""

import threading
import time
from pathlib import Path
from typing import Any

import pulsar as clients
import pytest
from backlog_kit import EXCEPTION, HOLD, BacklogWriter, counted, quota
from broker_fixtures import apart
from cluster_kit import Cluster
from proxy_kit import until
from pulsar import MessageId, Result
from pulsar_kit import Admin, Publishing, Sending, client, fresh, numbered, receive
from pulsar_proxy_kit import BOTH_WAYS, TLS_IN_SOAK, PulsarThread, joined, limited
from pulsar_tools import java_produce

from benchmarks.load.pulsar_perf import perf
from weir.stack.pulsar import LocalPulsar

BEYOND, INSIDE = 10_240, 100


def block(proxy: PulsarThread, topic: str, policy: str = HOLD) -> None:
    """Put a topic beyond its quota."""
    proxy.set({f"topics.{topic}": quota(policy)})
    proxy.backlog(topic, BEYOND)


def publishers(admin: Admin, topic: str) -> int:
    """How many producers the broker has of a topic."""
    return len(admin.stats(topic)["publishers"])


def stored(own: clients.Client, topic: str) -> list[int]:
    """The numbers that stand in a topic."""
    reader = own.create_reader(topic, MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(10_000).data()))
    reader.close()
    return found


@BOTH_WAYS
def test_a_held_topic_goes_on_when_it_is_inside_and_loses_none(proxy: PulsarThread, admin: Admin) -> None:
    """Batches are under way; its neighbour on the same connection is not touched."""
    topic, other = (admin.topic(fresh("held")) for _ in range(2))
    ended = proxy.metric("closed_connections_total", reason="internal")
    before = counted(proxy, "closed")
    with client(**proxy.way) as own:
        stream = Publishing(own.create_producer(topic, batching_max_publish_delay_ms=5), 1_000).start()
        beside = Publishing(own.create_producer(other, batching_enabled=False), 200).start()
        stream.goes_on()
        block(proxy, topic)
        until(lambda: publishers(admin, topic) == 0, what="the producer is closed")
        held = len(stream.acknowledged)
        for _ in range(3):
            beside.goes_on()
        assert len(stream.acknowledged) <= held + 1_000
        until(lambda: counted(proxy, "refused") > 0, what="it has asked again")
        proxy.backlog(topic, INSIDE)
        stream.goes_on()
        sent, others = stream.stop(), beside.stop()
        assert stream.failed == beside.failed == []
        assert stored(own, topic) == sent == list(range(len(sent)))
        assert stored(own, other) == others == list(range(len(others)))
    assert counted(proxy, "closed") == before + 1
    assert proxy.metric("closed_connections_total", reason="internal") == ended


@TLS_IN_SOAK
def test_an_exception_fails_what_waits_at_once(proxy: PulsarThread, admin: Admin) -> None:
    """With the name that the client has for it; new producers too, of either policy."""
    topic = admin.topic(fresh("failing"))
    with client(**proxy.way) as own:
        stream = Publishing(own.create_producer(topic, batching_enabled=False), 500).start()
        stream.goes_on()
        block(proxy, topic, EXCEPTION)
        until(lambda: stream.failed, what="a send that fails")
        with pytest.raises(clients.exceptions.ProducerBlockedQuotaExceededException):
            own.create_producer(topic)
        proxy.set({f"topics.{topic}": quota(HOLD)})
        with pytest.raises(clients.exceptions.ProducerBlockedQuotaExceededError):
            own.create_producer(topic)
        proxy.backlog(topic, INSIDE)
        stream.goes_on()
        sent = stream.stop()
        assert set(stream.failed) == {Result.ProducerBlockedQuotaExceededException}
        assert stored(own, topic) == sent


@pytest.mark.soak
def test_a_send_that_is_held_too_long_fails_by_its_own_time_out(proxy: PulsarThread, admin: Admin) -> None:
    """As where nobody answers, and nothing of it is stored."""
    topic = admin.topic(fresh("timed"))
    with client(proxy.bootstrap) as own:
        producer = own.create_producer(topic, send_timeout_millis=5_000, batching_enabled=False)
        producer.send(b"0")
        block(proxy, topic)
        until(lambda: publishers(admin, topic) == 0, what="the producer is closed")
        began = time.monotonic()
        with pytest.raises(clients.Timeout):
            producer.send(b"1")
        assert 4 < time.monotonic() - began < 15
        proxy.backlog(topic, INSIDE)
        # By now its client asks for its producer only once in several seconds.
        until(lambda: publishers(admin, topic) == 1, what="it is made again")
        producer.send(b"2")
        assert stored(own, topic) == [0, 2]


@pytest.mark.soak
def test_blocks_are_read_from_kafka_and_logged_there(
    cluster: Cluster, pulsar: LocalPulsar, admin: Admin
) -> None:
    """Policies and decisions as a collector and the job write them; begun and ended once."""
    topic = admin.topic(fresh("logged"))
    with apart(cluster, "pulsar-blocks") as company:
        writer = BacklogWriter(company, company.topics)
        writer.policies.put(f"topics.{topic}", quota())
        with joined(company, pulsar, "p1") as proxy, client(proxy.bootstrap) as own:
            stream = Publishing(own.create_producer(topic, batching_enabled=False), 200).start()
            stream.goes_on()
            said = writer.say(topic, BEYOND)
            until(lambda: publishers(admin, topic) == 0, what="the producer is closed")
            writer.say(topic, BEYOND)
            writer.say(topic, INSIDE)
            stream.goes_on()
            sent = stream.stop()
            assert stored(own, topic) == sent == list(range(len(sent)))
            until(lambda: len(writer.actions(topic)) == 2, what="both steps")
        begun, ended = writer.actions(topic)
        assert begun["id"].removesuffix("/begun") == ended["id"].removesuffix("/ended")
        assert begun["id"].startswith(f"{said}/size/p1-")
        assert (begun["step"], begun["how"], begun["policy"]) == ("begun", "hold", HOLD)
        assert (ended["step"], ended["reason"]) == ("ended", "inside")


@pytest.mark.soak
def test_one_partition_is_held_and_the_others_go_on(proxy: PulsarThread, admin: Admin) -> None:
    """A shared subscription reads all that was acknowledged, each message once."""
    topic = admin.topic(fresh("parts"), 3)
    with client(proxy.bootstrap) as own:
        consumer = own.subscribe(topic, "s", consumer_type=clients.ConsumerType.Shared)
        # What waits for the held one: a third of 600 a second, until the client's own pause has passed.
        producer = own.create_producer(topic, batching_max_publish_delay_ms=5, max_pending_messages=10_000)
        stream = Publishing(producer, 600).start()
        stream.goes_on()
        block(proxy, f"{topic}-partition-1")
        until(lambda: publishers(admin, f"{topic}-partition-1") == 0, what="the producer is closed")
        for _ in range(5):
            stream.goes_on()
        assert publishers(admin, f"{topic}-partition-0") == publishers(admin, f"{topic}-partition-2") == 1
        time.sleep(3)
        proxy.backlog(f"{topic}-partition-1", INSIDE)
        until(lambda: publishers(admin, f"{topic}-partition-1") == 1, what="it is made again")
        stream.goes_on()
        sent = stream.stop()
        assert stream.failed == []
        got = sorted(int(each.data) for each in receive(consumer, quiet_s=3))
    assert got == sorted(sent) == list(range(len(sent)))


@pytest.mark.soak
def test_what_waits_for_a_limit_is_sent_again(proxy: PulsarThread, admin: Admin) -> None:
    """A queue in the proxy goes with its producer, and nothing of it is stored twice."""
    namespace, _ = limited(proxy, admin, {"publishRateInMsgs": 20})
    topic = admin.topic(f"{namespace}/a")
    with client(proxy.bootstrap) as own:
        sending = Sending(own.create_producer(topic, batching_enabled=False), numbered(60))
        until(lambda: len(sending.sent) > 10, what="some are sent")
        block(proxy, topic)
        until(lambda: publishers(admin, topic) == 0, what="the producer is closed")
        time.sleep(2)
        proxy.backlog(topic, INSIDE)
        sending.wait()
        assert stored(own, topic) == list(range(60))
    assert proxy.sample("weir_publish_unsent_sends_total", reason="blocked") > 0
    assert proxy.proxy.metrics.registry.get_sample_value("weir_publish_queued_sends") == 0


@pytest.mark.soak
@pytest.mark.parametrize("policy", [HOLD, EXCEPTION])
def test_the_java_client_asks_again_until_it_is_inside(
    proxy: PulsarThread, admin: Admin, tmp_path: Path, policy: str
) -> None:
    """It takes neither as final for a producer that it has not got yet."""
    topic = admin.topic(fresh("java"))
    block(proxy, topic, policy)
    before = counted(proxy, "refused", policy)
    thread = threading.Thread(target=lambda: java_produce(proxy.bootstrap, topic, ["7", "8"], tmp_path))
    thread.start()
    until(lambda: counted(proxy, "refused", policy) > before + 1, 60, what="it asks again")
    proxy.backlog(topic, INSIDE)
    thread.join(60)
    with client(proxy.bootstrap) as own:
        assert stored(own, topic) == [7, 8]


@pytest.mark.soak
def test_a_java_producer_in_full_flow_loses_none(
    proxy: PulsarThread, pulsar: LocalPulsar, admin: Admin, tmp_path: Path
) -> None:
    """All that it sends is stored once, in spite of blocks in between."""
    topic = admin.topic(fresh("perf"))
    seen: list[Any] = []
    words = ("-r", "1000", "-m", "15000", "-s", "100")
    thread = threading.Thread(
        target=lambda: seen.append(perf("produce", proxy.bootstrap, topic, tmp_path, *words))
    )
    thread.start()
    for done in (2_000, 6_000):
        until(lambda done=done: admin.stats(topic)["msgInCounter"] > done, 60)  # type: ignore[misc]
        block(proxy, topic)
        until(lambda: publishers(admin, topic) == 0, what="the producer is closed")
        time.sleep(1)
        proxy.backlog(topic, INSIDE)
    thread.join(120)
    assert seen[0].messages >= 15_000
    assert admin.stats(topic)["msgInCounter"] == seen[0].messages
