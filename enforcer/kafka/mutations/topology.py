"""Which topics a streams group needs and lacks, and how many partitions its coordinator gives each.

The same numbers in the same order as the coordinator's, which refuses topics that have others (Kafka 4.3,
classes InternalTopicManager, RepartitionTopics, CopartitionedTopicsEnforcer and ChangelogTopics).
"""

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Final, NamedTuple

from enforcer.wire.kafka.codec import Reader, told
from enforcer.wire.kafka.frames import STREAMS_DESCRIBE, BadFrame, Fields, Reason

Counts = Mapping[bytes, int | None]
"""Partitions of topics by name; None: there is no such topic."""
# Buckets of a Java map that was not told how many entries it will have.
_BUCKETS: Final = 16
STEPS_MAX: Final = 50_000
"""Sources that are looked at in one topology, again and again where others must be known first."""
_GROUPS: Final = told(STREAMS_DESCRIBE, "of:Groups Groups:count")
# Only what stands before its members, of which there may be thousands.
_GROUP: Final = Reader(
    STREAMS_DESCRIBE, "response.Groups()",
    "ErrorCode ErrorMessage:text? Topology(Epoch Subtopologies(SourceTopics(Text:text)"
    " StateChangelogTopics(Name:text) RepartitionSourceTopics(Name:text)))",
)  # fmt: skip
LARGE_BYTES: Final = 65_536
"""What is said of a group grows with its members, each of whom would ask: beyond this one asks for all."""
REMEMBERED_MS: Final = 1_000.0
REMEMBERED_MAX: Final = 100


class NothingMade(Exception):
    """The coordinator makes no topic for this topology: it refuses it, or sources are missing."""


class TooManySteps(Exception):
    """Each part of a topology waits for another one: it is gone through no longer."""


class InternalTopic(NamedTuple):
    """A topic to be made.

    Attributes:
        name: its name.
        partitions: how many it gets.
        asked: what the topology says of it.
    """

    name: bytes
    partitions: int
    asked: Fields


class KnownTopology(NamedTuple):
    """What a coordinator says of a group.

    Attributes:
        epoch: of its topology.
        sources: names of the topics that it reads.
        internal: names of its internal topics.
    """

    epoch: int
    sources: Sequence[str]
    internal: Sequence[str]


Remembered = MutableMapping[tuple[str, bytes], KnownTopology]
"""Groups by who asked and name, for REMEMBERED_MS: not all may see the same."""


def missing_topics(topology: Fields, there: Counts) -> list[InternalTopic]:
    """The internal topics that are not there.

    Raises:
        NothingMade: see there.
        TooManySteps: see there.
    """
    parts = _in_order(topology["Subtopologies"])
    if any(topic["Partitions"] for part in parts for topic in part["StateChangelogTopics"]):
        raise NothingMade
    if any(there.get(name) is None for part in parts for name in part["SourceTopics"]):
        raise NothingMade
    decided = _repartition_counts(parts, there)
    _copartition(parts, there, decided)
    most = [_most(part, there, decided) for part in parts]
    for part, count in zip(parts, most, strict=True):
        decided.update((topic["Name"], count) for topic in part["StateChangelogTopics"])
    made: dict[bytes, InternalTopic] = {}
    for part in sorted(parts, key=lambda each: _utf16(each["SubtopologyId"])):
        for field in ("RepartitionSourceTopics", "StateChangelogTopics"):
            topics = part[field]
            _unlike([topic["Name"] for topic in topics])
            for asked in topics:
                name = asked["Name"]
                count = asked["Partitions"] or decided[name]
                if count < 1:
                    raise NothingMade
                made[name] = InternalTopic(name, count, asked)
    if any(there.get(name) not in (None, topic.partitions) for name, topic in made.items()):
        raise NothingMade
    return [topic for name, topic in made.items() if there.get(name) is None]


def absent(topology: Fields, there: Counts) -> tuple[list[bytes], list[bytes]]:
    """Its sources that are not there, and its internal topics that are not.

    While no source is, a coordinator may make what is, whatever `missing_topics` says of its numbers: these
    depend on how the parts lie in the coordinator's map.
    """
    parts = topology["Subtopologies"]
    fields = ("RepartitionSourceTopics", "StateChangelogTopics")
    internal = dict.fromkeys(topic["Name"] for part in parts for field in fields for topic in part[field])
    sources = dict.fromkeys(name for part in parts for name in part["SourceTopics"])
    return [name for name in sources if not there.get(name)], [
        name for name in internal if not there.get(name)
    ]


def places(topology: Fields) -> int:
    """How many topics its groups of topics that go together name, each as often as it is named."""
    groups = (group for part in topology["Subtopologies"] for group in part["CopartitionGroups"])
    return sum(len(group["SourceTopics"]) + len(group["RepartitionSourceTopics"]) for group in groups)


def _names(part: Fields) -> list[bytes]:
    return [topic["Name"] for topic in part["RepartitionSourceTopics"]]


def _unlike(names: Sequence[bytes]) -> None:
    if len(set(names)) < len(names):
        raise NothingMade


def _utf16(name: bytes) -> bytes:
    return name.decode("utf-8", "replace").encode("utf-16-be")


def _in_order(parts: Sequence[Fields]) -> list[Fields]:
    """As the coordinator goes through them: as they lie in a Java map by their ids.

    It matters: what a topic gets is decided by what is known of its sources until then.
    """
    _unlike([part["SubtopologyId"] for part in parts])
    buckets = _BUCKETS
    while len(parts) > buckets * 3 // 4:
        buckets *= 2

    def place(part: Fields) -> int:
        code, units = 0, _utf16(part["SubtopologyId"])
        for at in range(0, len(units), 2):
            code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
        return (code ^ code >> 16) & buckets - 1

    return sorted(parts, key=place)


def _repartition_counts(parts: Sequence[Fields], there: Counts) -> dict[bytes, int]:
    """Of each repartition topic: what is asked for, or the most that any source of what writes it has."""
    counts = {
        topic["Name"]: topic["Partitions"]
        for part in parts
        for topic in part["RepartitionSourceTopics"]
        if topic["Partitions"]
    }
    waiting, steps = list(parts), 0
    while waiting:
        left = []
        for part in waiting:
            steps += 1 + len(part["SourceTopics"]) + len(part["RepartitionSourceTopics"])
            if steps > STEPS_MAX:
                raise TooManySteps
            sinks = [name for name in part["RepartitionSinkTopics"] if name not in counts]
            if not sinks:
                continue
            sources = [counts[name] for name in _names(part) if name in counts]
            sources += [count for name in part["SourceTopics"] if (count := there[name]) is not None]
            if sources:
                counts.update(dict.fromkeys(sinks, max(sources)))
            else:
                left.append(part)
        if len(left) == len(waiting):
            raise NothingMade
        waiting = left
    if any(name not in counts for part in parts for name in _names(part)):
        raise NothingMade
    return counts


def _copartition(parts: Sequence[Fields], there: Counts, decided: dict[bytes, int]) -> None:
    """Topics that go together get as many partitions as those that are no repartition topics, or the most."""
    topics = [topic for part in parts for topic in part["RepartitionSourceTopics"]]
    repartition = {topic["Name"] for topic in topics}
    fixed = {topic["Name"] for topic in topics if topic["Partitions"]}
    fixed_counts = {_count(name, there, decided) for name in fixed}
    for part in parts:
        names = _names(part)
        for group in part["CopartitionGroups"]:
            members = _members(part["SourceTopics"], group["SourceTopics"])
            members |= _members(names, group["RepartitionSourceTopics"])
            if not members:
                continue
            counts = {name: _count(name, there, decided) for name in members}
            ours = members & repartition
            if len(ours) < len(members):
                number = _same({counts[name] for name in members if name not in ours})
            else:
                number = _same(fixed_counts) if fixed else max(counts.values())
            if any(counts[name] != number for name in ours & fixed):
                raise NothingMade
            decided.update(dict.fromkeys(ours, number))


def _members(names: Sequence[bytes], places: Iterable[int]) -> set[bytes]:
    wanted = set(places)
    if any(not 0 <= place < len(names) for place in wanted):
        raise NothingMade
    return {names[place] for place in wanted}


def _count(name: bytes, there: Counts, decided: Mapping[bytes, int]) -> int:
    for counts in (there, decided):
        if (count := counts.get(name)) is not None:
            return count
    raise NothingMade


def _same(counts: set[int]) -> int:
    if len(counts) != 1:
        raise NothingMade
    return next(iter(counts))


def _most(part: Fields, there: Counts, decided: Mapping[bytes, int]) -> int:
    counts = [_count(name, there, decided) for name in (*part["SourceTopics"], *_names(part))]
    if not counts:
        raise NothingMade
    return max(counts)


def only_group(response: bytes) -> tuple[int, str | None, Sequence[Any] | None]:
    """Error, text and topology of the group that was asked for.

    Raises:
        BadFrame: it is not there, or cannot be read.
    """
    start, count = _GROUPS(response, 0)
    if count != 1:
        raise BadFrame(Reason.BAD_VALUE)
    said: tuple[int, str | None, Sequence[Any] | None] = _GROUP(response, 0, start)
    return said


def known_topology(epoch: int, parts: Sequence[Sequence[Sequence[str]]]) -> KnownTopology:
    """What is told of a group's topology."""
    sources = dict.fromkeys(name for part in parts for name in part[0])
    internal = dict.fromkeys(name for part in parts for topics in part[1:] for name in topics)
    return KnownTopology(epoch, list(sources), list(internal))
