"""Which topics and transactional ids are Weir's own, and whether a request may name one: no other is judged.

A Produce request is looked at by its structure: records may be megabytes and are stepped over. And most
clients say the same again and again: what a request passes by are its bytes up to some place, but for the
correlation id, and what is in force. So one with the same bytes as the last that passed does too, and nothing
of it need be looked at.
"""

import re
from collections.abc import Callable, Collection, Iterator
from typing import Final
from weakref import ref

from enforcer.kafka.guard.apis import ANY_VERSION, FILTERED, HIDDEN, READABLE, REFUSED
from enforcer.wire.kafka.codec import asked
from enforcer.wire.kafka.frames import (
    API_VERSIONS,
    FETCH,
    FLEXIBLE_FROM,
    HEARTBEAT,
    METADATA,
    NEVER,
    NO_ID,
    PRODUCE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    Frame,
    RequestHeader,
)
from enforcer.wire.kafka.traffic import FETCH_IDS_FROM, METADATA_IDS_FROM, PRODUCE_IDS_FROM
from streaming.contract.topics import Topics

CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
ALWAYS_READ: Final = REFUSED | {CREATE_ACLS, DELETE_ACLS}
"""APIs whose requests are read whatever they name."""
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
_NAMED: Final = asked(PRODUCE, "TransactionalId TopicData(Name|TopicId?)")
_HEAD: Final = asked(PRODUCE, "TransactionalId end:TimeoutMs")
# Behind the client id of a request without transactional id: that, acks and timeout, from version 3 on.
PLAIN_TOPICS_AT: Final = 8
ONE_TOPIC: Final = (b"\0\0\0\1", b"\2")
"""How a list of one begins, in classic and in flexible versions."""
KNOWN_BYTES: Final = 512
"""What is kept of a request, at most."""
REPEATED_KEYS: Final = frozenset({PRODUCE, METADATA, API_VERSIONS, HEARTBEAT})
"""APIs whose requests are alike; others count on with each one."""

# A request begins with length, key, version, correlation id (until here), length of the client id (and here).
_AFTER_ID: Final = 12
_CLIENT_ID: Final = 14

InForce = Callable[[], object]
"""What tells whether a Metadata request must be read; another object when that may be another answer."""


class OwnTopics:
    """What belongs to one Weir installation: every name under its prefix, and the ids of such topics.

    With an empty prefix these are the names of its topics alone. The transactional id by which writers of
    policies take turns is the name of a topic.

    Args:
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
        """Ids of the topics, as far as they are known; another object once they are others."""
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
        ids = self._looked_up.union(self._seen)
        if ids != self.ids:
            self.ids = ids
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

    def plain_names_ours(self, data: Frame, offset: int, stop: int, version: int) -> bool | None:
        """Whether the one topic of a Produce is Weir's, by its first bytes alone: the rest may not be here.

        By hand, since nearly every request is asked this: 0.3 µs, by the codec 1.4 and 0.6 for its header.

        Args:
            data: holds the request, or its beginning.
            offset: where its list of topics begins.
            stop: where it ends.

        Returns:
            None: it has not one topic, or the part that is here does not tell.
        """
        flexible = version >= 9
        count = ONE_TOPIC[flexible]
        if not data.startswith(count, offset):
            return None
        name = offset + len(count)
        if min(len(data), stop) < name + self.looked_at_bytes:
            return None
        if version >= PRODUCE_IDS_FROM:
            return bytes(data[name : name + len(NO_ID)]) in self.ids
        # A length from 127 on takes two bytes in the flexible versions; others always do.
        if flexible and data[name] > 0x7F and data[name + 1] > 0x7F:
            # Longer than it need be, which a broker takes, or no topic: it is read as a broker reads it.
            return None
        # Of whatever length, it may be one of the names if it begins so.
        return data.startswith(self._needles, name + (2 if not flexible or data[name] > 0x7F else 1))

    def head_names_ours(self, head: Frame, header: RequestHeader) -> bool | None:
        """The same for a request with a transactional id, or without the field, from its first bytes.

        Raises:
            BadFrame: they end before the topics.
        """
        transaction, topics_at = _HEAD(head, header)
        if self.has(transaction):
            return True
        return self.plain_names_ours(head, topics_at, len(head), header.api_version)

    def names_ours(self, frame: Frame, header: RequestHeader) -> bool:
        """Whether a Produce request has a topic or a transactional id of Weir's.

        Raises:
            BadFrame: it ends too early or a length in it is impossible.
        """
        transaction, topics = _NAMED(frame, header)
        version = header.api_version
        return self.has(transaction) or any(self.is_ours(topic, version) for topic in topics)

    def must_be_judged(self, frame: bytes, header: RequestHeader) -> bool:
        """Whether a request may name something, or is one that is judged whatever it names.

        Raises:
            BadFrame: a Produce ends too early or a length in it is impossible.
        """
        key = header.api_key
        if key in ALWAYS_READ:
            return True
        ids_from = self.searched.get(key)
        if ids_from is None:
            return False
        if key == PRODUCE:
            return self.names_ours(frame, header)
        return self.may_be_in(frame, header.body_offset, len(frame), header.api_version >= ids_from)

    def is_ours(self, topic: bytes, version: int) -> bool:
        """Whether a topic, as a version calls it, is Weir's."""
        return topic in self.ids if version >= PRODUCE_IDS_FROM else self.has(topic)


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


def unsupported(header: RequestHeader) -> bool:
    """Whether the proxy must close the connection, as a broker does on a version that it does not know.

    ApiVersions is never unsupported: a too-new one gets an answer.
    """
    key = header.api_key
    if key == API_VERSIONS:
        return False
    if key not in FLEXIBLE_FROM or key in HIDDEN:
        return True
    lowest, highest = READABLE.get(key, ANY_VERSION)
    return not lowest <= header.api_version <= highest


class LastRequest:
    """The last request that passed."""

    __slots__ = ("_ids", "_in_force", "_protected", "_rules", "key", "looked_at", "stop", "version")

    def __init__(self, protected: OwnTopics, in_force: InForce) -> None:
        self._protected = protected
        self._in_force = in_force
        self._ids = protected.ids
        # Not kept alive: a set of policies may be large, and a connection idle for days.
        self._rules: ref[object] | None = None
        self.looked_at = b""
        """What another one must have behind its correlation id, to pass too."""
        self.stop = 0
        """Where that ends; one that is no Produce must end there too."""
        self.key = -1
        """Its API; -1: none is known."""
        self.version = 0
        """Its version."""

    @property
    def stands(self) -> bool:
        """Whether one like it would pass now."""
        return self._protected.ids is self._ids and (
            self._rules is None or self._in_force() is self._rules()
        )

    def forget(self) -> None:
        """Another client may be speaking, or in another way."""
        self.key = -1

    def keep(self, data: bytes | bytearray, size: int, key: int, version: int, name_bytes: int) -> None:
        """Note a request of REPEATED_KEYS that passes and is answered, if it is short enough.

        Args:
            data: begins with its length.
            size: of all of it, with its length.
            name_bytes: the length of its client id, -1 if absent.
        """
        self.key = -1
        stop = size
        if key == PRODUCE:
            topics = _CLIENT_ID + max(0, name_bytes) + PLAIN_TOPICS_AT
            stop = topics + len(ONE_TOPIC[version >= 9]) + self._protected.looked_at_bytes
            # Told by its first bytes: no transactional id, one topic, not ours.
            null = b"\0\0" if version >= 9 else b"\xff\xff"
            if (
                version < 3
                or data[topics - PLAIN_TOPICS_AT : topics - PLAIN_TOPICS_AT + len(null)] != null
                or self._protected.plain_names_ours(data, topics, min(size, len(data)), version) is not False
            ):
                return
        if stop > min(KNOWN_BYTES, len(data)):
            return
        self.looked_at, self.stop = bytes(data[_AFTER_ID:stop]), stop
        self._ids = self._protected.ids
        self._rules = ref(self._in_force()) if key == METADATA else None
        self.key, self.version = key, version
