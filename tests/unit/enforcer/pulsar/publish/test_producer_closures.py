"""Producers of topics beyond a quota of their backlog: refused, and closed without a loss."""

import pytest
from backlog_kit import EXCEPTION, HOLD
from publish_kit import FREE, LIMITED, TEN, FakeLink, World, joined
from pulsar_rig import Seeing

from enforcer.pulsar.publish.producer_closures import FORGET_MS, TOLD_MS
from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import CONNECTION

TEXT = f"Cannot produce to {FREE}: its backlog of 10,240 bytes exceeds the quota destination_storage of 5,000"


def requests(world: World, outcome: str, policy: str = HOLD) -> float:
    """How many producers came to this."""
    labels = {"quota_type": "size", "policy": policy, "outcome": outcome}
    return world.number("weir_producer_block_requests_total", **labels)


def told(link: FakeLink) -> list[tuple[int, int]]:
    """CLOSE_PRODUCERs that the client got: producer and request."""
    return [(body.producer_id, body.request_id) for kind, body in link.got if kind == frames.CLOSE_PRODUCER]


def answer(link: FakeLink) -> None:
    """The broker has closed the last producer that it was told to."""
    link.down(frames.SUCCESS, request_id=link.closings()[-1])


@pytest.mark.parametrize(("policy", "code"), [(HOLD, 7), (EXCEPTION, 8)])
def test_a_producer_of_a_blocked_topic_is_refused(policy: str, code: int) -> None:
    """By the code that its policy has, with the figures; those of other topics are made; logged once."""
    world, link = joined()
    world.block(FREE, policy)
    for _ in range(2):
        request_id = link.ask(1, "acme/free/b")
        kind, body = link.got[-1]
        assert (kind, body.request_id, body.error) == (frames.ERROR, request_id, code)
        assert body.message == f"{TEXT} bytes ({policy})"
    assert frames.PRODUCER not in link.kinds()
    link.make(2, f"{FREE}-partition-0")
    link.make(3, LIMITED)
    assert link.kinds() == [frames.PRODUCER, frames.PRODUCER]
    assert requests(world, "refused", policy) == 2
    assert [(each["step"], each["policy"]) for each in world.actions] == [("begun", policy)]
    world.lift(FREE)
    link.make(1, FREE)
    assert link.got[-1][0] == frames.PRODUCER_SUCCESS
    assert [(each["step"], each.get("reason")) for each in world.actions][1:] == [("ended", "inside")]


def test_a_partition_is_a_topic_of_its_own() -> None:
    """The other partitions go on."""
    world, link = joined()
    for number in range(3):
        link.make(number, f"{FREE}-partition-{number}")
    world.block(f"{FREE}-partition-1", ms=1_000)
    assert [body.producer_id for _, kind, body in link.sent if kind == frames.CLOSE_PRODUCER] == [1]


def test_what_the_broker_has_is_acknowledged_before_the_client_is_told() -> None:
    """The broker is told first; what comes meanwhile goes nowhere; all kinds are as before in the end."""
    world, link = joined(FREE, LIMITED)
    up, down = link.part.up, link.part.down
    link.send(1, 0, 1)
    world.block(FREE, ms=1_000)
    link.send(1, 2)
    link.send(2, 0)
    assert (link.arrived(1), link.arrived(2)) == ([0, 1], [0])
    assert told(link) == []
    link.receipt(1, 0, 1)
    answer(link)
    kinds = [kind for kind, _ in link.got]
    assert kinds[-3:] == [frames.SEND_RECEIPT, frames.SEND_RECEIPT, frames.CLOSE_PRODUCER]
    assert told(link) == [(1, CONNECTION)]
    # Sent before the client knew. A broker would end the connection.
    link.send(1, 3)
    assert link.arrived(1) == [0, 1]
    assert world.number("weir_publish_unsent_sends_total", reason="blocked") == 2
    link.ask(1, FREE)
    assert link.got[-1][1].error == 7
    assert (link.part.up, link.part.down) == (up, down)
    world.run(10_000)
    assert len(link.closings()) == 1
    world.lift(FREE)
    link.make(1, FREE)
    link.send(1, 2, 3)
    assert link.arrived(1) == [0, 1, 2, 3]
    assert requests(world, "closed") == requests(world, "refused") == 1
    assert [each["step"] for each in world.actions] == ["begun", "ended"]


def test_what_waits_here_is_dropped_with_its_producer() -> None:
    """The client has no receipt for it; slots of what the broker has are kept until it answers."""
    world, link = joined(LIMITED, policies=TEN)
    link.send(1, *range(20))
    assert len(link.arrived(1)) == 6
    world.block(LIMITED, ms=2_000)
    passed = len(link.arrived(1))
    assert world.number("weir_publish_queued_sends") == world.number("weir_publish_queued_bytes") == 0
    assert world.number("weir_publish_unsent_sends_total", reason="blocked") == 20 - passed
    link.receipt(1, *range(passed))
    answer(link)
    world.run(20_000)
    assert len(link.arrived(1)) == passed
    world.lift(LIMITED)
    link.make(1, LIMITED)
    link.send(1, *range(passed, 20))
    world.run(20_000)
    assert link.arrived(1) == list(range(20))


def test_a_producer_that_is_made_while_its_topic_is_blocked_is_closed() -> None:
    """Its request was at the broker when the block began; one that waits for its topic is, once it has it."""
    world, link = joined()
    first, second = link.ask(1, FREE), link.ask(2, FREE)
    link.down(frames.PRODUCER_SUCCESS, request_id=second, producer_ready=False)
    world.block(FREE, ms=2_000)
    assert link.closings() == []
    link.down(frames.PRODUCER_SUCCESS, request_id=first)
    world.run(1_000)
    assert len(link.closings()) == 1
    answer(link)
    link.down(frames.PRODUCER_SUCCESS, request_id=second, producer_ready=True)
    world.run(1_000)
    answer(link)
    assert [producer_id for producer_id, _ in told(link)] == [1, 2]


def test_a_client_is_not_told_before_it_has_the_producer() -> None:
    """The answer to a PRODUCER that made its topic waits behind this part until Kafka has the event."""
    world, link = joined()
    keeps = Seeing(set(), {frames.PRODUCER_SUCCESS, frames.CLOSE_PRODUCER})
    kept: list[bytes] = []
    keeps.answer = kept.append
    link.parts.append(keeps)
    link.make(1, FREE)
    world.block(FREE, ms=1_000)
    answer(link)
    assert link.got == [] and [frame[9] for frame in kept] == [frames.PRODUCER_SUCCESS, frames.CLOSE_PRODUCER]


def test_a_broker_that_does_not_answer_keeps_no_client_waiting() -> None:
    """It is told after a while, and its next producer waits until the broker has done with this one."""
    world, link = joined(FREE)
    world.block(FREE, ms=1_000 + TOLD_MS)
    assert told(link) == [(1, CONNECTION)]
    world.lift(FREE)
    link.ask(1, FREE)
    assert (link.got[-1][1].error, link.got[-1][1].message) == (6, "the producer is not closed yet")
    link.down(frames.ERROR, request_id=link.closings()[0], error=0, message="Producer was not registered")
    assert link.got[-1][1].error == 6
    link.make(1, FREE)
    assert link.got[-1][0] == frames.PRODUCER_SUCCESS
    assert len(told(link)) == 1


def test_one_that_is_never_answered_is_forgotten() -> None:
    """By either side."""
    world, link = joined(FREE, FREE)
    kinds = link.part.up, link.part.down
    world.block(FREE, ms=1_000)
    link.down(frames.SUCCESS, request_id=link.closings()[0])
    assert frames.SEND in link.part.up and link.part.held_bytes > 0
    world.run(FORGET_MS)
    assert kinds == (link.part.up, link.part.down)
    assert len(told(link)) == 2
    assert link.part.held_bytes == 0
    # It is nobody's any more, and clients pass over it.
    link.down(frames.SUCCESS, request_id=link.closings()[1])
    assert link.got[-1][0] == frames.SUCCESS


def test_a_client_that_closes_it_is_answered() -> None:
    """When the broker has done, once; also when it is told already, and twice as a broker would."""
    world, link = joined(FREE, FREE)
    world.block(FREE, ms=1_000)
    wanted = link.close(1)
    assert link.got[-1][0] == frames.PRODUCER_SUCCESS
    again = link.close(1)
    assert (link.got[-1][0], link.got[-1][1].request_id) == (frames.ERROR, again)
    link.down(frames.SUCCESS, request_id=link.closings()[0])
    assert (link.got[-1][0], link.got[-1][1].request_id) == (frames.SUCCESS, wanted)
    link.down(frames.SUCCESS, request_id=link.closings()[1])
    assert told(link) == [(2, CONNECTION)]
    wanted = link.close(2)
    assert (link.got[-1][0], link.got[-1][1].request_id) == (frames.SUCCESS, wanted)
    assert len(link.closings()) == 2
    assert frames.SEND not in link.part.up


def test_one_that_its_client_is_closing_is_closed_by_that() -> None:
    """The close that waited behind SENDs goes on at once, and they fail with it."""
    world, link = joined(LIMITED, policies=TEN)
    link.send(1, *range(20))
    wanted = link.close(1)
    assert link.closings() == []
    world.block(LIMITED, ms=2_000)
    assert link.closings() == [wanted]
    link.down(frames.SUCCESS, request_id=wanted)
    assert (link.got[-1][0], link.got[-1][1].request_id) == (frames.SUCCESS, wanted)
    assert told(link) == []


def test_a_broker_that_closes_it_too_is_heard_once() -> None:
    """Its own quota, or a topic that moves."""
    world, link = joined(FREE)
    world.block(FREE, ms=1_000)
    link.down(frames.CLOSE_PRODUCER, producer_id=1, request_id=CONNECTION)
    link.send(1, 5)
    answer(link)
    assert told(link) == [(1, CONNECTION)]
    assert link.arrived(1) == []


def test_producers_are_closed_on_all_connections_so_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others in the next looks."""
    monkeypatch.setattr("enforcer.pulsar.publish.context.CLOSES_MAX", 3)
    world = World()
    links = [world.join() for _ in range(4)]
    for link in links:
        link.make(1, FREE)
        link.make(2, FREE)
    world.block(FREE)
    for done in (3, 6, 8, 8):
        world.run(1_000)
        assert sum(len(link.closings()) for link in links) == done


def test_a_connection_that_ends_leaves_nothing() -> None:
    """In the middle of it."""
    world, link = joined(FREE)
    world.block(FREE, ms=1_000)
    link.part.close()
    world.links.clear()
    world.lift(FREE)
    assert world.blocks.active is False


def test_nothing_is_looked_at_while_nothing_is_blocked() -> None:
    """SENDs pass as bytes, also beside a block of other topics."""
    world, link = joined(FREE)
    world.block(LIMITED, ms=2_000)
    assert link.looked_again == 0
    assert link.closings() == []
