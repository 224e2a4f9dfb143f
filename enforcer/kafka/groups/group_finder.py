"""Of which group a fetch is: by what groups say of themselves, where they stand, and who was delivered what.

Several groups may share principal, host and client id (`rdkafka` is the client id of every librdkafka
consumer that sets none), and a group may fetch under another client id than it joins with. Offsets tell:

- A connection that never had an offset is not the one that commits it, if another one had it that may be its.
- A partition is one member's. Where one connection can be no other group's, no other is this group's.
- Who fetches for no group that is known may read for each that stands in nothing that its own were delivered;
  where there are several proxies, everybody for one that begins, until a connection of its own reads.

Until they tell, a fetch may be of each. A group that commits, twice, what no connections of its own had is
read for by others: for HUNTED_MS all that its principal reads of that topic may be its.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from cachetools import LRUCache

from enforcer.kafka.groups.readers import Client, Readers
from enforcer.kafka.groups.trails import Stand, Stands, Stretch, Trail, Trails

HUNTED_MS: Final = 600_000.0
HUNTED_MAX: Final = 1_000
"""Groups that are hunted at a time, or were seen once to commit so."""
GROUPS_OF_TOPIC_MAX: Final = 1_000
"""Limited groups of a topic that are looked at for who fetches without a group that is known."""
LIMITED_MAX: Final = 100_000
"""And of all topics: a group may be told to read any number that nobody has made."""
SETTLED_MS: Final = 3_000.0
"""What other proxies have delivered is known so long after; before, nothing is concluded from its absence."""
BEGIN_MS: Final = 10_000.0
"""A group that was told what to read has connections that do by then; one that pauses may have none."""
LEFT_MS: Final = 60_000.0
"""A limited group for which nobody acts any more is looked at for so long: it may be one that comes back."""
ENDED_MS: Final = 2_000.0
"""The end of a connection is noticed so late at most: one that begins where it read may go on for it."""
UNREAD_MS: Final = 10_000.0
"""So long it is looked for who has read what a group has committed; until then each unknown may be it."""
PENDING_MAX: Final = 10_000
"""Offsets that wait to be judged; further ones are not judged."""
TOPICS_MAX: Final = 10_000
"""Topics of which it is remembered which groups lack a reader; of more it is looked for again."""

K = TypeVar("K")
_Asked = tuple[str, str, tuple[str | bytes, ...]]
Key = tuple[str, str, str]
"""Principal, group, topic."""
Place = tuple[str, str, str, int]
"""Principal, group, topic, partition."""


class GroupFinder:
    """What is concluded, of one proxy's own facts and those that it was told.

    Attributes:
        readers: who acts for which group.
        trails: what connections were delivered.
        stands: where groups stand.

    Args:
        limited: whether a group of a topic has a rate of its own.
        alone: whether there is no other proxy.
    """

    def __init__(
        self, limited: Callable[[str, str], bool], alone: Callable[[], bool], steady_ms: Callable[[], float]
    ) -> None:
        self._version = 0
        self.readers = Readers(steady_ms)
        self.trails = Trails(steady_ms)
        self.stands = Stands()
        self._limited = limited
        self._alone = alone
        self._steady_ms = steady_ms
        # Until when they are looked at though nobody acts for them.
        self._limited_groups: dict[tuple[str, str], dict[str, float]] = {}
        self._lacks: LRUCache[_Asked, tuple[tuple[int, int, int], list[str]]] = LRUCache(TOPICS_MAX)
        # Since when they are known.
        self._began: dict[Key, float] = {}
        self._pending: dict[Place, Stand] = {}
        # What groups have committed and nobody is known to have read; by principal and topic.
        self._unread: dict[tuple[str, str], dict[tuple[str, int], Stand]] = {}
        # Until when it is looked at what is delivered there, since that has happened.
        self._watched: dict[tuple[str, str], float] = {}
        self._hunted: dict[Key, float] = {}
        self._suspected: dict[Key, float] = {}

    @property
    def version(self) -> int:
        """Counts up when what was found of a connection may be so no more, though no group came or went."""
        return self._version + self.trails.left

    def of(
        self, client: Client, trail: Trail, topic: str, names: Iterable[str | bytes], parts: Sequence[int]
    ) -> tuple[tuple[str, ...], bool]:
        """The groups for which a connection may fetch partitions of a topic; none: of no group.

        Whether that holds until `version` or `readers.changes` goes up, too.

        Args:
            topic: its full name.
            names: its name, and its id if that is known.
            parts: the partitions of one request.
        """
        names = tuple(names)
        self._look_for_unread(trail, topic)
        matching = self.readers.matching(client, names, frozenset(parts))
        limited: Iterable[str] = self._limited_groups.get((client.user, topic), ())
        may_read = self._may_read_for
        if matching:
            limited, may_read = self._lacking(client.user, topic, names), self._lacks_a_reader
        strange = [group for group in limited if group not in matching]
        found = matching
        if len(matching) > 1:
            found = [group for group in matching if not self._is_others(group, trail, topic, parts)]
        groups = *found, *(group for group in strange if may_read(group, trail, topic, names, parts))
        self.trails.join(trail, topic)
        if trail.of(topic):
            self.found(trail, topic, tuple(matching), groups)
        # Of a client of some group it stays until a reader of another one ends, which `version` tells.
        return groups, groups == tuple(matching) if len(matching) == 1 else not (matching or strange)

    def found(self, trail: Trail, topic: str, acts: tuple[str, ...], groups: tuple[str, ...]) -> None:
        """A connection may read a topic for these groups, here or as another proxy says."""
        before = trail.acts.get(topic), trail.groups.get(topic)
        if before != (acts, groups):
            trail.untold.add(topic)
            self.trails.note(trail, topic, acts, groups)
        since_ms = trail.found[topic][1] if before[1] == groups else self._steady_ms()
        trail.found[topic] = self.readers.changes, since_ms

    def _is_certain(self, trail: Trail, topic: str) -> bool:
        """Whether what was found of a connection goes by all that is known, of others' news too."""
        changes, since_ms = trail.found[topic]
        if trail.told_ms is None and changes != self.readers.changes:
            return False
        return self._alone() or since_ms + SETTLED_MS <= self._steady_ms()

    def moved(self, user: str, group: str, topic: str, number: int, offset: int) -> None:
        """A group has said where it stands in a partition."""
        before = self.stands.of(user, group, topic, number)
        stand = Stand(offset, self._steady_ms(), offset if before is None else min(before.base, offset))
        self.stands.moved(user, group, topic, number, stand)
        if not self._limited(topic, group):
            return
        self._note(user, group, topic)
        if len(self._pending) < PENDING_MAX:
            self._pending.setdefault((user, group, topic, number), stand)
        if self._alone():
            self._judge()

    def reads(self, user: str, group: str, topic: str) -> None:
        """A group reads a topic, as its assignment says."""
        if self._limited(topic, group):
            self._note(user, group, topic)

    def is_hunted(self, user: str, group: str, topic: str) -> bool:
        """Whether nothing is taken to be others' that may be this group's; mostly nobody is hunted."""
        return bool(self._hunted) and self._hunted.get((user, group, topic), 0.0) > self._steady_ms()

    def matters(self, topic: str, user: str) -> bool:
        """Whether it matters which of a principal's groups reads a topic: some of them is limited there."""
        return (user, topic) in self._limited_groups

    def watches(self, topic: str, user: str) -> bool:
        """Whether it matters what a principal is delivered of a topic, though nothing limits it."""
        # Who has a connection for each fetch never asks where it has read to.
        return (user, topic) in self._unread or (user, topic) in self._watched

    def look(self) -> None:
        """Judge what is settled, and forget; to be called once a second."""
        now_ms = self._steady_ms()
        self._judge()
        self._forget_unread(now_ms)
        before = len(self._hunted) + len(self._watched)
        self._suspected, self._hunted = _later(self._suspected, now_ms), _later(self._hunted, now_ms)
        self._watched = _later(self._watched, now_ms)
        self._version += before != len(self._hunted) + len(self._watched)
        for (user, topic), groups in list(self._limited_groups.items()):
            for group in [each for each, until_ms in groups.items() if until_ms <= now_ms]:
                if not (self.readers.lives(user, group) or self.is_hunted(user, group, topic)):
                    del groups[group], self._began[user, group, topic]
            if not groups:
                del self._limited_groups[user, topic]

    def _forget_unread(self, now_ms: float) -> None:
        for (user, topic), unread in list(self._unread.items()):
            for (group, number), stand in list(unread.items()):
                if stand.at_ms + UNREAD_MS <= now_ms:
                    self._settle((user, group, topic, number), unread.pop((group, number)))
                    self._watch(user, topic)
            if not unread:
                del self._unread[user, topic]
                self._version += 1

    def _judge(self) -> None:
        """Whether a group's own connections have had what it has committed."""
        for key, stand in [(key, stand) for key, stand in self._pending.items() if self._is_settled(stand)]:
            del self._pending[key]
            user, group, topic, number = key
            # Nearly always its own say so, which are few where the topic's are many.
            own, all_of_them = self.trails.of_group(topic, user, group), self.trails.on(topic, user)
            both = ((trail, _had(trail, topic, number)) for found in (own, all_of_them) for trail in found)
            if any(had.explains(stand) and self._is_own(trail, topic, group) for trail, had in both):
                self._settle(key, stand)
                continue
            others = [each for each in self.trails.on(topic, user) if not self._is_own(each, topic, group)]
            if not any(self._catch(key, stand, _had(trail, topic, number)) for trail in others):
                self._unread.setdefault((user, topic), {})[group, number] = stand
                self._version += 1

    def _is_own(self, trail: Trail, topic: str, group: str) -> bool:
        """Whether a connection counts for a group, if that was looked at, and its client acts for it."""
        counts = topic not in trail.groups or _counts(trail, topic, group)
        return counts and group in self.readers.groups(trail.client)

    def _catch(self, key: Place, stand: Stand, had: Stretch) -> bool:
        """Whether a connection that does not count for a group may have read what it has committed."""
        if not had.began < stand.offset <= had.reach:
            return False
        self._suspect(key[:3], self._steady_ms() + HUNTED_MS)
        self._settle(key, stand)
        return True

    def _settle(self, key: Place, stand: Stand) -> None:
        """It is known who has read until a group stood so, or nobody need be looked for any more."""
        if (now := self.stands.of(*key)) is not None:
            self.stands.moved(*key, now._replace(base=min(now.offset, stand.offset)))

    def _look_for_unread(self, trail: Trail, topic: str) -> None:
        """Whether this connection, as it asks for more, shows to have read what nobody was seen to read."""
        user, mine = trail.client.user, trail.of(topic)
        unread = self._unread.get((user, topic), {})
        for (group, number), stand in list(unread.items()):
            key, had, own = (user, group, topic, number), mine.get(number), self._is_own(trail, topic, group)
            if had is not None and own and had.explains(stand):
                self._settle(key, unread.pop((group, number)))
            elif had is not None and not own and self._catch(key, stand, had):
                del unread[group, number]

    def _note(self, user: str, group: str, topic: str) -> None:
        groups = self._limited_groups.get((user, topic), {})
        known = group in groups
        free = len(groups) < GROUPS_OF_TOPIC_MAX and len(self._began) < LIMITED_MAX
        # Who is hunted has its place whatever others there are.
        if known or free or self.is_hunted(user, group, topic):
            self._limited_groups.setdefault((user, topic), groups)[group] = self._steady_ms() + LEFT_MS
            self._began.setdefault((user, group, topic), self._steady_ms())
            self._version += not known

    def _watch(self, user: str, topic: str) -> None:
        if len(self._watched) < HUNTED_MAX or (user, topic) in self._watched:
            self._watched[user, topic] = self._steady_ms() + HUNTED_MS

    def _suspect(self, key: Key, until_ms: float) -> None:
        """Once an offset may have been set by hand; who does it again has others read."""
        self._watch(key[0], key[2])
        # Where there is no room to remember the first time, it counts as the second.
        again = key in self._suspected or len(self._suspected) >= HUNTED_MAX
        table = self._hunted if again else self._suspected
        if len(table) >= HUNTED_MAX and key not in table:
            del table[next(iter(table))]
        table[key] = until_ms
        if not again:
            return
        self._version += 1
        user, group, topic = key
        self._note(user, group, topic)
        for trail in self.trails.on(topic, user):
            trail.ruled_out.discard((topic, group))

    def _lacking(self, user: str, topic: str, names: tuple[str | bytes, ...]) -> list[str]:
        """The limited groups that may lack a reader: looked for once for all connections of a topic."""
        if not self._hunted and self._alone():
            return []
        state = self.readers.changes, self.version, self.trails.changes.get(topic, 0)
        known = self._lacks.get((user, topic, names))
        if known is None or known[0] != state:
            groups = self._limited_groups.get((user, topic), ())
            known = state, [group for group in groups if self._is_lacking(user, group, topic, names)]
            self._lacks[user, topic, names] = known
        return known[1]

    def _is_lacking(self, user: str, group: str, topic: str, names: tuple[str | bytes, ...]) -> bool:
        if self.is_hunted(user, group, topic) or not self._begins(user, group, topic):
            return self.is_hunted(user, group, topic)
        wanted = self.readers.wanted(user, group, names)
        for trail in self.trails.of_group(topic, user, group) if wanted else ():
            if group in trail.acts.get(topic, ()):
                wanted -= trail.of(topic).keys()
        return bool(wanted)

    def _lacks_a_reader(
        self, group: str, trail: Trail, topic: str, names: Sequence[str | bytes], parts: Sequence[int]
    ) -> bool:
        """Whether a group has partitions that none of its own connections reads: then each may be its."""
        user = trail.client.user
        if self.is_hunted(user, group, topic) or not self._begins(user, group, topic):
            return self.is_hunted(user, group, topic)
        wanted = self.readers.wanted(user, group, names).intersection(parts)
        its = self._own_readers(group, trail, topic) if wanted else []
        return any(not any(number in each for each in its) for number in wanted)

    def _begins(self, user: str, group: str, topic: str) -> bool:
        # Who is alone sees at once what it commits; of several it may be told too late.
        if self._alone():
            return False
        return self._began.get((user, group, topic), 0.0) + BEGIN_MS > self._steady_ms()

    def _may_read_for(
        self, group: str, trail: Trail, topic: str, names: Sequence[str | bytes], parts: Sequence[int]
    ) -> bool:
        """Whether a connection of nobody's may read for a group: none of its own has been where it stands."""
        user, mine = trail.client.user, trail.of(topic)
        its = [] if self.is_hunted(user, group, topic) else self._own_readers(group, trail, topic)
        wanted = self.readers.wanted(user, group, names)
        for number in parts:
            stand = self.stands.of(user, group, topic, number)
            if stand is None and number not in wanted:
                continue
            had = [each[number] for each in its if number in each]
            if not any(self._explains(each, stand, mine.get(number)) for each in had):
                return True
        return False

    def _own_readers(self, group: str, trail: Trail, topic: str) -> list[dict[int, Stretch]]:
        found = self.trails.of_group(topic, trail.client.user, group)
        return [each.of(topic) for each in found if each is not trail and group in each.acts.get(topic, ())]

    def _explains(self, its: Stretch, stand: Stand | None, mine: Stretch | None) -> bool:
        """Whether a group's own connection has been where it stands, and this one does not go on for it."""
        if stand is None:
            return True
        is_new = mine is not None and mine.since_ms + ENDED_MS > self._steady_ms()
        if is_new and mine is not None and stand.offset <= mine.began <= its.end:
            return False
        # What another proxy has delivered since is not known yet.
        return its.explains(stand) or not self._is_settled(stand)

    def _is_settled(self, stand: Stand) -> bool:
        return self._alone() or stand.at_ms + SETTLED_MS <= self._steady_ms()

    def _is_others(self, group: str, trail: Trail, topic: str, parts: Sequence[int]) -> bool:
        """Whether what a connection has had of a topic cannot be a group's."""
        if (topic, group) in trail.ruled_out:
            return True
        if self.is_hunted(trail.client.user, group, topic):
            return False
        found = self.trails.of_group(topic, trail.client.user, group)
        others = [each for each in found if each is not trail and _counts(each, topic, group)]
        mine, proven = trail.of(topic), False
        for number in parts:
            had = mine.get(number)
            if had is None:
                return False
            stand = self.stands.of(trail.client.user, group, topic, number)
            if self._reads_elsewhere(group, trail, stand, topic, number, others):
                proven = True
            elif had.reach > had.began:
                return False
        if proven:
            trail.ruled_out.add((topic, group))
        return proven

    def _reads_elsewhere(
        self, group: str, trail: Trail, stand: Stand | None, topic: str, number: int, others: Sequence[Trail]
    ) -> bool:
        """Whether a partition is read for a group by another connection than this one."""
        had = trail.of(topic)[number]
        its = [
            (each.groups[topic] if self._is_certain(each, topic) else (), each.of(topic)[number])
            for each in others
            if number in each.of(topic)
        ]
        # Of a group without a limit it is not read what it is delivered; nor does that have to be proven.
        limited = self._limited(topic, group)
        if stand is not None:
            offset = stand.offset
            its = [(of, has) for of, has in its if (has.explains(stand) if limited else offset <= has.reach)]
            if stand.at_ms > had.since_ms and offset > had.reach:
                return bool(its)
        return any(of == (group,) for of, _ in its)


def _counts(trail: Trail, topic: str, group: str) -> bool:
    return group in trail.groups.get(topic, ())


def _had(trail: Trail, topic: str, number: int) -> Stretch:
    return trail.of(topic).get(number, trail.untracked)


def _later(table: dict[K, float], now_ms: float) -> dict[K, float]:
    return {key: until_ms for key, until_ms in table.items() if until_ms > now_ms}
