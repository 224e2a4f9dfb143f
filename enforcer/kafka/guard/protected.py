"""Which topics and transactional ids are Weir's own, and whether bytes could name one."""

import re
from collections.abc import Callable, Collection, Iterator
from typing import Final

from enforcer.kafka.guard.apis import FILTERED
from enforcer.wire.kafka.fields import NO_ID
from enforcer.wire.kafka.frames import FETCH, METADATA, PRODUCE, SHARE_ACKNOWLEDGE, SHARE_FETCH
from enforcer.wire.kafka.traffic import FETCH_IDS_FROM, METADATA_IDS_FROM, PRODUCE_IDS_FROM
from streaming.contract.topics import Topics

NEVER: Final = 1 << 15
# First version that names topics by id.
_IDS_FROM: Final = {
    PRODUCE: PRODUCE_IDS_FROM, FETCH: FETCH_IDS_FROM, METADATA: METADATA_IDS_FROM, 8: 10, 9: 10, 20: 6,
    SHARE_FETCH: 0, SHARE_ACKNOWLEDGE: 0,
}  # fmt: skip
IDS_MAX: Final = 64
"""Ids that are looked up, and that answers taught, at a time; each is looked for by itself."""

# Up to here one pattern of all names and ids is faster than a search for each.
_SMALL_BYTES: Final = 256
_NAME: Final = re.compile(rb"[a-zA-Z0-9._-]*")
"""What a topic's name may hold: Kafka takes no other."""
_LOOKS_MAX: Final = 20_000
"""Places of one message at which it is looked whether a name begins; with more it may have one."""
_Search = Callable[[bytes | bytearray, int, int], "re.Match[bytes] | None"]


class OwnTopics:
    """What belongs to one Weir installation: every name under its prefix, and the ids of such topics.

    With an empty prefix these are the names of its topics alone. The transactional id by which writers of
    policies take turns is the name of a topic.

    Args:
        topics: their names.
        active: whether anything is protected; if not, nothing is found.
    """

    def __init__(self, topics: Topics, active: bool) -> None:
        self.topics = topics
        self._prefix = topics.prefix.encode()
        self._names = frozenset(name.encode() for name in topics.all())
        self.active = active
        self.searched = dict.fromkeys(FILTERED, NEVER) | _IDS_FROM if active else {}
        """API whose requests may name something -> first version that may do so by id."""
        self._needles = (self._prefix,) if self._prefix else tuple(sorted(self._names))
        self.looked_at_bytes = max(16, 2 + max(map(len, self._needles)))
        """How much from the beginning of a topic on tells whether it may be one of them."""
        self.shortest_bytes = min(map(len, self._needles))
        """Bytes that each of the names has at least."""
        self._looked_up: frozenset[bytes] = frozenset()
        self._seen: dict[bytes, None] = {}
        self.ids: frozenset[bytes] = frozenset()
        """Ids of the topics, as far as they are known."""
        self._search = self._pattern()

    def learn(self, ids: Collection[bytes]) -> None:
        """These are the ids of the topics now; those of topics that are gone name nothing any more."""
        self._looked_up = frozenset(ids) - {NO_ID}
        self._take_ids()

    def saw(self, ids: Collection[bytes]) -> None:
        """An answer of the cluster named topics with these ids."""
        # Where topics have no ids a broker says zero for all of them.
        new = [topic_id for topic_id in ids if topic_id != NO_ID]
        if not self.ids.issuperset(new):
            self._seen |= dict.fromkeys(new)
            while len(self._seen) > IDS_MAX:
                del self._seen[next(iter(self._seen))]
            self._take_ids()

    def _take_ids(self) -> None:
        self.ids = self._looked_up.union(self._seen)
        self._search = self._pattern()

    def _pattern(self) -> _Search:
        return re.compile(b"|".join(map(re.escape, (*self._needles, *self.ids)))).search

    def has(self, name: bytes | None) -> bool:
        """Whether a topic's name or a transactional id is Weir's."""
        if not self.active or name is None:
            return False
        return name.startswith(self._prefix) if self._prefix else name in self._names

    def has_id(self, topic_id: bytes | None) -> bool:
        """Whether a topic's id is that of one of Weir's."""
        return topic_id in self.ids

    def starts_at(self, data: bytes | bytearray, offset: int) -> bool:
        """Whether the text that begins there, of whatever length, may be one of the names."""
        return data.startswith(self._needles, offset)

    def may_be_in(self, data: bytes | bytearray, start: int, stop: int, ids: bool) -> bool:
        """Whether these bytes may hold one of the names, or of the ids; never False if they do."""
        if ids and stop - start < _SMALL_BYTES:
            return self._search(data, start, stop) is not None
        looks = 0
        for needle in self._needles:
            place = data.find(needle, start, stop)
            while place >= 0:
                looks += 1
                if looks > _LOOKS_MAX or _has_length(data, place, stop, len(needle)):
                    return True
                place = data.find(needle, place + 1, stop)
        if ids:
            for topic_id in self.ids:
                if data.find(topic_id, start, stop) >= 0:
                    return True
        return False

    def places(self, data: bytes, offset: int) -> Iterator[int]:
        """Everywhere where one of the names could begin."""
        for needle in self._needles:
            place = data.find(needle, offset)
            while place >= 0:
                yield place
                place = data.find(needle, place + 1)


def _has_length(data: bytes | bytearray, name: int, stop: int, shortest: int) -> bool:
    """Whether the length of a topic's name may stand before this place, rather than the rest of one."""
    before, last = data[name - 2], data[name - 1]
    if before > 0x7F:
        # The length of a long one in flexible versions, or one that is longer than it need be.
        return True
    # Of 16 bits in classic versions, which is below 256; in flexible ones a byte that says one more.
    for length in (last if before == 0 else 0, last - 1):
        if length >= shortest and (end := name + length) <= stop and _NAME.fullmatch(data, name, end):
            return True
    return False


NOTHING: Final = OwnTopics(Topics(), active=False)
