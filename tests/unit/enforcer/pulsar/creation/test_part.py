"""What a connection shows of requests for new topics, keeps of them, and leaves behind."""

import asyncio

import pytest
from creation_kit import Client, Yard, asking
from mutation_kit import decision, settle_down
from publish_kit import World

from enforcer.pulsar.publish.part import PublishingPart
from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import ServerError, command, parse


async def test_without_a_quota_all_passes_unseen(yard: Yard) -> None:
    """And a quota that comes or goes is seen at the next look."""
    client = Client(yard, user="b")
    assert not client.part.up and not client.part.down
    yard.desk.limit("quotas[user=b]", controller_mutation_rate=1)
    client.part.check(0)
    assert frames.PRODUCER in client.part.up and client.wire.looked_again == 1
    client.part.check(1_000)
    assert client.wire.looked_again == 1
    yard.desk.limit("quotas[user=b]")
    client.part.check(2_000)
    assert not client.part.up


async def test_a_request_id_twice_at_a_time_ends_the_connection(client: Client) -> None:
    """Answers could not be told apart."""
    await client.produce(request_id=7)
    await client.subscribe("u", request_id=7)
    assert client.wire.ended == ["request_id"]


async def test_a_broker_that_does_not_say_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is to try again; what the broker says later is for nobody."""
    monkeypatch.setattr("enforcer.pulsar.creation.creation.CREATE_QUESTION_MS", 20)
    _yard, client = asking()
    await client.produce()
    await client.look_up()
    await asyncio.sleep(0.03)
    await settle_down()
    assert [parse(frame).error for frame in client.wire.down] == [6, 6]
    assert frames.PARTITIONED_METADATA_RESPONSE in client.part.down
    await client.answer(0)
    await client.answer(0)
    assert len(client.wire.down) == 2 and not client.part.down


async def test_a_name_that_is_too_long_is_refused(yard: Yard, client: Client) -> None:
    """Ten thousand of them would be known, of a megabyte each."""
    for name in ("x" * 5_000, f"persistent://t/{'n' * 5_000}/x"):
        await client.look_up(name)
        assert client.told().error == ServerError.INVALID_TOPIC_NAME
    assert not client.wire.up and not client.part._tasks and not yard.charged()
    await client.answered(client.look_up("x" * 4_000), 3)
    assert client.told().partitions == 3


async def test_what_creates_nothing_passes(yard: Yard, client: Client) -> None:
    """Subscriptions that force nothing, questions that create nothing, topics that are not stored."""
    assert await client.subscribe(force_topic_creation=False)
    assert await client.look_up(metadata_auto_creation_enabled=False)
    assert await client.produce("non-persistent://public/default/n")
    assert await client.subscribe("non-persistent://public/default/n")
    assert not yard.charged() and not client.wire.up


@pytest.mark.parametrize("kind", [frames.CLOSE_PRODUCER, frames.CLOSE_CONSUMER])
async def test_a_client_that_stops_waiting(yard: Yard, kind: int) -> None:
    """What it closes does not go on, and is not charged; others of its requests do."""
    await yard.drain()
    client = Client(yard)
    # As in the proxy.
    client.wire.parts.insert(0, PublishingPart(client.wire, World().desk))
    await client.answered(client.produce("p"), None)
    await client.answered(client.subscribe("c"), None)
    field = "producer_id" if kind == frames.CLOSE_PRODUCER else "consumer_id"
    assert await client.give(command(kind, request_id=9, **{field: 2}))
    assert len(client.part._tasks) == 2
    assert await client.give(command(kind, request_id=9, **{field: 1}))
    assert len(client.part._tasks) == 1
    await yard.bureau.pass_ms(9_000)
    assert [client.asked().topic] == (["c"] if kind == frames.CLOSE_PRODUCER else ["p"])
    assert len(yard.charged()) == 1 and not client.wire.up


async def test_a_client_that_closes_before_it_hears_the_answer() -> None:
    """What was withheld is for nobody; what it made is paid; its next producer of that number has its own."""
    yard, client = asking(acknowledges=False)
    publishing = PublishingPart(client.wire, World().desk)
    client.wire.parts.insert(0, publishing)
    await client.answered(client.produce("p", request_id=1), None)
    await client.made(1)
    assert not client.wire.down
    # In one read: nothing of ours runs between them.
    close, again = (
        command(frames.CLOSE_PRODUCER, request_id=2, producer_id=1),
        command(frames.PRODUCER, request_id=3, producer_id=1, topic="p"),
    )
    assert [client.wire.shown(frame, up=True) for frame in (close, again)] == [close, again]
    assert await client.reply(frames.SUCCESS, request_id=2)
    assert await client.reply(frames.PRODUCER_SUCCESS, request_id=3)
    yard.desk.acknowledge()
    await settle_down()
    assert not client.wire.down and not client.part._tasks and not client.part._withheld
    assert yard.charged() == [{"p": 1}] and yard.refunded() == 0
    assert list(publishing._by_id) == [1] and publishing._by_id[1].ready and not publishing._asked


async def test_a_client_that_goes_away() -> None:
    """What it waits for is given back; what is at the broker may well be created, and stays."""
    yard, client = asking(local=False)
    await client.answered(client.produce("t"), None)
    assert yard.charged() == [{"t": 1}] and not client.wire.up
    client.part.close()
    await settle_down()
    assert client.part.held_bytes == 0 and len(yard.known._turns) == 0
    (event,) = yard.desk.of_type("request")
    yard.desk.coordinator.take([decision(id=event["id"], ts=yard.desk.wall_ms)])
    assert yard.refunded() == 1
    yard, client = asking()
    await client.answered(client.produce("t"), None)
    client.part.close()
    await settle_down()
    assert yard.charged() == [{"t": 1}] and yard.refunded() == 0


async def test_a_broker_that_cannot_be_asked(yard: Yard, client: Client) -> None:
    """A question would create the topic; it is counted."""
    client.wire.asks_only = False
    assert await client.produce() and await client.look_up()
    assert yard.found() == {"unasked": 2}


async def test_more_requests_than_may_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is not read until there are fewer."""
    monkeypatch.setattr("enforcer.pulsar.creation.part.CREATIONS_MAX", 3)
    _yard, client = asking()
    for name in "abc":
        await client.look_up(name)
    assert not client.wire.read
    await client.answered(client.look_up("d"), 0)
    assert not client.wire.read
    await client.answer(0)
    assert client.wire.read


async def test_thousands_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables have bounds, and nothing is left of what is over."""
    monkeypatch.setattr("enforcer.pulsar.creation.known_topics.KNOWN_TOPICS_MAX", 100)
    yard, client = asking()
    for number in range(1_000):
        await client.answered(client.look_up(f"t{number}"), number % 2)
    assert len(yard.known._topics) == len(yard.known.partitions) == 100
    assert not client.part._tasks and not client.part._open and not client.part._questions._asked
    assert yard.metrics.held._value.get() == 0


async def test_a_mistake_of_ours_ends_the_connection(yard: Yard, client: Client) -> None:
    """And it alone."""
    await client.produce()
    yard.office.mutations.decide = None  # type: ignore[assignment, method-assign]
    await client.answer(None)
    assert client.wire.ended == ["internal"] and client.part.held_bytes == 0
