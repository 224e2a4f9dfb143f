"""SENDs under groups and byte rates of users: what passes and what waits."""

import pytest
from publish_kit import FREE, LIMITED, TEN, World, joined, send_frame

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
