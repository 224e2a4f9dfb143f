"""What a topology lacks, beside what the coordinator's own classes make of it (protocol_notes.md 3.10)."""

from collections.abc import Callable
from random import Random
from typing import Final

import pytest
from stack_kit import run_java
from streams_kit import heartbeat, topic

from enforcer.kafka.mutations.topology import NothingMade, missing_topics
from enforcer.wire.kafka.codec import request_layout
from enforcer.wire.kafka.frames import STREAMS_HEARTBEAT, Fields
from weir.jars.folders import ROOT

THERE: Final = {"x": 1, "y": 3, "z": 3, "a": 3}
NAMES: Final = [*THERE, "b", "c", "d", "e", "f", "g"]
INSIDE: Final = NAMES[3:]
"""Names of internal topics, one of which is there."""
TOPOLOGIES: Final = 600


def part(
    random: Random, number: int, sources: list[str], repartition: dict[str, int], sinks: list[str],
    changelogs: list[str], together: float,
) -> Fields:  # fmt: skip
    """A part of a topology; its sources go together as often as that."""
    group = {"SourceTopics": range(len(sources)), "RepartitionSourceTopics": range(len(repartition))}
    return {
        "SubtopologyId": str(number).encode(),
        "SourceTopics": [name.encode() for name in sources],
        "RepartitionSourceTopics": [topic(name, count) for name, count in repartition.items()],
        "RepartitionSinkTopics": [name.encode() for name in sinks],
        "StateChangelogTopics": [topic(name) for name in changelogs],
        "CopartitionGroups": [group] if random.random() < together else [],
    }


def orderly(random: Random) -> list[Fields]:
    """Parts that read what others write."""
    parts: list[Fields] = []
    written: list[str] = []
    for number in random.sample(range(40), random.randint(2, 16)):
        sources = random.sample(list(THERE), random.randint(0 if written else 1, 2))
        inside = random.sample(written, random.randint(0 if sources else 1, min(2, len(written))))
        counts = {name: random.choice((0, 0, 0, 4)) for name in inside}
        written.append(f"r{number}")
        parts.append(part(random, number, sources, counts, written[-1:], [f"c{number}"], 0.15))
    read = {each["Name"] for one in parts for each in one["RepartitionSourceTopics"]}
    for one in parts:
        one["RepartitionSinkTopics"] = [name for name in one["RepartitionSinkTopics"] if name in read]
    random.shuffle(parts)
    return parts


def wild(random: Random) -> list[Fields]:
    """Parts that read and write anything."""
    return [
        part(
            random, random.choice((number, number, 11 * number)),
            random.sample(NAMES[:5], random.choice((0, 1, 1, 2))),
            {name: random.choice((0, 0, 0, 2, 3, -1)) for name in random.sample(INSIDE, random.randrange(3))},
            random.choices(INSIDE, k=random.choice((0, 0, 1, 2))),
            random.choices(INSIDE, k=random.choice((0, 1, 1, 2))), 0.3,
        )
        for number in range(random.randint(0, 4))
    ]  # fmt: skip


@pytest.mark.parametrize(("grow", "least"), [pytest.param(orderly, 200, marks=pytest.mark.soak), (wild, 20)])
def test_the_numbers_are_the_coordinators(grow: Callable[[Random], list[Fields]], least: int) -> None:
    """The same topics with the same partitions, or none at all."""
    random, layout = Random(grow.__name__), request_layout(STREAMS_HEARTBEAT, 0)
    bodies = [layout.write(heartbeat({"Epoch": 0, "Subtopologies": grow(random)})) for _ in range(TOPOLOGIES)]
    done = run_java(
        str(ROOT / "tests" / "kafka" / "InternalTopics.java"),
        *(f"{name}={count}" for name, count in THERE.items()),
        stdin="\n".join(body.hex() for body in bodies),
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.split("\n")[:-1]
    known = {name.encode(): THERE.get(name) for name in NAMES}
    made = 0
    for body, line in zip(bodies, said, strict=True):
        topology = layout.read(body, 0)["Topology"]
        try:
            lacking = missing_topics(topology, known)
        except NothingMade:
            lacking = []
        ours = {f"{str(each.name, 'utf-8')}={each.partitions}" for each in lacking}
        assert ours == set(line.split()), topology
        made += bool(ours)
    assert made >= least
