"""What a topology lacks: the coordinator's own numbers, in its own order."""

from typing import Any

import pytest
from each_kit import each
from hypothesis import given
from hypothesis import strategies as st

from enforcer.kafka.mutations import topology as rules
from enforcer.kafka.mutations.topology import NothingMade, TooManySteps, missing_topics
from enforcer.wire.kafka.codec import ASKED_MAX, request_layout
from enforcer.wire.kafka.frames import Fields
from enforcer.wire.kafka.mutations import topics_of

Group = tuple[tuple[int, ...], tuple[int, ...]]


def part(
    name: str, *sources: str, changelogs: tuple[str, ...] = (), sinks: tuple[str, ...] = (),
    repartition: dict[str, int] | None = None, together: tuple[Group, ...] = (), fixed: int = 0,
) -> Fields:  # fmt: skip
    """A part of a topology."""
    return {
        "SubtopologyId": name.encode(),
        "SourceTopics": [each.encode() for each in sources],
        "SourceTopicRegex": [],
        "StateChangelogTopics": [info(each, fixed) for each in changelogs],
        "RepartitionSinkTopics": [each.encode() for each in sinks],
        "RepartitionSourceTopics": [info(each, count) for each, count in (repartition or {}).items()],
        "CopartitionGroups": [
            {"SourceTopics": left, "SourceTopicRegex": (), "RepartitionSourceTopics": right}
            for left, right in together
        ],
    }


def info(name: str, partitions: int = 0) -> Fields:
    """An internal topic."""
    return {"Name": name.encode(), "Partitions": partitions, "ReplicationFactor": 0, "TopicConfigs": []}


def missing(*parts: Fields, **there: int) -> dict[str, int]:
    """Name -> partitions of what is not there."""
    topology = {"Epoch": 0, "Subtopologies": list(parts)}
    counts = {name: there.get(name.decode()) for name in topics_of(topology)}
    return {topic.name.decode(): topic.partitions for topic in missing_topics(topology, counts)}


def test_repartition_topics_have_what_their_sources_have() -> None:
    """And changelogs the most of what their part reads; what is there is not made."""
    reads = part("0", "a", "b", sinks=("r",))
    counts = part("1", repartition={"r": 0}, changelogs=("c",))
    assert missing(reads, counts, a=2, b=5) == {"r": 5, "c": 5}
    assert missing(reads, counts, a=2, b=5, r=5) == {"c": 5}
    assert missing(reads, counts, a=2, b=5, r=5, c=5) == {}
    assert missing(reads, part("1", repartition={"r": 3}, changelogs=("c",)), a=2, b=5) == {"r": 3, "c": 3}


def test_a_chain_is_followed_to_its_end() -> None:
    """In whatever order its parts come."""
    parts = [
        part("0", "a", sinks=("r0",)),
        *(part(str(n), repartition={f"r{n - 1}": 0}, sinks=(f"r{n}",)) for n in range(1, 30)),
        part("30", repartition={"r29": 0}, changelogs=("c",)),
    ]
    assert set(missing(*reversed(parts), a=4).values()) == {4}


def test_what_goes_together_has_the_same_number() -> None:
    """That of the topics that are there, else the fixed one, else the most."""
    left, right = part("0", "a", sinks=("l",)), part("1", "b", sinks=("r",))
    both: tuple[Group, ...] = (((), (0, 1)),)
    joined = part("2", repartition={"l": 0, "r": 0}, together=both)
    assert missing(left, right, joined, a=2, b=6) == {"l": 6, "r": 6}
    fixed = part("2", repartition={"l": 4, "r": 0}, together=both)
    assert missing(left, right, fixed, a=2, b=6) == {"l": 4, "r": 4}
    table = part("2", "t", repartition={"l": 0}, together=(((0,), (0,)),))
    assert missing(left, table, a=2, t=7) == {"l": 7}


def test_the_order_is_that_of_a_java_map() -> None:
    """A topic gets what is known of its sources when its turn comes."""
    early = [
        part("B", "a", repartition={"late": 0}, sinks=("out",)),
        part("A", "b", sinks=("late",)),
        part("C", repartition={"out": 0}),
    ]
    assert missing(*early, a=1, b=9)["out"] == 9
    early[0]["SubtopologyId"], early[1]["SubtopologyId"] = b"A", b"B"
    assert missing(*early, a=1, b=9)["out"] == 1
    # As Java 17 shows the keys of such a map.
    ids = [int(each["SubtopologyId"]) for each in rules._in_order([part(str(n)) for n in range(14)])]
    assert ids == [11, 12, 13, *range(10), 10]
    ids = [int(each["SubtopologyId"]) for each in rules._in_order([part(str(n)) for n in range(12)])]
    assert ids == [0, 11, *range(1, 10), 10]


WRONG: list[tuple[list[Fields], dict[str, int]]] = [
    ([part("0", "a", changelogs=("c",))], {}),
    ([part("0", "a", changelogs=("c",), fixed=3)], {"a": 1}),
    ([part("0", "a", changelogs=("c",))], {"a": 2, "c": 1}),
    ([part("0", changelogs=("c",))], {}),
    ([part("0", "a", changelogs=("c", "c"))], {"a": 1}),
    ([part("0", "a"), part("0", "a")], {"a": 1}),
    ([part("0", "a", repartition={"r": 0})], {"a": 1}),
    ([part("0", repartition={"r": 0}, sinks=("r",))], {}),
    ([part("0", "a", together=(((1,), ()),))], {"a": 1}),
    ([part("0", "a", together=(((-1,), ()),))], {"a": 1}),
    ([part("0", "a", "b", repartition={"r": 2}, together=(((0, 1), ()),))], {"a": 1, "b": 2}),
    ([part("0", "a", repartition={"r": 2}, together=(((0,), (0,)),))], {"a": 1}),
]


@each(("parts", "there"), WRONG)
def test_nothing_is_made_of_what_is_refused(parts: list[Fields], there: dict[str, int]) -> None:
    """Missing sources, other numbers of partitions, loops, places that are none."""
    with pytest.raises(NothingMade):
        missing(*parts, **there)


def test_a_long_chain_is_followed_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each part waits for the next one, all are looked at again and again."""
    monkeypatch.setattr(rules, "STEPS_MAX", 10)
    chain = [part(str(n), repartition={f"r{n + 1}": 0}, sinks=(f"r{n}",)) for n in range(5)]
    with pytest.raises(TooManySteps):
        missing(*chain, part("5", "a", sinks=("r5",)), a=1)


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
SOME = st.lists(NAMES, max_size=3)
PARTS = st.builds(
    lambda name, sources, sinks, changelogs, repartition, places: part(
        name, *sources, sinks=tuple(sinks), changelogs=tuple(changelogs), repartition=repartition,
        together=((tuple(places), tuple(places)),),
    ),
    st.sampled_from(["0", "1", "2", "\u00e9"]), SOME, SOME, SOME,
    st.dictionaries(NAMES, st.integers(-3, 3), max_size=3), st.lists(st.integers(-1, 2), max_size=2),
)  # fmt: skip


@given(st.lists(PARTS, max_size=4), st.dictionaries(NAMES, st.integers(1, 9)))
def test_any_topology_is_read_and_answered(parts: list[Fields], there: dict[str, int]) -> None:
    """As it is written, and what is missing is what it names and is not there."""
    body: dict[str, Any] = {"GroupId": b"g", "Topology": {"Epoch": 1, "Subtopologies": parts}}
    layout = request_layout(88, 0)
    frame = layout.write(body)
    read = layout.read(frame, 0, ASKED_MAX)
    assert layout.write(read) == frame and read["Topology"]["Subtopologies"] == parts
    try:
        found = missing(*parts, **there)
    except (NothingMade, TooManySteps):
        return
    assert not found.keys() & there.keys()
    assert {name.encode() for name in found} <= topics_of(read["Topology"])
