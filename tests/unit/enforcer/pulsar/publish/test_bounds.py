"""Bounds of what waits and of what is unfinished, each reached."""

import pytest
from publish_kit import FREE, LIMITED, TEN, World, joined


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
