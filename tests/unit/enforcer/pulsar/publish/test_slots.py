"""SENDs under the concurrency limit of their broker."""

from concurrency_kit import Times, limiter_at
from publish_kit import FREE, LIMITED, TEN, World


def test_sends_of_a_limited_broker_wait_for_a_slot() -> None:
    """In order, first come first served over connections; receipts give the slots back."""
    world, limiter = World(), limiter_at(Times(), 2)
    one, two = world.join(limiter), world.join(limiter)
    for link in (one, two):
        link.make(1, FREE)
    one.send(1, 1, 2, 3)
    two.send(1, 11)
    assert (one.arrived(1), two.arrived(1)) == ([1, 2], [])
    one.receipt(1, 1)
    world.run(1)
    assert one.arrived(1) == [1, 2, 3]
    one.receipt(1, 2)
    world.run(1)
    assert two.arrived(1) == [11]
    one.receipt(1, 3)
    two.refuse(1, 11)
    assert limiter.in_flight == 0
    assert len(limiter.samples.take()) == 4


def test_slots_come_back_with_the_end_and_from_who_reads_nothing() -> None:
    """None of it is a drop: it says nothing of the broker."""
    world, limiter = World(), limiter_at(Times(), 4)
    gone, slow = world.join(limiter), world.join(limiter)
    gone.make(1, FREE)
    slow.make(1, FREE)
    gone.send(1, 1, 2)
    slow.send(1, 1, 2)
    gone.part.close()
    world.links.remove(gone)
    assert limiter.in_flight == 2
    slow.stalled = True
    world.run(1_000)
    assert limiter.in_flight == 0
    slow.receipt(1, 1, 2)
    assert limiter.samples.take() == []


def test_a_limit_that_is_taken_away_lets_all_go() -> None:
    """And who waits for both stands in the line for slots only while it may go on otherwise."""
    world, limiter = World(TEN), limiter_at(Times(), 1)
    link = world.join(limiter)
    link.make(1, FREE)
    link.make(2, LIMITED)
    link.send(1, *range(5))
    assert link.arrived(1) == [0]
    assert limiter.waiting == 1
    link.limiter = None
    limiter.close()
    world.run(1)
    assert link.arrived(1) == list(range(5))
    link.limiter = limiter_at(Times(), 8)
    link.send(2, *range(20))
    assert (link.limiter.in_flight, link.limiter.waiting) == (6, 0)
    world.run(1_000)
    assert (link.limiter.in_flight, link.limiter.waiting) == (8, 1)
    link.receipt(2, *range(8))
    world.run(10)
    assert (link.limiter.in_flight, link.limiter.waiting) == (6, 0)


def test_a_line_without_room_is_asked_again() -> None:
    """A SEND is never refused."""
    world, limiter = World(), limiter_at(Times(), 1, queue_max=1)
    links = [world.join(limiter) for _ in range(3)]
    for link in links:
        link.make(1, FREE)
        link.send(1, 1)
    assert limiter.waiting == 1
    links[0].receipt(1, 1)
    world.run(1)
    links[1].receipt(1, 1)
    world.run(2_000)
    assert links[2].arrived(1) == [1]


def test_pulsars_own_topics_need_no_slot() -> None:
    """Transactions would hang; their round trips are measured."""
    world, limiter = World(), limiter_at(Times(), 1)
    link = world.join(limiter)
    link.make(1, FREE)
    link.make(2, "persistent://pulsar/system/x")
    link.send(1, 1)
    link.send(2, 1, 2, 3)
    assert link.arrived(2) == [1, 2, 3]
    assert limiter.in_flight == 1
