"""Questions for partitions, which may create them, and what partitions cost."""

import pytest
from creation_kit import HERE, NOT_FOUND, Client, Yard, asking
from mutation_kit import settle_down

from enforcer.wire.pulsar.commands import parse


async def test_partitions_are_paid_with_their_topic(yard: Yard, client: Client) -> None:
    """One beyond them, or of no topic, is one of its own."""
    await client.produce("t-partition-2")
    assert (await client.answer(3)).topic == HERE + "t"
    assert client.asked().topic == "t-partition-2"
    assert await client.produce("t-partition-0")
    # Clients never use the partitioned topic's own name, which would be one more.
    await client.produce("t")
    assert (await client.answer(3)).topic == HERE + "t"
    assert yard.charged() == [{"t": 1}]
    client.wire.up.clear()
    await client.answered(client.produce("t-partition-3"), 3)
    assert (await client.answer(None)).topic == HERE + "t-partition-3"
    assert yard.charged()[1:] == [{"t-partition-3": 1}]
    client.wire.up.clear()
    await client.answered(client.produce("u-partition-0"), None, 0)
    assert client.asked().topic == "u-partition-0" and len(yard.charged()) == 2


async def test_names_that_only_the_broker_knows(client: Client) -> None:
    """They are asked for as they are."""
    for name in ("Persistent://public/default/t", "a//b", "", "public/default/t%2F", "persistent://p/c/n/t"):
        await client.produce(name)
        assert parse(client.wire.up[-1]).topic.removeprefix("persistent://") in name
        await client.answer(0)
        assert client.asked().topic == name


async def test_a_question_for_partitions_is_asked_so_that_it_creates_nothing() -> None:
    """Its answer is given under the client's id."""
    yard, client = asking()
    question = await client.answered(client.look_up(), 4)
    assert question.request_id != 1 and not question.metadata_auto_creation_enabled
    told = client.told()
    assert (told.request_id, told.partitions, told.response) == (1, 4, 0)
    assert await client.produce("t-partition-3") and not yard.charged()
    await client.look_up("u")
    await client.answer(None, 4)
    assert client.told().error == 4


async def test_how_many_partitions_come_of_a_question_is_learnt(yard: Yard, client: Client) -> None:
    """One is charged, then what came besides; the next time all at once, and nothing if nothing came."""
    question = await client.answered(client.look_up("a"), None, 3)
    assert question.metadata_auto_creation_enabled and question.topic == "a"
    assert client.told().partitions == 3
    assert yard.charged() == [{"a": 1}, {"a": 2}]
    await client.answered(client.look_up("b"), None, 3)
    assert yard.charged()[2:] == [{"b": 3}]
    await client.answered(client.look_up("c"), None, 0)
    assert yard.charged()[3:] == [{"c": 3}] and yard.refunded() == 3
    await client.answered(client.look_up("d"), None, 0)
    assert len(yard.charged()) == 4
    # The namespace's policy has changed: what came is charged all the same.
    await client.answered(client.look_up("e"), None, 5)
    assert yard.charged()[4:] == [{"e": 5}]


@pytest.mark.parametrize("name", ["b-partition-0", "-partition-1", "b-partition-1234567890"])
async def test_the_name_of_a_partition_teaches_nothing(yard: Yard, client: Client, name: str) -> None:
    """Nothing comes of it; the next question would go on undecided, and be free for a client that leaves."""
    await client.answered(client.look_up("a"), None, 3)
    await client.answered(client.look_up(name), None, 0)
    await client.answered(client.look_up("c"), None)
    assert yard.charged()[2:] == [{name: 3}, {"c": 3}] and yard.refunded() == 3


@pytest.mark.parametrize("default", [None, 0, 1])
async def test_what_clients_that_leave_have_created_is_charged_later(yard: Yard, default: int | None) -> None:
    """Else one that always leaves would pay for one partition, whatever comes of its questions."""
    if default is not None:
        yard.known.defaults["public/default"] = default
    for name in ("a", "b"):
        gone = Client(yard)
        await gone.answered(gone.look_up(name), None)
        assert gone.asked().metadata_auto_creation_enabled
        gone.part.close()
        await settle_down()
        yard.known.defaults["public/default"] = 1
    before = yard.charged()
    yard.known.defaults.clear()
    client = Client(yard)
    question = await client.answered(client.look_up("c"), None, 3)
    assert question.topic == HERE + "b" and not question.metadata_auto_creation_enabled
    rest = 6 - sum(sum(items.values()) for items in before)
    assert yard.charged()[len(before) :] == [{"b": rest}, {"c": 3}]
    await client.answer(3)
    assert client.told().partitions == 3 and not yard.known.unheard


@pytest.mark.parametrize("plain", [True, False])
async def test_a_topic_that_was_made_plain_meanwhile_forgives_nothing(
    yard: Yard, client: Client, plain: bool
) -> None:
    """Whoever made one by another proxy in that moment had all partitions before it for nothing."""
    yard.known.defaults["public/default"] = 0
    gone = Client(yard)
    await gone.answered(gone.look_up("a"), None)
    gone.part.close()
    await settle_down()
    await client.answered(client.look_up("b"), None)
    assert (await client.answer(0)).metadata_auto_creation_enabled
    question = await client.answer(0 if plain else None)
    assert question.topic == "b" and not question.metadata_auto_creation_enabled
    assert client.told().partitions == 0 and not yard.charged()
    yard.known.defaults.clear()
    await client.answered(client.look_up("c"), None)
    assert (await client.answer(3)).topic == (HERE + "a" if plain else "c")
    assert yard.charged() == ([{"a": 3}, {"c": 3}] if plain else [{"c": 1}, {"c": 2}])


async def test_a_namespace_where_nothing_is_created_by_itself(yard: Yard, client: Client) -> None:
    """What was charged is given back, and the next question is free."""
    for name in ("a", "b"):
        await client.answered(client.look_up(name), None, None)
        assert client.told().error == NOT_FOUND
    assert yard.charged() == [{"a": 1}] and yard.refunded() == 1
    await client.answered(client.look_up("persistent://x/y/c"), None)
    await client.answer(None, error=4)
    await client.answered(client.look_up("persistent://x/y/d"), None)
    assert len(yard.charged()) == 3


async def test_two_questions_create_one_topic_and_pay_once(yard: Yard) -> None:
    """Also where the second was asked before the first had created it."""
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
    assert yard.charged() == [{"t": 1}, {"t": 2}] and len(yard.known._turns) == 0
