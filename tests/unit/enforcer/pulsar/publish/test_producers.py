"""Producers that come and go, what becomes of SENDs that wait, and clients that want more than is theirs."""

import pytest
from publish_kit import FREE, LIMITED, TEN, World, joined

from enforcer.wire.pulsar.frames import CLOSE_PRODUCER, ERROR, PRODUCER, PRODUCER_SUCCESS, SEND, BadFrame


def test_one_close_waits_for_its_queue() -> None:
    """The broker gets all that was sent before, then the close."""
    world, link = joined(LIMITED, policies=TEN)
    link.send(1, *range(10))
    link.close(1)
    # The broker would not take it any more either.
    link.send(1, 99)
    assert CLOSE_PRODUCER not in link.kinds()
    world.run(1_000)
    assert link.arrived(1) == list(range(10))
    assert link.kinds()[-1] == CLOSE_PRODUCER
    assert world.number("weir_publish_unsent_sends_total", reason="closed") == 1
    link.receipt(1, *range(10))
    world.run(12_000)
    assert link.part._by_id == {}
    assert SEND not in link.part.up


def test_a_close_waits_no_longer_than_the_limit_and_the_rest_is_not_sent() -> None:
    """Their client takes them as failed when it hears that the producer is closed."""
    world, link = joined(LIMITED, policies=TEN, publish_wait_ms=2_000)
    link.send(1, *range(100))
    link.close(1)
    world.run(1_900)
    assert CLOSE_PRODUCER not in link.kinds()
    world.run(200)
    assert link.kinds()[-1] == CLOSE_PRODUCER
    assert len(link.arrived(1)) < 30
    assert world.number("weir_publish_unsent_sends_total", reason="closed") == 100 - len(link.arrived(1))
    assert world.desk.room.size == 0


def test_a_producer_closed_by_the_broker_loses_its_queue() -> None:
    """Its client sends all again that it has no receipt for; else each would be stored twice."""
    world, link = joined(LIMITED, policies=TEN)
    link.send(1, *range(20))
    sent = len(link.arrived(1))
    link.close(1)
    link.down(CLOSE_PRODUCER, producer_id=1, request_id=2**64 - 1)
    assert link.got[-1][0] == CLOSE_PRODUCER
    # The client's own close is answered by the broker.
    assert link.kinds()[-1] == CLOSE_PRODUCER
    world.run(10_000)
    assert len(link.arrived(1)) == sent
    link.make(1, LIMITED)
    link.send(1, *range(20))
    world.run(10_000)
    assert link.arrived(1)[sent:] == list(range(20))


def test_the_end_of_a_connection_drops_what_waits() -> None:
    """Nobody waits for it, and its room is free."""
    world, link = joined(LIMITED, policies=TEN)
    link.send(1, *range(20))
    world.links.clear()
    link.part.close()
    sent = len(link.sent)
    world.run(10_000)
    assert len(link.sent) == sent
    assert world.desk.room.size == world.desk.room.sends == 0
    assert world.number("weir_publish_unsent_sends_total", reason="connection") == 14
    assert len(world.meter.lines) == 0


def test_sends_before_the_broker_has_made_the_producer_wait_for_it() -> None:
    """So that nobody sends uncharged in that moment; refused, they are of no use."""
    world, link = joined(policies=TEN)
    request = link.ask(1, LIMITED)
    link.send(1, 1, 2)
    assert link.arrived(1) == []
    link.down(PRODUCER_SUCCESS, request_id=request, producer_ready=False)
    world.run(200_000)
    assert link.arrived(1) == []
    link.down(PRODUCER_SUCCESS, request_id=request, producer_ready=True)
    world.run(0)
    assert link.arrived(1) == [1, 2]
    other = link.ask(2, LIMITED)
    link.send(2, 1)
    link.fail(other)
    world.run(1_000)
    assert link.arrived(2) == []
    assert world.number("weir_publish_unsent_sends_total", reason="broker") == 1
    # The broker knows it as little as we do.
    link.send(2, 2)
    assert link.arrived(2) == [2]


def test_a_second_producer_of_the_same_id_changes_nothing() -> None:
    """The broker keeps to the first; who could rename it would send to a limited topic for free."""
    _world, link = joined(LIMITED, policies=TEN)
    link.make(1, FREE)
    link.send(1, *range(50))
    assert len(link.arrived(1)) == 6
    first, second = link.ask(2, FREE), link.ask(2, LIMITED)
    link.fail(first)
    link.down(PRODUCER_SUCCESS, request_id=second)
    link.send(2, *range(50))
    assert len(link.arrived(2)) < 6


def test_a_closed_id_can_be_used_again() -> None:
    """Also before the close has come through: then it comes through at once."""
    _world, link = joined(LIMITED, policies=TEN)
    link.send(1, *range(50))
    link.close(1)
    link.make(1, FREE)
    assert link.kinds()[-2:] == [CLOSE_PRODUCER, PRODUCER]
    before = len(link.arrived(1))
    link.send(1, *range(50))
    assert len(link.arrived(1)) == before + 50


@pytest.mark.parametrize("parked", [False, True])
def test_a_close_does_not_wait_for_the_answer_to_its_producer(parked: bool) -> None:
    """A broker that does not answer takes the close, and then the next one of that id, as without a proxy."""
    world, link = joined(policies=TEN)
    first = link.ask(1, LIMITED)
    if parked:
        link.down(PRODUCER_SUCCESS, request_id=first, producer_ready=False)
    # No client sends before the broker has made the producer, and no broker takes it.
    link.send(1, *range(5))
    link.close(1)
    second = link.ask(1, FREE)
    assert link.kinds() == [PRODUCER, CLOSE_PRODUCER, PRODUCER]
    assert world.number("weir_publish_unsent_sends_total", reason="closed") == 5
    link.down(PRODUCER_SUCCESS, request_id=second)
    link.send(1, *range(50))
    assert link.arrived(1) == list(range(50))
    # A late answer to the first one, if any, is of no matter.
    link.fail(first)
    link.send(1, 50)
    world.run(121_000)
    assert link.arrived(1) == list(range(51)) and world.desk.room.size == 0


def test_an_answer_that_never_comes_is_not_waited_for() -> None:
    """After two minutes the request is forgotten, closed or not, unless the broker has it wait."""
    link = World(TEN).join()
    link.ask(1, LIMITED)
    link.ask(2, LIMITED)
    link.close(1)
    link.down(PRODUCER_SUCCESS, request_id=link.ask(3, LIMITED), producer_ready=False)
    link.world.run(121_000)
    assert [producer.producer_id for producer in link.part._asked.values()] == [3]
    assert list(link.part._coming) == [3]


def test_a_producer_that_is_asked_for_again_has_as_long_for_its_answer() -> None:
    """It is the request that grows old: an answer to one that is forgotten ends the connection."""
    world, link = joined(LIMITED, policies=TEN)
    world.run(121_000)
    again = link.ask(1, LIMITED)
    world.run(11_000)
    link.down(PRODUCER_SUCCESS, request_id=again)
    link.send(1, 1)
    assert link.arrived(1) == [1]
    link.ask(1, LIMITED)
    world.run(131_000)
    assert not link.part._asked


def test_request_ids_that_are_used_twice_end_the_connection() -> None:
    """Nobody could say which producer an answer is for."""
    link = World(TEN).join()
    request = link.ask(1, LIMITED)
    link._requests = iter([request])
    with pytest.raises(BadFrame):
        link.ask(2, FREE)
    with pytest.raises(BadFrame):
        link.down(PRODUCER_SUCCESS, request_id=12345)


def test_names_that_are_none_and_too_many_producers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an error for that request alone."""
    monkeypatch.setattr("enforcer.pulsar.publish.part.PRODUCERS_MAX", 2)
    link = World(TEN).join()
    link.ask(1, "http://nonsense")
    assert link.got[-1][0] == ERROR
    assert link.got[-1][1].error == 17
    link.ask(1, "persistent://acme/limited/" + "x" * 4_096)
    assert link.got[-1][1].error == 17
    link.ask(1, LIMITED)
    link.ask(2, LIMITED)
    link.ask(3, LIMITED)
    assert link.got[-1][1].error == 22
    assert "2 producers" in link.got[-1][1].message
    assert link.kinds() == [PRODUCER, PRODUCER]


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
