"""Clients that try to publish more than their limits let them."""

import pytest
from publish_kit import FREE, LIMITED, TEN, World, joined

from enforcer.wire.pulsar.frames import CLOSE_PRODUCER, PRODUCER_SUCCESS, BadFrame


@pytest.mark.parametrize(
    ("stored", "broken", "error"),
    [
        ({"sequence": 5, "highest": 0}, {"sequence": 5, "highest": 0}, 5),
        ({"sequence": 5, "highest": 0}, {"sequence": 4, "highest": 5}, 5),
        ({"sequence": 5, "highest": 0}, {"sequence": 6, "highest": 5}, 5),
        ({"sequence": 3, "highest": 5}, {"sequence": 5, "highest": 0}, 5),
    ],
)
def test_a_broken_send_gives_nothing_back_of_another_with_its_id(
    stored: dict[str, int], broken: dict[str, int], error: int
) -> None:
    """Its error comes at once, while the one that is stored waits for the disk."""
    world, link = joined(LIMITED, policies=TEN)
    link.send(1, stored["sequence"], highest=stored["highest"], batch=5, claimed=5)
    link.send(1, broken["sequence"], highest=broken["highest"])
    link.refuse(1, error)
    assert world.meter.accounts["ten"].refunded[0] == 0
    assert link.part.window.count == 1
    # What is left is known by its own id, whichever of the two that is.
    link.receipt(1, stored["sequence"], broken["sequence"])
    assert link.part.window.count == 0


def test_a_number_that_the_broker_frees_is_not_anothers_in_secret() -> None:
    """A second PRODUCER of an id that passes before the broker's close, and comes after it, is a new one."""
    _world, link = joined(FREE, policies=TEN)
    second = link.ask(1, LIMITED)
    link.down(CLOSE_PRODUCER, producer_id=1, request_id=2**64 - 1)
    with pytest.raises(BadFrame):
        link.down(PRODUCER_SUCCESS, request_id=second)


def test_producers_count_as_what_the_connection_holds() -> None:
    """Ten thousand of them are not little, answered or not."""
    link = World().join()
    for number in range(100):
        link.ask(number, FREE)
    for number in range(100, 200):
        link.make(number, FREE)
    assert 100_000 < link.part.held_bytes < 1_000_000
