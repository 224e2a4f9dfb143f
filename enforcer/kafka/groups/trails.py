"""What each connection was delivered, and where each group stands: what tells groups apart that look alike.

Offsets of one partition only. A connection's trail there ends behind what it was delivered; where it begins
says little, since a client may have had more on the connection before. A group stands at the offset that it
committed last, or was told when it asked.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

from enforcer.kafka.groups.readers import Client, take_out
from streaming.contract.fields import INT64_MAX

TRAIL_MAX: Final = 10_000
"""Partitions of a connection that are remembered; by further ones nothing is told apart."""
TOLD_MAX: Final = 10_000
"""Connections of other proxies whose trails are known."""
GROUPS_MAX: Final = 10_000
"""Groups whose offsets are known; those of the one that committed longest ago are forgotten."""
OFFSETS_MAX: Final = 200_000
"""Partitions of all groups together whose offsets are known."""
KEPT_MS: Final = 10_000.0
KEPT_MAX: Final = 10_000
KEPT_PARTS_MAX: Final = 500_000
"""So long, and of so many connections that have ended, with so many partitions, it is known what they had."""


class Stand(NamedTuple):
    """Where a group stands in a partition.

    Attributes:
        offset: of the next record.
        at_ms: when that was said.
        base: where it stood last of which is known who had read until there.
    """

    offset: int
    at_ms: float
    base: int


class Stretch:
    """What a connection was delivered of a partition, as far as that was read without a gap.

    Attributes:
        began: the first offset that it asked for.
        first: the first offset of what it was delivered in one piece.
        end: behind the last one.
        reach: the greatest offset that it asked for, or `end`: it has had nothing behind.
        since_ms: when it asked first.
    """

    __slots__ = ("began", "end", "first", "reach", "since_ms")

    def __init__(self, began: int, first: int, end: int, reach: int, since_ms: float) -> None:
        self.began, self.first, self.end, self.reach, self.since_ms = began, first, end, reach, since_ms

    def had(self, start: int, end: int) -> None:
        """It was delivered this; behind a gap a new piece begins."""
        apart = start > self.end or end < self.first
        self.first = start if apart else min(start, self.first)
        self.end = end if apart else max(end, self.end)
        self.reach = max(self.reach, end)

    def explains(self, stand: Stand) -> bool:
        """Whether a group may have come to stand there by this alone."""
        return self.first <= stand.base and stand.offset <= self.end


class Trail:
    """What one connection was delivered of topics whose groups may have limits.

    Attributes:
        client: whose connection it is, as of its last request.
        number: of the connection at its proxy.
        acts: topic -> the groups of its client that may read what it asked for last.
        groups: topic -> the groups that it may read for, as was found last.
        found: topic -> `Readers.changes` when that was found last, and since when it is so, ms.
        ruled_out: (topic, group) that it was found not to read for.
        untold: topics of which something has changed since others were told.
        told_ms: another proxy has said so then; None: the connection is here.
        ended: its client is gone, so it reads for nobody.
        size: partitions that are remembered.
        untracked: what stands for partitions that found no room: nothing, or anything once one did not.
    """

    def __init__(self, client: Client, number: int = 0) -> None:
        self.client = client
        self.number = number
        self.acts: dict[str, tuple[str, ...]] = {}
        self.groups: dict[str, tuple[str, ...]] = {}
        self.found: dict[str, tuple[int, float]] = {}
        self.ruled_out: set[tuple[str, str]] = set()
        self.untold: set[str] = set()
        self.told_ms: float | None = None
        self.ended = False
        self.untracked = Stretch(0, 1, 0, 0, 0.0)
        self._topics: dict[str, dict[int, Stretch]] = {}
        self.size = 0

    def of(self, topic: str) -> dict[int, Stretch]:
        """Its stretches of a topic by partition."""
        return self._topics.get(topic, {})

    def asked(self, topic: str, parts: Iterable[tuple[int, int]], now_ms: float) -> None:
        """It asks for partitions from these offsets on: it may have had all before."""
        known = self._topics.get(topic, {})
        for number, offset in parts:
            found = known.get(number)
            if found is None:
                if self.size >= TRAIL_MAX:
                    self.untracked.reach = INT64_MAX
                    continue
                known[number] = Stretch(offset, offset, offset, offset, now_ms)
                self.size += 1
                # Not before: topics without partitions, which nothing bounds, are not kept.
                self._topics[topic] = known
            elif offset > found.reach:
                found.reach = offset
            else:
                continue
            self.untold.add(topic)

    def learn(self, topic: str, parts: Iterable[tuple[int, Stretch]]) -> None:
        """Take what another proxy has told of it."""
        known = self._topics.get(topic, {})
        for number, had in parts:
            before = known.get(number)
            if before is not None:
                had.since_ms = before.since_ms
            elif self.size < TRAIL_MAX:
                self.size += 1
            else:
                continue
            known[number] = had
            self._topics[topic] = known

    def had(self, topic: str, number: int, start: int, end: int) -> None:
        """It was delivered a partition between two offsets."""
        found = self.of(topic).get(number)
        if found is not None:
            found.had(start, end)
            self.untold.add(topic)

    def topics(self) -> list[str]:
        """The topics that it knows."""
        return list(self._topics)


class Trails:
    """All trails that are known, by topic.

    Attributes:
        gone: numbers of connections here that have ended since others were told so.
        left: how many have ended that acted for some group, which may have no reader since.
        changes: topic -> another number each time that some connection acts for others than before.
    """

    def __init__(self, steady_ms: Callable[[], float]) -> None:
        self._steady_ms = steady_ms
        self._by_topic: dict[str, dict[Trail, None]] = {}
        # By topic and group: which act for it, or may read for it. They are few where the topic's are many.
        self._by_group: dict[tuple[str, str], dict[Trail, None]] = {}
        self._told: dict[tuple[str, int], Trail] = {}
        # Connections with more than is remembered of them: they may read any topic.
        self._full: dict[Trail, None] = {}
        self.gone: deque[int] = deque(maxlen=TOLD_MAX)
        self.left = 0
        self.changes: dict[str, int] = {}
        self._count = 0
        # With when they ended, and their size then: what they have had may still be committed, or told of.
        self._kept: OrderedDict[Trail, tuple[float, int]] = OrderedDict()
        self._kept_parts = 0

    def join(self, trail: Trail, topic: str) -> None:
        """A connection reads a topic."""
        if not trail.ended and trail.of(topic):
            self._by_topic.setdefault(topic, {})[trail] = None
        elif not trail.ended:
            self._full[trail] = None

    def leave(self, trail: Trail) -> None:
        """The connection is gone."""
        if trail.ended:
            return
        if trail.told_ms is None and trail.topics():
            self.gone.append(trail.number)
        self.left += any(trail.acts.values())
        self._kept[trail] = self._steady_ms(), trail.size
        self._kept_parts += trail.size
        trail.ended = True
        for topic in trail.topics():
            self._changed(topic)
            for group in {*trail.acts.get(topic, ()), *trail.groups.get(topic, ())}:
                take_out(self._by_group, (topic, group), trail)
        while len(self._kept) > KEPT_MAX or self._kept_parts > KEPT_PARTS_MAX:
            self._drop_first()

    def _drop_first(self) -> None:
        trail, (_, size) = self._kept.popitem(last=False)
        self._kept_parts -= size
        self._full.pop(trail, None)
        for topic in trail.topics():
            take_out(self._by_topic, topic, trail)
            if topic not in self._by_topic:
                self.changes.pop(topic, None)

    def note(self, trail: Trail, topic: str, acts: tuple[str, ...], groups: tuple[str, ...]) -> None:
        """A connection acts for these groups, or may read for those."""
        if trail.ended:
            return
        before = {*trail.acts.get(topic, ()), *trail.groups.get(topic, ())}
        now = {*acts, *groups}
        for group in before - now:
            take_out(self._by_group, (topic, group), trail)
        for group in now - before:
            self._by_group.setdefault((topic, group), {})[trail] = None
        if trail.acts.get(topic) != acts:
            self._changed(topic)
        trail.acts[topic], trail.groups[topic] = acts, groups

    def _changed(self, topic: str) -> None:
        self._count += 1
        self.changes[topic] = self._count

    def of_group(self, topic: str, user: str, group: str) -> Iterator[Trail]:
        """The connections of a principal that act for a group, or may read for it."""
        return (each for each in self._by_group.get((topic, group), ()) if each.client.user == user)

    def on(self, topic: str, user: str) -> Iterator[Trail]:
        """All connections of a principal that read a topic, or did a moment ago."""
        here = self._by_topic.get(topic, {})
        full = (each for each in self._full if each not in here)
        # Nobody may want them all: a tuple of thousands for each offset that is committed took a second.
        return (each for each in chain(here, full) if each.client.user == user)

    def own(self) -> Iterator[Trail]:
        """Those of connections here, each once, also of such as have ended a moment ago."""
        all_of_them = (each for found in self._by_topic.values() for each in found)
        return iter(dict.fromkeys(each for each in all_of_them if each.told_ms is None))

    def told(self, proxy: str, number: int, client: Client) -> Trail | None:
        """The trail of another proxy's connection; None: there is no room for one more."""
        key = proxy, number
        found = self._told.get(key)
        if found is None or found.client != client:
            if found is not None:
                self.leave(found)
            elif len(self._told) >= TOLD_MAX:
                return None
            found = self._told[key] = Trail(client, number)
        found.told_ms = self._steady_ms()
        return found

    def ended(self, proxy: str, number: int) -> None:
        """Another proxy's connection is gone."""
        found = self._told.pop((proxy, number), None)
        if found is not None:
            self.leave(found)

    def forget(self, before_ms: float) -> None:
        """Drop what others have said last before a time, and who has ended long enough ago."""
        while self._kept and next(iter(self._kept.values()))[0] + KEPT_MS <= self._steady_ms():
            self._drop_first()
        for key, trail in list(self._told.items()):
            if trail.told_ms is not None and trail.told_ms < before_ms:
                self.leave(trail)
                del self._told[key]


class Stands:
    """Where groups stand."""

    def __init__(self) -> None:
        self._size = 0
        self._untold: dict[tuple[str, str, str, int], int] = {}
        self._groups: OrderedDict[tuple[str, str], dict[tuple[str, int], Stand]] = OrderedDict()

    def of(self, user: str, group: str, topic: str, number: int) -> Stand | None:
        """Where a group stands; None: it has not said."""
        return self._groups.get((user, group), {}).get((topic, number))

    def moved(self, user: str, group: str, topic: str, number: int, stand: Stand) -> None:
        """It has said where it stands."""
        known = self._groups.setdefault((user, group), {})
        self._groups.move_to_end((user, group))
        self._size += (topic, number) not in known
        known[topic, number] = stand
        while len(self._groups) > GROUPS_MAX or self._size > OFFSETS_MAX:
            _, gone = self._groups.popitem(last=False)
            self._size -= len(gone)

    def seen(self, user: str, group: str, topic: str, number: int, offset: int) -> None:
        """Others are to be told of it; what a client made up is passed over, since its row would be."""
        if min(number, offset) < 0:
            return
        key = user, group, topic, number
        if len(self._untold) < OFFSETS_MAX or key in self._untold:
            self._untold[key] = offset

    def news(self) -> list[list[Any]]:
        """Rows of principal, group, topic and partitions with offsets, each once."""
        found: dict[tuple[str, str, str], list[list[int]]] = {}
        for (user, group, topic, number), offset in self._untold.items():
            found.setdefault((user, group, topic), []).append([number, offset])
        self._untold = {}
        return [[*key, parts] for key, parts in found.items()]
