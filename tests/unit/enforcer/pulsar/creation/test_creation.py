"""Producers and consumers of new topics: asked for, charged, kept, refused, settled; and the ways round."""

import asyncio

import pytest
from creation_kit import HERE, NOT_FOUND, SURE_S, Client, Yard, asking
from mutation_kit import settle_down

from enforcer.pulsar.creation import creation
from enforcer.pulsar.creation.known_topics import KNOWN_MS
from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import command, parse
from enforcer.wire.pulsar.frames import PRODUCER, SUBSCRIBE


async def test_a_topic_that_is_there_costs_nothing(yard: Yard, client: Client) -> None:
    """The broker is asked so that nothing is created; then the request goes on as it came."""
    assert not await client.produce()
    question = await client.answer(0)
    assert question.topic == HERE + "t" and question.request_id >= 1 << 63
    assert question.HasField("metadata_auto_creation_enabled")
    assert not question.metadata_auto_creation_enabled
    assert client.asked().producer_id == 1 and not client.wire.down
    # For a while it is known, by whatever way it is written, to all connections.
    assert await client.produce(HERE + "t")
    assert await Client(yard).subscribe("public/default/t")
    yard.desk.pass_ms(KNOWN_MS)
    assert not await client.produce()
    assert not yard.charged() and yard.found() == {"exists": 1, "known": 2}


@pytest.mark.parametrize("kind", ["producer", "consumer"])
async def test_a_new_topic_is_charged_and_goes_on(yard: Yard, client: Client, kind: str) -> None:
    """The answer goes to the client, and the topic is known."""
    assert not await (client.produce() if kind == "producer" else client.subscribe())
    await client.answer(None)
    assert yard.charged() == [{"t": 1}]
    (event,) = yard.desk.of_type("request")
    api = {"producer": "PRODUCER", "consumer": "SUBSCRIBE"}[kind]
    assert (event["user"], event["client_id"], event["api"]) == ("a", "", api)
    assert not await client.made(1) and client.told().request_id == 1
    assert await client.produce()
    assert not yard.desk.of_type("refund") and yard.found() == {"missing": 1, "known": 1}
    assert client.part.held_bytes == 0 and not client.part.down


async def test_the_answer_waits_until_kafka_has_the_event() -> None:
    """For EVENT_ACK_MS."""
    yard, client = asking(acknowledges=False)
    await client.answered(client.produce(), None)
    await client.made(1)
    assert not client.wire.down
    yard.desk.acknowledge()
    await settle_down()
    assert client.told().request_id == 1


OF_CONSUMER = (
    command(frames.ACTIVE_CONSUMER_CHANGE, consumer_id=1, is_active=True),
    command(frames.REACHED_END_OF_TOPIC, consumer_id=1),
    command(frames.TOPIC_MIGRATED, resource_id=1, resource_type=1),
    command(frames.CLOSE_CONSUMER, consumer_id=1, request_id=2**64 - 1),
)
OF_PRODUCER = (
    command(frames.PRODUCER_SUCCESS, request_id=1, producer_ready=True),
    command(frames.TOPIC_MIGRATED, resource_id=1, resource_type=0),
    command(frames.CLOSE_PRODUCER, producer_id=1, request_id=2**64 - 1),
)


@pytest.mark.parametrize(("kind", "mine"), [(PRODUCER, OF_PRODUCER), (SUBSCRIBE, OF_CONSUMER)])
async def test_what_follows_a_withheld_answer_stays_behind_it(kind: int, mine: tuple[bytes, ...]) -> None:
    """A client that hears of an end before the beginning uses what is no more. What is of others passes."""
    yard, client = asking(acknowledges=False)
    await (client.produce() if kind == PRODUCER else client.subscribe())
    await client.answer(None)
    await client.made(1)
    for frame in mine:
        assert not await client.tell(frame)
    others = OF_CONSUMER if kind == PRODUCER else OF_PRODUCER[1:]
    assert all([await client.tell(frame) for frame in others])
    assert not client.wire.down
    yard.desk.acknowledge()
    await settle_down()
    assert tuple(client.wire.down[1:]) == mine and parse(client.wire.down[0]).request_id == 1
    # From then on all pass.
    assert all([await client.tell(frame) for frame in mine])


async def test_so_much_follows_a_withheld_answer_that_it_is_given() -> None:
    """In order all the same; nothing but that is kept of what a broker says unasked."""
    yard, client = asking(acknowledges=False)
    await client.answered(client.subscribe(), None)
    await client.made(1)
    sent = 0
    while not client.wire.down:
        assert not await client.tell(OF_CONSUMER[0])
        sent += 1
    assert len(client.wire.down) == 1 + sent < 1_000
    assert await client.tell(OF_CONSUMER[0])
    yard.desk.acknowledge()
    await settle_down()
    assert len(client.wire.down) == 1 + sent


async def test_beyond_the_quota_a_short_wait_is_kept(yard: Yard) -> None:
    """Other requests of the connection go on meanwhile."""
    await yard.drain()
    client = Client(yard)
    await client.answered(client.produce(), None)
    assert not client.wire.up and not client.wire.down and client.part.held_bytes
    assert not await client.subscribe("u")
    await client.answer(0)
    assert client.asked().topic == "u"
    await yard.bureau.pass_ms(9_000)
    assert yard.charged() == [{"t": 1}] and client.wire.up[-1][9] == PRODUCER
    await client.made(1)
    assert client.told().request_id == 1


async def test_beyond_the_quota_a_long_wait_is_refused() -> None:
    """With the code that all clients show at once, the quota, and when to retry."""
    yard = Yard({"create_wait_ms": 5_000})
    await yard.drain()
    client = Client(yard)
    for send in (client.produce, client.subscribe, client.look_up):
        await send()
        await client.answer(None)
        told = client.told()
        assert (told.error, told.HasField("request_id")) == (22, True)
        for part in (HERE + "t", "user=a", "1 per second", "burst 11", "retry after"):
            assert part in told.message
        assert not client.wire.up
    assert told.response == 1
    refused = [event for event in yard.desk.of_type("request") if event["decided"]["outcome"] == "reject"]
    assert [event["api"] for event in refused] == ["PRODUCER", "SUBSCRIBE", "PARTITIONED_METADATA"]


@pytest.mark.parametrize(("before", "after", "given_back"), [(None, None, 1), (None, 0, 0), (3, 3, 0)])
async def test_what_the_broker_refuses_costs_nothing(
    yard: Yard, client: Client, before: int | None, after: int | None, given_back: int
) -> None:
    """Whether it has is asked a little later, since clients could forge its answer.

    By another request under the same id, which fails while the topic is created all the same; nor is it known
    whether a partitioned topic's own name is there, so it stays paid.
    """
    await client.answered(client.produce(), before)
    client.wire.up.clear()
    assert await client.refused(1, error=1 if after == 0 else NOT_FOUND)
    assert after != 0 or await client.reply(17, request_id=1)
    assert yard.refunded() == 0
    await asyncio.sleep(SURE_S)
    await client.answer(after)
    assert yard.refunded() == given_back and client.part.held_bytes == 0
    assert yard.known.has(HERE + "t", None) is (after == 0)


async def test_one_that_is_refused_and_tried_again_at_once_is_paid_once(
    yard: Yard, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one topic, and the second request has paid for it before the first is settled."""
    monkeypatch.setattr(creation, "_SURE_AFTER_S", 0.2)
    await client.answered(client.produce(), None)
    await client.refused(1, error=6)
    await client.answered(client.produce(), None)
    assert not await client.made(2)
    await asyncio.sleep(0.25)
    await settle_down()
    assert yard.charged() == [{"t": 1}, {"t": 1}] and yard.refunded() == 1


async def behind(yard: Yard) -> tuple[Client, Client]:
    """Two clients of one user that ask for the same new topic, the second behind the first."""
    one, two = Client(yard), Client(yard)
    await one.produce()
    await two.produce()
    return one, two


async def test_two_connections_create_one_topic_and_pay_once(yard: Yard) -> None:
    """The second waits for the first."""
    one, two = await behind(yard)
    assert not two.wire.up
    await one.answer(None)
    await one.made(1)
    assert two.asked().topic == "t"
    assert yard.charged() == [{"t": 1}] and len(yard.known._turns) == 0


async def test_if_the_first_is_refused_the_second_asks_itself() -> None:
    """It has waited as long."""
    yard = Yard({"create_wait_ms": 5_000})
    await yard.drain()
    one, two = await behind(yard)
    await one.answer(None)
    assert one.told().error == 22
    await two.answer(None)
    assert two.told().error == 22


async def test_whoever_waits_too_long_for_another_is_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first hangs at the broker."""
    monkeypatch.setattr("enforcer.pulsar.creation.creation.CREATE_QUESTION_MS", 50)
    yard = Yard({"create_wait_ms": 0})
    one, two = Client(yard), Client(yard)
    await one.answered(one.produce(), None)
    await two.produce()
    await asyncio.sleep(creation._PATIENCE_S + 0.2)
    await settle_down()
    assert two.told().error == 6 and len(yard.known._turns) == 1


@pytest.mark.parametrize(("error", "told"), [(6, 6), (14, 6), (1, 6), (4, None), (17, None)])
async def test_when_the_broker_cannot_say(yard: Yard, client: Client, error: int, told: int | None) -> None:
    """What is soon over is tried again; else the topic may be new, and the request decides."""
    await client.produce()
    await client.answer(None, error)
    if told is not None:
        assert client.told().error == told and not yard.charged()
        return
    assert yard.charged() == [{"t": 1}]
    client.wire.up.clear()
    await client.refused(1, error)
    await asyncio.sleep(SURE_S)
    await client.answer(None, error)
    assert yard.refunded() == 1


async def test_an_answer_that_never_comes(
    yard: Yard, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has given up; what it asked for stays charged, and a late answer passes."""
    monkeypatch.setattr(creation, "_ANSWER_LIMIT_S", 0.02)
    await client.answered(client.send(SUBSCRIBE, topic="t", consumer_id=1), None)
    await asyncio.sleep(0.03)
    await settle_down()
    assert client.part.held_bytes == 0 and not client.wire.down
    assert await client.reply(13, request_id=1)
    assert yard.refunded() == 0


async def test_who_has_the_turn_keeps_nobody_from_what_is_there(yard: Yard) -> None:
    """It reads no answers; others ask for themselves before long."""
    _one, two = await behind(yard)
    assert not two.wire.up
    await asyncio.sleep(creation._PATIENCE_S + 0.05)
    await two.answer(0)
    assert two.asked().topic == "t" and not two.wire.down
    assert not yard.charged() and yard.found() == {"exists": 1}


async def test_who_waited_and_finds_nothing_waits_for_its_turn(yard: Yard) -> None:
    """The topic is not there yet: the first still pays alone."""
    one, two = await behind(yard)
    await asyncio.sleep(creation._PATIENCE_S + 0.05)
    await two.answer(None)
    assert not two.wire.up and not two.wire.down
    await one.answer(None)
    await one.made(1)
    assert two.asked().topic == "t" and yard.charged() == [{"t": 1}]


async def test_who_reads_nothing_gets_no_turn(yard: Yard, client: Client) -> None:
    """It could hear no answer: others do not wait for that."""
    client.wire.stalled = True
    await client.produce()
    assert client.told().error == 6 and len(yard.known._turns) == 0 and not client.wire.up
