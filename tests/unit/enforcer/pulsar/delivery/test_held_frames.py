"""What is held of several consumers that share a limit."""

import pytest
from pulsar_delivery_kit import ModelLink, World, per_subscription, reading


def test_who_shares_a_limit_reads_its_broker_on_at_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also who gives its turn away each time before nothing is left: the one behind it finds that."""
    monkeypatch.setattr("enforcer.pulsar.delivery.part.HELD_MESSAGE_BYTES", 5_000)
    world = World()
    links = [ModelLink(world) for _ in range(3)]
    for link in links:
        link.subscribe(1, queue=1_000)
    world.run(20)
    world.put(per_subscription(200), ms=30)
    for link in links:
        link.publish(1, 400)
    for _ in range(500):
        world.run(5)
        assert all(link.broker_read or link.part.held * 2 > 5_000 for link in links)
    assert world.count("full_total") >= 6


def test_who_adds_nothing_to_too_much_is_read_on() -> None:
    """Stopped in the midst of a frame nothing else of its broker's, or of ours, would reach its client."""
    world, link = reading(queue=1_000)
    world.run(20)
    world.put(per_subscription(10), ms=30)
    link.publish(1, 40, ms=20)
    held = link.part.held
    # Others have so much.
    world.desk.held += 1 << 28
    world.run(1_000)
    assert link.broker_read and 0 < link.part.held < held
    link.publish(1, 1, ms=5)
    assert not link.broker_read
