"""Evictions from a real Pulsar, read to the end: what was planned is gone, and nothing else."""

import time
from contextlib import closing

import pulsar as pulsar_client
import pytest
from pulsar_backlog_rig import (
    FAST,
    SLOW,
    Rig,
    backlogged,
    bodies,
    entry_at,
    numbers,
    position,
    read,
    sent,
    subscribed,
    upto,
)  # fmt: skip
from pulsar_kit import Admin, client, fresh

from streaming.collect.backlog.cluster import CannotEvict, NotKnown
from streaming.collect.pulsar.rest import RestError
from weir.stack.pulsar import LocalPulsar


@pytest.mark.soak
@pytest.mark.parametrize(("last", "left"), [(24, 22), (29, 17), (45, 1), (46, 0)])
def test_by_size(rolling: LocalPulsar, rolls: Rig, last: int, left: int) -> None:
    """Within a ledger, to its end, into the open one, all: the rest is read to the end, in order."""
    topic = backlogged(rolling, 47, SLOW, FAST)
    report = rolls.report(topic)
    done = rolls.evict(report, **upto(report, last, 47))
    assert done.messages == last + 1
    sent(rolling.service, topic, 47, 50)
    assert read(rolling.service, topic, SLOW) == list(range(50 - left - 3, 50))
    assert read(rolling.service, topic, FAST) == list(range(50))


@pytest.mark.soak
def test_by_time(rolling: LocalPulsar, rolls: Rig) -> None:
    """All subscriptions lose what was published before, and nothing that was published at that time."""
    topic = Admin(rolling.admin).topic(fresh("time"))
    subscribed(rolling.service, topic, SLOW, FAST)
    with client(rolling.service) as clients:
        producer = clients.create_producer(topic, batching_enabled=False)
        for body in bodies(0, 35):
            producer.send(body)
            time.sleep(0.02)
    read(rolling.service, topic, FAST, most=14)
    report = rolls.report(topic)
    before_ms = {one.name: one.oldest_publish_time for one in report.subscriptions}[FAST]
    assert before_ms is not None
    assert rolls.prepare(report, subscription=FAST, before_publish_time=before_ms) is None
    done = rolls.evict(report, subscription=SLOW, before_publish_time=before_ms)
    assert (done.messages, done.upto) == (14, entry_at(report, 13, 35))
    assert rolls.prepare(report, subscription=SLOW, before_publish_time=before_ms) is None
    # What comes later than the report stays, even if its time has come by then.
    sent(rolling.service, topic, 35, 45)
    later_ms = time.time_ns() // 10**6 + 5_000
    done = rolls.evict(report, subscription=SLOW, before_publish_time=later_ms)
    assert (done.messages, done.upto) == (21, entry_at(report, 34, 35))
    assert read(rolling.service, topic, SLOW) == list(range(35, 45))
    assert read(rolling.service, topic, FAST) == list(range(14, 45))


@pytest.mark.soak
def test_entries_of_several_messages(rolling: LocalPulsar, rolls: Rig) -> None:
    """An entry goes as a whole; its messages are counted."""
    topic = Admin(rolling.admin).topic(fresh("batches"))
    subscribed(rolling.service, topic, SLOW)
    batches = {"batching_enabled": True, "batching_max_messages": 7, "batching_max_publish_delay_ms": 1_000}
    sent(rolling.service, topic, 0, 7 * 15, **batches)
    report = rolls.report(topic)
    assert sum(one.entries for one in report.ledgers) == 15
    done = rolls.evict(report, **upto(report, 11, 15))
    assert done.messages == 84
    assert read(rolling.service, topic, SLOW) == list(range(84, 105))


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "Failover", "KeyShared"])
def test_with_a_consumer_connected(rolling: LocalPulsar, rolls: Rig, kind: str) -> None:
    """It is moved under it; what it has in hand may still come, and what follows is all delivered."""
    topic = Admin(rolling.admin).topic(fresh("connected"))
    with client(rolling.service) as clients:
        consumer = clients.subscribe(
            topic, SLOW, getattr(pulsar_client.ConsumerType, kind), receiver_queue_size=5
        )
        sent(rolling.service, topic, 0, 47)
        held = [consumer.receive(5_000) for _ in range(3)]
        consumer.acknowledge(held[1])
        report = rolls.report(topic)
        rolls.evict(report, **upto(report, 29, 47))
        for one in held:
            consumer.acknowledge(one)
        found = set(numbers(consumer, quiet_s=3.0))
        assert found >= set(range(30, 47))
        sent(rolling.service, topic, 47, 50)
        assert numbers(consumer, most=3) == [47, 48, 49]


@pytest.mark.soak
def test_what_is_acknowledged_one_by_one(rolling: LocalPulsar, rolls: Rig) -> None:
    """Holes do not count, do not come back, and do not keep an eviction from going its whole way."""
    topic = backlogged(rolling, 60, SLOW)
    with client(rolling.service) as clients:
        consumer = clients.subscribe(topic, SLOW, pulsar_client.ConsumerType.Shared)
        got = [consumer.receive(5_000) for _ in range(60)]
        for one in got[2:40] + got[55:57]:
            consumer.acknowledge(one)
        time.sleep(1.0)
        report = rolls.report(topic)
        done = rolls.evict(report, **upto(report, 49, 60))
    assert done.messages == 12
    assert read(rolling.service, topic, SLOW) == [50, 51, 52, 53, 54, 57, 58, 59]


@pytest.mark.soak
def test_unload_in_between(rolling: LocalPulsar, rolls: Rig) -> None:
    """A plan of before holds after it, and so does what was evicted."""
    admin = Admin(rolling.admin)
    topic = backlogged(rolling, 25, SLOW)
    report = rolls.report(topic)
    prepared = rolls.prepare(report, **upto(report, 12, 25))
    assert prepared is not None
    admin.unload(topic)
    rolls.run(rolls.cluster.carry_out(prepared))
    admin.unload(topic)
    assert rolls.passed(prepared) is True
    assert position(rolls.report(topic), SLOW) == entry_at(report, 12, 25)
    assert read(rolling.service, topic, SLOW) == list(range(13, 25))


@pytest.mark.soak
def test_trimmed_and_made_anew(rolling: LocalPulsar, rolls: Rig) -> None:
    """Plans of ledgers that are gone touch nothing: trimmed since all have passed, or of a topic deleted."""
    admin = Admin(rolling.admin)
    topic = backlogged(rolling, 25, SLOW)
    report = rolls.report(topic)
    plan = upto(report, 3, 25)
    prepared = rolls.prepare(report, **plan)
    assert prepared is not None
    read(rolling.service, topic, SLOW, most=15)
    sent(rolling.service, topic, 25, 40)
    admin.do("POST", f"{topic.replace('://', '/')}/trim")
    assert rolls.prepare(report, **plan) is None
    rolls.run(rolls.cluster.carry_out(prepared))
    assert read(rolling.service, topic, SLOW) == list(range(15, 40))
    admin.delete(topic)
    assert rolls.prepare(report, **plan) is None
    with pytest.raises(CannotEvict):
        rolls.run(rolls.cluster.carry_out(prepared))
    admin.topic(topic)
    subscribed(rolling.service, topic, SLOW)
    sent(rolling.service, topic, 40, 52)
    assert rolls.prepare(report, **plan) is None
    late_ms = time.time_ns() // 10**6 + 5_000
    assert rolls.prepare(report, subscription=SLOW, before_publish_time=late_ms) is None
    rolls.run(rolls.cluster.carry_out(prepared))
    assert read(rolling.service, topic, SLOW) == list(range(40, 52))


@pytest.mark.soak
def test_partitions_one_by_one(rolling: LocalPulsar, rolls: Rig) -> None:
    """Each is a topic; an eviction on one leaves the others."""
    topic = backlogged(rolling, 60, SLOW, partitions=2)
    one, two = (f"{topic}-partition-{number}" for number in (0, 1))
    report = rolls.report(two)
    assert {one, two} <= {found.topic for found in rolls.look().reports}
    done = rolls.evict(report, subscription=SLOW, ledger=report.ledgers[0].id, entry=9, entries=10)
    assert done.messages == 10
    assert len(read(rolling.service, topic, SLOW)) == 50


@pytest.mark.soak
def test_an_eviction_is_quick(rolling: LocalPulsar, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulsar 4.0.7's own eviction by size with precise times may stand still for 30 s; ours does not."""
    monkeypatch.setattr("streaming.collect.pulsar_backlog.eviction.EVICTION_WAIT_S", 5.0)
    topic = backlogged(rolling, 500, SLOW)
    with closing(Rig(rolling.admin)) as rig:
        for passed in range(0, 500, 100):
            report = rig.report(topic)
            rig.evict(report, **upto(report, passed + 99, 500, passed))
    assert read(rolling.service, topic, SLOW) == []


@pytest.mark.soak
def test_a_killed_broker(rolling: LocalPulsar, rolls: Rig) -> None:
    """Nothing can be read, which is said; afterwards all stands where it was seen to stand."""
    topic = backlogged(rolling, 25, SLOW, FAST)
    report = rolls.report(topic, precise_age=False, expires=False)
    done = rolls.evict(report, **upto(report, 12, 25))
    prepared = rolls.prepare(report, **upto(report, 17, 25, 13))
    assert prepared is not None
    rolling.kill()
    try:
        with pytest.raises(RestError):
            rolls.look()
        with pytest.raises(RestError):
            rolls.prepare(report, **upto(report, 17, 25) | {"subscription": FAST})
        with pytest.raises(RestError):
            rolls.passed(done)
        with pytest.raises(NotKnown):
            rolls.run(rolls.cluster.carry_out(prepared))
    finally:
        rolling.start()
    again = rolls.report(topic, precise_age=False, expires=False)
    assert rolls.passed(done) is True
    closed = {one.id: one.close_time for one in again.ledgers}
    assert all(closed[one.id] == one.close_time for one in report.ledgers if one.close_time is not None)
    rolls.run(rolls.cluster.carry_out(prepared))
    assert read(rolling.service, topic, SLOW) == list(range(18, 25))
    assert read(rolling.service, topic, FAST) == list(range(25))
