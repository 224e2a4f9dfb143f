"""What a connection fetches, and whether anything limits it (KIP-227)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from enforcer.core.lines import Claim, Counter
from enforcer.kafka.dispatch.context import FetchContext
from enforcer.kafka.dispatch.fetch_requests import FetchRequest, TopicRequest
from enforcer.kafka.groups.readers import Client
from enforcer.wire.kafka.codec import told
from enforcer.wire.kafka.frames import FETCH
from enforcer.wire.kafka.traffic import FETCH_PARTS_MAX, UNKNOWN_SESSION

W = TypeVar("W", bound=Mapping[bytes, Any])
"""What is wanted of a request, by topic."""

TOPICS_MAX: Final = 1_000
"""Topics of a session that are remembered; with more it is taken to be limited, and has no session."""

_NEW: Final = (-1, -1, -1, None)
KNOWN_MAX: Final = 1_000
"""Topics of a connection that are remembered, with as many partitions as a request may have; of more each is
looked up with each request."""
FRAME_MAX: Final = 65_536
"""A request that waits is kept as it was read up to this size, bytes; a larger one is read again."""

_NUMBER: Final = told(FETCH, "SessionId")


class Session:
    """The topics of one connection's fetch session, or of its last request where it has none.

    Attributes:
        number: what the broker calls it; 0: it had no room for one; UNKNOWN_SESSION: nobody has read that.
    """

    def __init__(self, context: FetchContext) -> None:
        self.number = UNKNOWN_SESSION
        self._begun = self._begins = 0
        self._context = context
        self._topics: dict[str, None] = {}
        # What the last request that lists all topics named, if all of that has names: nearly always the next
        # one names the same.
        self._listed: tuple[bool, frozenset[bytes]] | None = None
        self._overflown = self._unnamed = False
        self._state: tuple[int, int, int, Client | None] = _NEW
        self._limited = False

    def knows(self, number: int) -> bool:
        """Whether all requests of a session were read: it began here, and while there was a limit."""
        return number == self.number and self._begun == self._context.dispatch.begun

    def look(self, version: int) -> Callable[[bytes], bytes] | None:
        """Reads its number in the answer to the request that it begins with; None: it is left unread.

        So it is where there was no room for one before: if there is now, the client begins once more.
        """
        if not self.number:
            return None
        begins = self._begins

        def read(response: bytes) -> bytes:
            if begins == self._begins:
                self.number = _NUMBER(response, version)
            return response

        return read

    def begin(self, topics: Sequence[bytes], ids: bool) -> None:
        """A request lists all topics: a session begins with it, or there is none."""
        listed = ids, frozenset(topics)
        if self._listed != listed:
            self.forget()
        self._begins += 1
        self.number = self.number and UNKNOWN_SESSION
        self._begun = self._context.dispatch.begun
        if self._listed == listed:
            self._state = _NEW
            return
        self.add(topics, ids)
        self._listed = listed if not self._unnamed and not self._overflown else None

    def forget(self) -> None:
        """It shall go on no more."""
        self._begun = 0
        self._overflown = False
        self._topics.clear()
        self._state = _NEW
        self._listed, self._unnamed = None, False

    def add(self, topics: Sequence[bytes], ids: bool) -> None:
        """Further topics; what has no name yet may have a limit once it is known."""
        for key in topics:
            name = self._context.topic(key, ids)
            self._unnamed |= name is None
            if name is None or name in self._topics:
                continue
            self._listed = None
            if len(self._topics) >= TOPICS_MAX:
                self._overflown = True
                return
            self._topics[name] = None
            self._state = _NEW

    def is_limited(self, client: Client) -> bool:
        """Whether any of its topics is or may be, for whichever group the client may read."""
        if self._overflown or self._unnamed:
            return True
        dispatch, readers, finder = self._context.dispatch, self._context.readers, self._context.finder
        # A connection may name another client id with each request.
        state: tuple[int, int, int, Client | None] = (dispatch.generation, 0, 0, None)
        if dispatch.by_subscription:
            state = (dispatch.generation, readers.version, finder.version, client)
        if state != self._state:
            self._state = state
            groups = readers.groups(client) if dispatch.by_subscription else []
            self._limited = any(
                any(dispatch.limits(topic, group) for group in ("", *groups))
                or finder.matters(topic, client.user)
                for topic in self._topics
            )
        return self._limited


class TopicReading(NamedTuple):
    """Who reads a limited topic through whom.

    Attributes:
        broker: who delivers.
        name: the topic's full name.
        groups: who reads it, or may: it counts for each.
        claim: its place among those that wait.
        tracked: groups of the topic may have limits of their own.
        unsure: it may be of several groups.
        counters: those that limit it, of all these groups.
    """

    broker: str
    name: str
    groups: tuple[str, ...]
    claim: Claim
    tracked: bool
    unsure: bool
    counters: Sequence[Counter]


class TopicCache(Generic[W]):
    """What was found out of one connection's topics, kept while it holds: only speed needs it.

    A request names the same topics as the one before, hundreds of them, and who reads them is a question of
    many steps. What changes an answer (limits, groups, assignments, who asks) makes all of them forgotten.
    """

    def __init__(self, context: FetchContext) -> None:
        self._context = context
        self._state: tuple[object, ...] = ()
        # By name or id: the partitions that were asked for, and who reads them; None: nothing limits that,
        # and then the topic's full name if its connections' trails matter.
        self._topics: dict[bytes, tuple[list[int], TopicReading | None, str]] = {}
        self._groups: set[str] = set()
        self._parts = 0
        self._complete = False
        self._waiting: tuple[bytes, FetchRequest, W | None] | None = None

    def begin(self, asked: FetchRequest, client: Client, broker: str, ids: bool) -> W | None:
        """A request of a client begins, to a broker, that names topics or ids.

        Returns:
            What was wanted of it when it waited, if that holds.
        """
        dispatch, readers = self._context.dispatch, self._context.readers
        readers.heard(client, self._groups)
        state = dispatch.generation, readers.changes, self._context.finder.version, client, broker, ids
        if state != self._state:
            self._state = state
            self._topics.clear()
            self._groups.clear()
            self._waiting, self._parts = None, 0
        self._complete = True
        kept, self._waiting = self._waiting, None
        return kept[2] if kept is not None and kept[1] is asked else None

    def of(self, topic: TopicRequest) -> tuple[bool, TopicReading | None, str]:
        """Whether it is known who reads these partitions, and if so, who; the name if its trail matters."""
        found = self._topics.get(topic.key)
        parts = topic.parts
        if found is None or found[0] != (
            [parts[0].number] if len(parts) == 1 else [part.number for part in parts]
        ):
            self._complete = False
            return False, None, ""
        return True, found[1], found[2]

    def keep(
        self, topic: TopicRequest, groups: tuple[str, ...], reading: TopicReading | None, tracked: str
    ) -> None:
        """It was found out."""
        before = self._topics.get(topic.key)
        parts = self._parts + len(topic.parts) - (0 if before is None else len(before[0]))
        if parts <= FETCH_PARTS_MAX and (len(self._topics) < KNOWN_MAX or before is not None):
            self._parts = parts
            self._topics[topic.key] = [part.number for part in topic.parts], reading, tracked
            self._groups.update(group for group in groups if group)

    def wait(self, frame: bytes, asked: FetchRequest, wanted: W) -> None:
        """A request waits, and will be asked for again; what is wanted of it is kept, if all was known."""
        known = wanted if self._complete else None
        self._waiting = (frame, asked, known) if len(frame) <= FRAME_MAX else None

    def waited(self, frame: bytes) -> FetchRequest | None:
        """What that request asks for, if it is this one."""
        kept = self._waiting
        return kept[1] if kept is not None and kept[0] == frame else None
