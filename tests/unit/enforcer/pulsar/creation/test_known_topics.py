"""Topics that were there a short while ago, and the turns of those who create one."""

import asyncio

import pytest

from enforcer.pulsar.creation.known_topics import KnownTopics
from enforcer.wire.pulsar.names import read_topic


class Shelf:
    """What is known, and its clock."""

    def __init__(self, topics_max: int = 3) -> None:
        self.now_ms = 0.0
        self.known = KnownTopics(100, topics_max, lambda: self.now_ms)

    def has(self, name: str) -> bool:
        """Whether a topic is known to be there."""
        topic = read_topic(name)
        return self.known.has(topic.name, topic)


def test_what_is_there_is_known_for_a_while() -> None:
    """And no longer."""
    shelf = Shelf()
    shelf.known.note("persistent://public/default/t", 0)
    assert shelf.has("t") and not shelf.has("u")
    shelf.now_ms = 99
    assert shelf.has("t")
    shelf.now_ms = 100
    assert not shelf.has("t")


def test_partitions_are_there_with_their_topic() -> None:
    """Its own name is not, nor is what lies beyond."""
    shelf = Shelf()
    shelf.known.note("persistent://public/default/t", 2)
    assert shelf.has("t-partition-0") and shelf.has("t-partition-1")
    assert not shelf.has("t-partition-2") and not shelf.has("t") and not shelf.has("t-partition-01")
    assert "persistent://public/default/t" in shelf.known.partitions
    assert "persistent://public/default/u" not in shelf.known.partitions


def test_the_tables_have_bounds() -> None:
    """What is oldest goes."""
    shelf = Shelf()
    for number in range(5):
        shelf.known.note(f"persistent://a/b/t{number}", 0)
        shelf.known.defaults[f"a/{number}"] = number
    assert [shelf.has(f"a/b/t{number}") for number in range(5)] == [False, False, True, True, True]
    assert [shelf.known.defaults.get(f"a/{number}") for number in range(5)] == [None, None, 2, 3, 4]


async def test_one_at_a_time_has_the_turn() -> None:
    """In order; whoever waits too long, or goes away, is out of it; nothing is left over."""
    known = Shelf().known
    order: list[str] = []

    async def work(name: str, limit_s: float = 5) -> None:
        async with known.turn("t", limit_s) as others:
            order.append(f"{name} {others}")
            await asyncio.sleep(0.02)

    first = asyncio.create_task(work("first"))
    await asyncio.sleep(0)
    late = asyncio.create_task(work("late", 0.005))
    gone = asyncio.create_task(work("gone"))
    second = asyncio.create_task(work("second"))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(TimeoutError):
        await late
    assert len(known._turns) == 1
    await asyncio.gather(first, second)
    assert order == ["first False", "second True"] and len(known._turns) == 0
    await work("third")
    assert order[-1] == "third False"
