"""Topics that clients would create: asked for, charged, kept, refused, settled; and the ways round."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps

import pytest
from coordinator_kit import decision
from creating_kit import HERE, NOT_FOUND, Client, Yard
from mutations_kit import settle_down

from enforcer.pulsar.creating import creation
from enforcer.pulsar.protocol.commands import command, parse
from enforcer.pulsar.protocol.frames import (
    CLOSE_CONSUMER,
    CLOSE_PRODUCER,
    PARTITIONED_METADATA_RESPONSE,
    PRODUCER,
    SUBSCRIBE,
)

Scene = Callable[[], Coroutine[None, None, None]]


def in_a_loop(test: Scene) -> Callable[[], None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


@in_a_loop
async def test_without_a_quota_all_passes_unseen() -> None:
    """And a quota that comes or goes is seen at the next look."""
    yard = Yard()
    client = Client(yard, user="b")
    assert not client.part.up and not client.part.down
    yard.desk.limit("quotas[user=b]", controller_mutation_rate=1)
    client.part.check(0)
    assert PRODUCER in client.part.up and client.wire.looks == 1
    client.part.check(1_000)
    assert client.wire.looks == 1
    yard.desk.limit("quotas[user=b]")
    client.part.check(2_000)
    assert not client.part.up


@in_a_loop
async def test_a_topic_that_is_there_costs_nothing() -> None:
    """The broker is asked so that nothing is created; then the request goes on as it came."""
    yard = Yard()
    client = Client(yard)
    assert not await client.produce()
    question = await client.answer(0)
    assert question.topic == HERE + "t" and question.request_id >= 1 << 63
    assert question.HasField("metadata_auto_creation_enabled")
    assert not question.metadata_auto_creation_enabled
    assert client.asked().producer_id == 1 and not client.wire.down
    # For a while it is known, by whatever way it is written, to all connections.
    assert await client.produce(HERE + "t")
    assert await Client(yard).subscribe("public/default/t")
    yard.desk.pass_ms(yard.settings.known_topic_ms)
    assert not await client.produce()
    assert not yard.charged() and yard.found() == {"exists": 1, "known": 2}


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_a_new_topic_is_charged_and_goes_on(kind: str) -> None:
    """The answer goes to the client, and the topic is known."""

    async def scene() -> None:
        yard = Yard()
        client = Client(yard)
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

    asyncio.run(scene())


@in_a_loop
async def test_the_answer_waits_until_kafka_has_the_event() -> None:
    """For event_ack_ms."""
    yard = Yard()
    yard.desk.acknowledges = False
    client = Client(yard)
    await client.produce()
    await client.answer(None)
    await client.made(1)
    assert not client.wire.down
    yard.desk.acknowledge()
    await settle_down()
    assert client.told().request_id == 1


@in_a_loop
async def test_beyond_the_quota_a_short_wait_is_kept() -> None:
    """Other requests of the connection go on meanwhile."""
    yard = Yard()
    await yard.drain()
    client = Client(yard)
    await client.produce()
    await client.answer(None)
    assert not client.wire.up and not client.wire.down and client.part.held_bytes
    assert not await client.subscribe("u")
    await client.answer(0)
    assert client.asked().topic == "u"
    await yard.bureau.pass_ms(9_000)
    assert yard.charged() == [{"t": 1}] and client.wire.up[-1][9] == PRODUCER
    await client.made(1)
    assert client.told().request_id == 1


@in_a_loop
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


@in_a_loop
async def test_what_the_broker_refuses_costs_nothing() -> None:
    """Whether it has is asked a little later, since clients could forge its answer."""
    yard = Yard()
    client = Client(yard)
    await client.produce()
    await client.answer(None)
    client.wire.up.clear()
    assert await client.refused(1)
    assert yard.refunded() == 0
    await asyncio.sleep(creation._SURE_AFTER_S + 0.01)
    await client.answer(None)
    assert yard.refunded() == 1 and client.part.held_bytes == 0


@in_a_loop
async def test_a_forged_refusal_gives_nothing_back() -> None:
    """Another request under the same id fails, while the topic is created all the same."""
    yard = Yard()
    client = Client(yard)
    await client.produce()
    await client.answer(None)
    client.wire.up.clear()
    assert await client.refused(1, error=1)
    assert await client.reply(17, request_id=1)
    await asyncio.sleep(creation._SURE_AFTER_S + 0.01)
    await client.answer(0)
    assert yard.refunded() == 0 and yard.known.has(HERE + "t", None)


@in_a_loop
async def test_a_request_id_twice_at_a_time_ends_the_connection() -> None:
    """Answers could not be told apart."""
    yard = Yard()
    client = Client(yard)
    await client.produce(request_id=7)
    await client.subscribe("u", request_id=7)
    assert client.wire.ended == ["request_id"]


@in_a_loop
async def test_two_connections_create_one_topic_and_pay_once() -> None:
    """The second waits for the first."""
    yard = Yard()
    one, two = Client(yard), Client(yard, user="a")
    await one.produce()
    await two.produce()
    assert not two.wire.up
    await one.answer(None)
    await one.made(1)
    assert two.asked().topic == "t"
    assert yard.charged() == [{"t": 1}] and yard.known.turns == 0


@in_a_loop
async def test_if_the_first_is_refused_the_second_asks_itself() -> None:
    """It has waited as long."""
    yard = Yard({"create_wait_ms": 5_000})
    await yard.drain()
    one, two = Client(yard), Client(yard)
    await one.produce()
    await two.produce()
    await one.answer(None)
    assert one.told().error == 22
    await two.answer(None)
    assert two.told().error == 22


@in_a_loop
async def test_whoever_waits_too_long_for_another_is_to_try_again() -> None:
    """The first hangs at the broker."""
    yard = Yard({"create_wait_ms": 0, "create_question_ms": 50})
    one, two = Client(yard), Client(yard)
    await one.produce()
    await one.answer(None)
    await two.produce()
    await asyncio.sleep(0.06)
    await settle_down()
    assert two.told().error == 6 and yard.known.turns == 1


@in_a_loop
async def test_a_broker_that_does_not_say_in_time() -> None:
    """The client is to try again; what the broker says later is for nobody."""
    yard = Yard({"create_question_ms": 20})
    client = Client(yard)
    await client.produce()
    await client.look_up()
    await asyncio.sleep(0.03)
    await settle_down()
    assert [parse(frame).error for frame in client.wire.down] == [6, 6]
    assert PARTITIONED_METADATA_RESPONSE in client.part.down
    await client.answer(0)
    await client.answer(0)
    assert len(client.wire.down) == 2 and not client.part.down


@pytest.mark.parametrize(("error", "told"), [(6, 6), (14, 6), (1, 6), (4, None), (17, None)])
def test_when_the_broker_cannot_say(error: int, told: int | None) -> None:
    """What is soon over is tried again; else the topic may be new, and the request decides."""

    async def scene() -> None:
        yard = Yard()
        client = Client(yard)
        await client.produce()
        await client.answer(None, error)
        if told is not None:
            assert client.told().error == told and not yard.charged()
            return
        assert yard.charged() == [{"t": 1}]
        client.wire.up.clear()
        await client.refused(1, error)
        await asyncio.sleep(creation._SURE_AFTER_S + 0.01)
        await client.answer(None, error)
        assert yard.refunded() == 1

    asyncio.run(scene())


@in_a_loop
async def test_what_creates_nothing_passes() -> None:
    """Subscriptions that force nothing, questions that create nothing, topics that are not stored."""
    yard = Yard()
    client = Client(yard)
    assert await client.subscribe(force_topic_creation=False)
    assert await client.look_up(metadata_auto_creation_enabled=False)
    assert await client.produce("non-persistent://public/default/n")
    assert await client.subscribe("non-persistent://public/default/n")
    assert not yard.charged() and not client.wire.up


@in_a_loop
async def test_partitions_are_paid_with_their_topic() -> None:
    """One beyond them, or of no topic, is one of its own."""
    yard = Yard()
    client = Client(yard)
    await client.produce("t-partition-2")
    assert (await client.answer(3)).topic == HERE + "t"
    assert client.asked().topic == "t-partition-2"
    assert await client.produce("t-partition-0")
    # Clients never use the partitioned topic's own name, which would be one more.
    await client.produce("t")
    assert (await client.answer(3)).topic == HERE + "t"
    assert yard.charged() == [{"t": 1}]
    client.wire.up.clear()
    await client.produce("t-partition-3")
    await client.answer(3)
    assert (await client.answer(None)).topic == HERE + "t-partition-3"
    assert yard.charged()[1:] == [{"t-partition-3": 1}]
    client.wire.up.clear()
    await client.produce("u-partition-0")
    await client.answer(None)
    await client.answer(0)
    assert client.asked().topic == "u-partition-0" and len(yard.charged()) == 2


@in_a_loop
async def test_a_forged_refusal_of_a_partitioned_topics_own_name() -> None:
    """It is not known whether that is there, so it stays paid."""
    yard = Yard()
    client = Client(yard)
    await client.produce()
    await client.answer(3)
    client.wire.up.clear()
    await client.refused(1)
    await asyncio.sleep(creation._SURE_AFTER_S + 0.01)
    await client.answer(3)
    assert yard.refunded() == 0


@in_a_loop
async def test_names_that_only_the_broker_knows() -> None:
    """They are asked for as they are."""
    yard = Yard()
    client = Client(yard)
    for name in ("Persistent://public/default/t", "a//b", "", "public/default/t%2F", "persistent://p/c/n/t"):
        await client.produce(name)
        assert parse(client.wire.up[-1]).topic.removeprefix("persistent://") in name
        await client.answer(0)
        assert client.asked().topic == name


@in_a_loop
async def test_a_question_for_partitions_is_asked_so_that_it_creates_nothing() -> None:
    """Its answer is given under the client's id."""
    yard = Yard()
    client = Client(yard)
    await client.look_up()
    question = await client.answer(4)
    assert question.request_id != 1 and not question.metadata_auto_creation_enabled
    told = client.told()
    assert (told.request_id, told.partitions, told.response) == (1, 4, 0)
    assert await client.produce("t-partition-3") and not yard.charged()
    await client.look_up("u")
    await client.answer(None, 4)
    assert client.told().error == 4


@in_a_loop
async def test_how_many_partitions_come_of_a_question_is_learnt() -> None:
    """One is charged, then what came besides; the next time all at once, and nothing if nothing came."""
    yard = Yard()
    client = Client(yard)
    await client.look_up("a")
    await client.answer(None)
    question = await client.answer(3)
    assert question.metadata_auto_creation_enabled and question.topic == "a"
    assert client.told().partitions == 3
    assert yard.charged() == [{"a": 1}, {"a": 2}]
    await client.look_up("b")
    await client.answer(None)
    await client.answer(3)
    assert yard.charged()[2:] == [{"b": 3}]
    await client.look_up("c")
    await client.answer(None)
    await client.answer(0)
    assert yard.charged()[3:] == [{"c": 3}] and yard.refunded() == 3
    await client.look_up("d")
    await client.answer(None)
    await client.answer(0)
    assert len(yard.charged()) == 4
    # The namespace's policy has changed: what came is charged all the same.
    await client.look_up("e")
    await client.answer(None)
    await client.answer(5)
    assert yard.charged()[4:] == [{"e": 5}]


@in_a_loop
async def test_a_namespace_where_nothing_is_created_by_itself() -> None:
    """What was charged is given back, and the next question is free."""
    yard = Yard()
    client = Client(yard)
    for name in ("a", "b"):
        await client.look_up(name)
        await client.answer(None)
        await client.answer(None)
        assert client.told().error == NOT_FOUND
    assert yard.charged() == [{"a": 1}] and yard.refunded() == 1
    await client.look_up("persistent://x/y/c")
    await client.answer(None)
    await client.answer(None, error=4)
    await client.look_up("persistent://x/y/d")
    await client.answer(None)
    assert len(yard.charged()) == 3


@in_a_loop
async def test_two_questions_create_one_topic_and_pay_once() -> None:
    """Also where the second was asked before the first had created it."""
    yard = Yard()
    one, two, three = Client(yard), Client(yard), Client(yard)
    for client in (one, two, three):
        await client.look_up()
    await one.answer(None)
    await two.answer(None)
    assert not two.wire.up
    await one.answer(3)
    await two.answer(3)
    await three.answer(None)
    await three.answer(3)
    assert [client.told().partitions for client in (one, two, three)] == [3, 3, 3]
    assert yard.charged() == [{"t": 1}, {"t": 2}] and yard.known.turns == 0


@pytest.mark.parametrize("kind", [CLOSE_PRODUCER, CLOSE_CONSUMER])
def test_a_client_that_stops_waiting(kind: int) -> None:
    """What it closes does not go on, and is not charged; others of its requests do."""

    async def scene() -> None:
        yard = Yard()
        await yard.drain()
        client = Client(yard)
        await client.produce("p")
        await client.answer(None)
        await client.subscribe("c")
        await client.answer(None)
        field = "producer_id" if kind == CLOSE_PRODUCER else "consumer_id"
        assert await client.give(command(kind, request_id=9, **{field: 2}))
        assert len(client.part._tasks) == 2
        assert await client.give(command(kind, request_id=9, **{field: 1}))
        assert len(client.part._tasks) == 1
        await yard.bureau.pass_ms(9_000)
        assert [client.asked().topic] == (["c"] if kind == CLOSE_PRODUCER else ["p"])
        assert len(yard.charged()) == 1 and not client.wire.up

    asyncio.run(scene())


@in_a_loop
async def test_a_client_that_goes_away() -> None:
    """What it waits for is given back; what is at the broker may well be created, and stays."""
    yard = Yard(local=False)
    client = Client(yard)
    await client.produce("t")
    await client.answer(None)
    assert yard.charged() == [{"t": 1}] and not client.wire.up
    client.part.close()
    await settle_down()
    assert client.part.held_bytes == 0 and yard.known.turns == 0
    (event,) = yard.desk.of_type("request")
    yard.desk.coordinator.take([decision(id=event["id"], ts=yard.desk.wall_ms)])
    assert yard.refunded() == 1
    yard = Yard()
    client = Client(yard)
    await client.produce("t")
    await client.answer(None)
    client.part.close()
    await settle_down()
    assert yard.charged() == [{"t": 1}] and yard.refunded() == 0


@in_a_loop
async def test_a_late_decision() -> None:
    """As the setting says: it goes on, or is refused."""
    for way, goes_on in (("allow", True), ("reject", False)):
        yard = Yard(local=False, on_late_decision=way, decision_timeout_ms=100)
        client = Client(yard)
        await client.produce()
        await client.answer(None)
        await yard.bureau.pass_ms(100)
        if goes_on:
            assert client.asked().topic == "t"
        else:
            assert client.told().error == 22


@in_a_loop
async def test_a_shadow_quota_is_charged_and_nothing_is_refused() -> None:
    """However much it is."""
    yard = Yard()
    yard.desk.limit(controller_mutation_rate=1, shadow=True)
    client = Client(yard)
    for number in range(20):
        await client.produce(f"t{number}")
        await client.answer(None)
        await client.made(number + 1)
    assert len(yard.charged()) == 20 and len(client.wire.down) == 20


@in_a_loop
async def test_a_broker_that_cannot_be_asked() -> None:
    """A question would create the topic; it is counted."""
    yard = Yard()
    client = Client(yard)
    client.wire.features = client.wire.features._replace(
        get_partitioned_metadata_without_auto_creation=False
    )
    assert await client.produce() and await client.look_up()
    assert yard.found() == {"unasked": 2}


@in_a_loop
async def test_more_requests_than_may_be_looked_at() -> None:
    """The client is not read until there are fewer."""
    yard = Yard({"creations_max": 3})
    client = Client(yard)
    for name in "abc":
        await client.look_up(name)
    assert client.wire.paused
    await client.look_up("d")
    await client.answer(0)
    assert client.wire.paused
    await client.answer(0)
    assert not client.wire.paused


@in_a_loop
async def test_thousands_of_names() -> None:
    """Tables have bounds, and nothing is left of what is over."""
    yard = Yard({"known_topics_max": 100})
    client = Client(yard)
    for number in range(1_000):
        await client.look_up(f"t{number}")
        await client.answer(number % 2)
    assert len(yard.known._topics) == len(yard.known._partitions) == 100
    assert not client.part._tasks and not client.part._open and not client.part._questions._asked
    assert yard.metrics.held._value.get() == 0


@in_a_loop
async def test_a_mistake_of_ours_ends_the_connection() -> None:
    """And it alone."""
    yard = Yard()
    client = Client(yard)
    await client.produce()
    yard.office.mutations.decide = None  # type: ignore[assignment, method-assign]
    await client.answer(None)
    assert client.wire.ended == ["internal"] and client.part.held_bytes == 0


@in_a_loop
async def test_an_answer_that_never_comes() -> None:
    """The client has given up; what it asked for stays charged, and a late answer passes."""
    limit, creation._ANSWER_LIMIT_S = creation._ANSWER_LIMIT_S, 0.02
    try:
        yard = Yard()
        client = Client(yard)
        await client.send(SUBSCRIBE, topic="t", consumer_id=1)
        await client.answer(None)
        await asyncio.sleep(0.03)
        await settle_down()
        assert client.part.held_bytes == 0 and not client.wire.down
        assert await client.reply(13, request_id=1)
        assert yard.refunded() == 0
    finally:
        creation._ANSWER_LIMIT_S = limit
