"""SENDs under groups and byte rates of users: what passes, what waits, who is charged; bounds are reached."""

import pytest
from clock_kit import Waiter
from prometheus_client import CollectorRegistry
from publish_kit import FREE, LIMITED, TEN, World, joined, send_frame

from enforcer.pulsar.publish.pending_sends import Window
from enforcer.pulsar.publish.room import PublishMetrics, Room
from enforcer.wire.pulsar.frames import PRODUCER, SEND, SEND_RECEIPT, BadFrame


def test_without_limits_nothing_but_producers_is_looked_at() -> None:
    """SENDs and receipts pass as bytes."""
    link = World().join()
    link.make(1, LIMITED)
    assert SEND not in link.part.up
    assert SEND_RECEIPT not in link.part.down
    assert PRODUCER in link.part.up
    assert link.looked_again == 0


def test_a_connection_whose_topics_are_not_limited_is_not_looked_at() -> None:
    """Also where others' are."""
    _world, link = joined(FREE, policies=TEN)
    assert SEND not in link.part.up
    link.make(2, LIMITED)
    assert SEND in link.part.up


def test_sends_beyond_the_limit_wait_in_order_and_others_pass() -> None:
    """Ten a second; the other producer of the connection never waits, nor does anything else."""
    world, link = joined(LIMITED, FREE, policies=TEN)
    link.send(1, *range(100))
    # Half a second of the limit, and one that leaves a debt.
    assert link.arrived(1) == list(range(6))
    link.send(2, *range(50))
    assert link.arrived(2) == list(range(50))
    assert link.read
    world.run(5_000)
    assert link.arrived(1) == list(range(len(link.arrived(1))))
    assert 54 <= len(link.arrived(1)) <= 56
    world.run(5_000)
    assert link.arrived(1) == list(range(100))
    assert world.number("weir_publish_queued_sends") == 0
    assert world.number("weir_publish_queued_bytes") == 0
    assert world.number("weir_publish_wait_seconds_count") == 94
    assert world.number("pulsar_publish_rate_limit_times", namespace="acme/limited") == 94
    assert world.number("weir_proxy_throttled_frames_total", by="group", dimension="publishRateInMsgs") == 95


def test_batches_cost_what_they_hold() -> None:
    """A batch of 30 is three seconds of ten a second."""
    world, link = joined(LIMITED, policies=TEN)
    link.send(1, *range(4), batch=30, claimed=30, payload=b"x" * 600)
    assert link.arrived(1) == [0]
    world.run(2_400)
    assert link.arrived(1) == [0]
    world.run(200)
    assert link.arrived(1) == [0, 1]
    world.run(6_000)
    assert link.arrived(1) == [0, 1, 2, 3]


def test_producers_and_connections_of_a_group_take_turns() -> None:
    """One that has sent much is not served before one that comes later has had its turn."""
    world = World(TEN)
    first, second = world.join(), world.join()
    for link in (first, second):
        link.make(1, LIMITED)
    first.send(1, *range(20))
    second.send(1, *range(3))
    world.run(800)
    assert len(second.arrived(1)) == 3
    assert len(first.arrived(1)) < 12


def test_a_user_has_a_byte_rate_of_its_own() -> None:
    """Whatever topics it sends to; another user has none."""
    world = World({"quotas[user=alice]": {"producer_byte_rate": 1_000}})
    alice, bob = world.join(user="alice"), world.join(user="bob")
    for link in (alice, bob):
        link.make(1, FREE)
        link.send(1, *range(20))
    assert len(alice.arrived(1)) < 6
    assert SEND not in bob.part.up
    assert len(bob.arrived(1)) == 20
    used = world.meter.accounts["quota/user=alice"].used
    world.run(60_000)
    assert used[0] == 0
    assert len(alice.arrived(1)) == 20


def test_exempt_users_are_not_limited() -> None:
    """Such as that of geo-replication, once its login was accepted."""
    world = World(TEN, exempt_users=["replicator"])
    link = world.join(user="replicator")
    link.make(1, LIMITED)
    link.send(1, *range(100))
    assert len(link.arrived(1)) == 100


def test_a_shadow_group_limits_nothing_and_is_counted() -> None:
    """Its use is told all the same."""
    shadow = {**TEN, "resourcegroups.ten": {"publishRateInMsgs": 10, "shadow": True}}
    world, link = joined(LIMITED, policies=shadow)
    link.send(1, *range(100))
    assert len(link.arrived(1)) == 100
    assert world.meter.accounts["ten"].used[0] == 100


def test_what_the_broker_refuses_is_given_back() -> None:
    """By its sequence id, or a batch by its highest one; a receipt gives nothing back."""
    world, link = joined(LIMITED, policies=TEN)
    link.send(1, 1)
    link.send(1, 2, batch=3, claimed=3, highest=4)
    account = world.meter.accounts["ten"]
    link.refuse(1, 4)
    assert account.refunded[0] == 3
    link.receipt(1, 1)
    link.refuse(1, 1)
    assert account.refunded[0] == 3
    # Of one that was never seen nothing is known.
    link.refuse(9, 1)


def test_limits_come_and_go_while_producers_are_there() -> None:
    """What waits goes on when nobody limits it any more, in order, before what comes later."""
    world, link = joined(LIMITED)
    link.send(1, *range(50))
    world.set(TEN)
    world.run(1_000)
    assert SEND in link.part.up
    link.send(1, *range(50, 100))
    assert len(link.arrived(1)) == 56
    world.set({})
    link.send(1, 100)
    world.run(1_000)
    assert link.arrived(1) == list(range(101))
    world.run(1_000)
    assert SEND not in link.part.up
    assert SEND_RECEIPT not in link.part.down


def test_a_namespace_that_moves_to_another_group_waits_for_that_one() -> None:
    """A debt of the old group keeps nobody waiting who is not its member any more."""
    world, link = joined(LIMITED, policies=TEN)
    link.send(1, 1, batch=90, claimed=90, payload=b"x" * 600)
    link.send(1, 2)
    world.run(1_000)
    assert link.arrived(1) == [1]
    other = {"resourcegroups.other": {"publishRateInMsgs": 10}}
    world.set({**TEN, **other, "namespaces.acme/limited": {"resourcegroup": "other"}})
    world.run(1_000)
    assert link.arrived(1) == [1, 2]


def test_a_frame_that_cannot_be_read_ends_the_connection() -> None:
    """Whatever it is: here a SEND without a message."""
    link = World(TEN).join()
    link.make(1, LIMITED)
    frame = send_frame(1, 1)
    with pytest.raises(BadFrame):
        link.part.take_up(SEND, frame[:30])


def test_a_connection_above_its_bound_is_not_read_until_half_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not read and stopped again for each SEND."""
    monkeypatch.setattr("enforcer.pulsar.publish.context.PUBLISH_QUEUE_BYTES", 40_000)
    world, link = joined(LIMITED, policies=TEN)
    number = 0
    while link.read:
        link.send(1, number)
        number += 1
    assert world.desk.room.size > 40_000
    assert world.number("weir_publish_unread_connections") == 1
    waits = world.desk.room.sends
    world.run(100 * (waits // 2 - 2))
    assert not link.read
    world.run(1_000)
    assert link.read
    assert world.number("weir_publish_unread_connections") == 0


def test_what_closes_a_producer_counts_as_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept behind that, and may be as large; there may be any number, of ten thousand producers."""
    monkeypatch.setattr("enforcer.pulsar.publish.context.PUBLISH_QUEUE_BYTES", 40_000)
    world, link = joined(LIMITED, policies=TEN)
    link.send(1, *range(20))
    assert link.read
    asked = [link.close(1) for _ in range(200)]
    assert not link.read and link.closings() == []
    world.run(5_000)
    assert link.read and link.closings() == asked and world.desk.room.size == 0
    link.make(1, LIMITED)
    link.send(1, *range(20, 60))
    link.close(1)
    link.part.close()
    assert world.desk.room.size == 0


def test_so_many_are_unfinished_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker throws what is beyond of a non-persistent topic; the rest waits until half are answered."""
    wide = {"resourcegroups.wide": {"publishRateInMsgs": 10**6}, "tenants.acme": {"resourcegroup": "wide"}}
    monkeypatch.setattr("enforcer.pulsar.publish.part.PENDING_SENDS_MAX", 10)
    world, link = joined("non-persistent://acme/free/b", FREE, policies=wide)
    link.send(1, *range(12))
    link.send(2, 0)
    assert link.arrived(1) == list(range(10))
    link.receipt(1, *range(4))
    world.run(10)
    assert len(link.arrived(1)) == 10
    link.receipt(1, 4)
    world.run(10)
    assert link.arrived(1) == list(range(12))
    assert link.arrived(2) == [0]
    # Some are never answered: after the deadline of slots they do not count any more.
    link.send(1, *range(12, 40))
    world.run(60_000)
    assert len(link.arrived(1)) > 14


def test_one_that_has_waited_long_may_pass_in_spite_of_the_debt() -> None:
    """One for each account and time, if all of it will be waited off."""
    world = World(TEN, publish_wait_ms=5_000)
    links = [world.join() for _ in range(3)]
    for link in links:
        link.make(1, LIMITED)
    links[0].send(1, 1, batch=90, claimed=90, payload=b"x" * 600)
    for link in links:
        link.send(1, 2)
    world.run(5_100)
    assert sum(2 in link.arrived(1) for link in links) == 1
    world.run(1_000)
    assert sum(2 in link.arrived(1) for link in links) == 1


def test_a_namespace_counts_for_its_tenant() -> None:
    """Old names have the cluster in it, and long ones are names too: who makes one stays in his group."""
    world = World({**TEN, "tenants.old": {"resourcegroup": "ten"}})
    assert world.desk.of_namespace("acme/limited") is world.meter.accounts["ten"]
    assert world.desk.of_namespace("old/cluster/namespace") is world.meter.accounts["ten"]
    assert world.desk.of_namespace("acme/free") is None
    assert world.desk.of_namespace("old/" + "x" * 4_000) is world.meter.accounts["ten"]


def test_namespaces_have_so_many_series() -> None:
    """The others count together."""
    metrics = PublishMetrics(CollectorRegistry(), Room(1, 1), 2)
    for namespace in ("a", "b", "c", "a", "d"):
        metrics.limit(namespace)
    samples = (one for family in metrics.collect() for one in family.samples)
    said = {one.labels["namespace"]: one.value for one in samples if one.labels}
    assert said == {"a": 2, "b": 1, "": 2}


def test_a_full_window_opens_for_all_when_half_is_answered() -> None:
    """Who comes in between stands behind those who wait."""
    window, one, other = Window(4), Waiter(), Waiter()
    for _ in range(4):
        assert window.admits(one)
        window.sent()
    assert not window.admits(one)
    window.finished()
    assert not window.admits(other)
    assert (one.woken, other.woken) == (0, 0)
    window.finished()
    assert (one.woken, other.woken) == (1, 1)
    assert window.admits(other)
    window.leave(one)
    window.finished(2)
    assert (window.count, one.woken) == (0, 1)
