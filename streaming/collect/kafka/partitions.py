"""Where partitions begin and end, and how many bytes they take: ListOffsets and DescribeLogDirs, in bulk.

And what is remembered of them from one check to the next.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kafka.protocol.admin import DescribeLogDirsRequest
from kafka.protocol.consumer import ListOffsetsRequest

from streaming.collect.backlog.cluster import now_ms
from streaming.collect.kafka.connection import Connection, Unanswered, chunks, gathered, why
from streaming.collect.kafka.ledgers import Stretches
from streaming.contract.namespaces import Namespaces
from streaming.contract.printable import printable

PARTITIONS_PER_REQUEST: Final = 1_000
"""Partitions in one request, which bounds its answer."""
REPORTS_MAX: Final = 8
"""Reports of a topic that may still be acted on; a plan on an older one has been overtaken by newer ones."""

LATEST: Final = -1
EARLIEST: Final = -2


class Partition(NamedTuple):
    """A partition as Kafka knows it."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A partition that a cluster has.

    Attributes:
        partition: Kafka's name and number.
        full: the topic that it is (docs/contract.md 3.5).
        topic_id: which changes when it is created anew.
        leader: node of its leader; -1: it has none.
    """

    partition: Partition
    full: str
    topic_id: Any
    leader: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Where a partition begins and ends, its bytes on its leader, and when that was read."""

    start: int
    end: int
    size: int
    ts: int


def places(topics: Iterable[Any], namespaces: Namespaces, own_prefix: str) -> tuple[list[Place], list[str]]:
    """The partitions in the answer to a Metadata request, without Kafka's own topics and Weir's.

    Returns:
        Them by name, and why others were left out: two Kafka names can mean the same topic.
    """
    taken: dict[str, str] = {}
    found, wrong = list[Place](), list[str]()
    for topic in sorted(topics, key=lambda one: str(one.name)):
        # Without partitions it is being deleted, or its name was not told.
        if (
            topic.is_internal
            or topic.name is None
            or topic.name.startswith(own_prefix)
            or not topic.partitions
        ):
            continue
        full = namespaces.full_name(topic.name)
        for one in topic.partitions:
            own = full if len(topic.partitions) == 1 else f"{full}-partition-{one.partition_index}"
            other = taken.setdefault(own, topic.name)
            if other != topic.name:
                wrong.append(f"{printable(topic.name)} means {printable(own)}, as {printable(other)} does")
                continue
            found.append(
                Place(
                    partition=Partition(topic.name, one.partition_index),
                    full=own,
                    topic_id=topic.topic_id,
                    leader=one.leader_id,
                )
            )
    return found, wrong


@dataclass(slots=True, kw_only=True)
class KnownPartition:
    """One partition.

    Attributes:
        place: where it is, as last read.
        stretches: its log.
        reports: times of the last reports on it.
    """

    place: Place
    stretches: Stretches
    reports: deque[int] = field(default_factory=lambda: deque(maxlen=REPORTS_MAX))


class Partitions:
    """All that are known from one check to the next, by Kafka's name and by topic.

    Attributes:
        there: topics that the cluster has, also those that could not be read so far.
    """

    def __init__(self) -> None:
        self._known: dict[Partition, KnownPartition] = {}
        self._by_topic: dict[str, KnownPartition] = {}
        self.there: frozenset[str] = frozenset()

    def topic(self, full: str) -> KnownPartition | None:
        """The partition that a topic is; None: not known."""
        return self._by_topic.get(full)

    def keep(self, places: Collection[Place]) -> None:
        """Forget all that the cluster does not have any more; one that was created anew is another."""
        ids = {place.partition: place.topic_id for place in places}
        self.there = frozenset(place.full for place in places)
        self._known = {
            partition: own
            for partition, own in self._known.items()
            if ids.get(partition) == own.place.topic_id
        }

    def unseen(self, places: Iterable[Place]) -> list[Place]:
        """Those that are seen first."""
        return [place for place in places if place.partition not in self._known]

    def take(
        self,
        places: Iterable[Place],
        extents: Mapping[Partition, Extent],
        marks: Mapping[Partition, list[tuple[int, int]]],
    ) -> None:
        """What a check has found."""
        for place in places:
            extent = extents.get(place.partition)
            if extent is None:
                continue
            known = self._known.get(place.partition)
            if known is None:
                stretches = Stretches.begun(
                    extent.start, extent.end, extent.size, marks.get(place.partition, ()), now=extent.ts
                )
                self._known[place.partition] = KnownPartition(place=place, stretches=stretches)
            else:
                known.place = place
                known.stretches.grow(extent.start, extent.end, extent.size, now=extent.ts)
        self._by_topic = {own.place.full: own for own in self._known.values()}


class PartitionReader:
    """Asks leaders."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def extents(self, wanted: Sequence[Place], failures: list[str]) -> dict[Partition, Extent]:
        """Where they begin and end, and how large they are; what was not answered is left out, and said."""
        found = dict[Partition, Extent]()
        for answer in await gathered(self._extents(*piece, failures) for piece in pieces(wanted)):
            if isinstance(answer, Unanswered):
                failures.append(str(answer))
            else:
                found |= answer
        return found

    async def _extents(
        self, leader: int, wanted: Sequence[Partition], failures: list[str]
    ) -> dict[Partition, Extent]:
        # The end last of both: a log that is cut off meanwhile never ends before it begins.
        starts = await self.offsets(leader, wanted, EARLIEST, failures)
        ends = await self.offsets(leader, wanted, LATEST, failures)
        ts = now_ms()
        sizes = await self._sizes(leader, wanted)
        missing = len(wanted) - len(sizes)
        if missing:
            failures.append(f"broker {leader} does not tell the size of {missing} partitions that it leads")
        return {
            one: Extent(start=min(starts[one], ends[one]), end=ends[one], size=sizes[one], ts=ts)
            for one in wanted
            if one in starts and one in ends and one in sizes
        }

    async def offsets(
        self, leader: int, wanted: Sequence[Partition], at: int, failures: list[str]
    ) -> dict[Partition, int]:
        """The offset of each at a time (ms, LATEST, EARLIEST); LATEST where nothing is as young: -1."""
        # Of each partition its number, no epoch of its leader, and the time.
        topics = [(name, [(one, -1, at) for one in numbers]) for name, numbers in by_topic(wanted)]
        request = ListOffsetsRequest(isolation_level=0, topics=topics, min_version=4, max_version=9)
        answer = await self._connection.send(request, leader)
        found, refused = dict[Partition, int](), dict[int, int]()
        for one in answer.topics:
            for own in one.partitions:
                if own.error_code:
                    refused[own.error_code] = refused.get(own.error_code, 0) + 1
                else:
                    found[Partition(one.name, own.partition_index)] = own.offset
        failures += [
            f"broker {leader} tells no offsets of {count} partitions: {why(code)}"
            for code, count in sorted(refused.items())
        ]
        return found

    async def _sizes(self, leader: int, wanted: Sequence[Partition]) -> dict[Partition, int]:
        request = DescribeLogDirsRequest(topics=by_topic(wanted), max_version=4)
        answer = await self._connection.send(request, leader)
        if answer.API_VERSION >= 3 and answer.error_code:
            raise Unanswered(f"broker {leader} tells no sizes: {why(answer.error_code)}")
        # A replica that is being moved into another folder there is not the one that is read.
        return {
            Partition(topic.name, own.partition_index): own.partition_size
            for folder in answer.results
            if not folder.error_code
            for topic in folder.topics
            for own in topic.partitions
            if not own.is_future_key
        }

    async def marks(
        self, wanted: Sequence[Place], times: Sequence[int], failures: list[str]
    ) -> dict[Partition, list[tuple[int, int]]]:
        """For each partition (first offset written at a time or later, that time), where there is one."""
        work = [(*piece, at) for at in times for piece in pieces(wanted)]
        answers = await gathered(self.offsets(*one, failures) for one in work)
        found: dict[Partition, list[tuple[int, int]]] = defaultdict(list)
        for (*_, at), answer in zip(work, answers, strict=True):
            if isinstance(answer, Unanswered):
                failures.append(str(answer))
                continue
            for partition, offset in answer.items():
                if offset >= 0:
                    found[partition].append((offset, at))
        return found


def pieces(wanted: Iterable[Place]) -> list[tuple[int, Sequence[Partition]]]:
    """What is asked in one request: a node, and partitions that it leads."""
    led: dict[int, list[Partition]] = defaultdict(list)
    for one in wanted:
        led[one.leader].append(one.partition)
    return [(node, piece) for node in sorted(led) for piece in chunks(led[node], PARTITIONS_PER_REQUEST)]


def by_topic(wanted: Iterable[Partition]) -> list[tuple[str, list[int]]]:
    """Numbers of partitions by topic."""
    found: dict[str, list[int]] = defaultdict(list)
    for one in wanted:
        found[one.topic].append(one.number)
    return list(found.items())
