"""The share sessions of one connection: which topics each of them has (KIP-932).

A broker keeps a session for each member of a group, and a request names only what changes in it.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from enforcer.kafka.part import Behind
from enforcer.wire.kafka.frames import LENGTH, LENGTH_BYTES, SHARE_FETCH, BadFrame, parse_header
from enforcer.wire.kafka.traffic import ShareAsked, sharing

SHARE_TOPICS_MAX: Final = 1_000
"""Topics of a session that are remembered."""
SHARE_PARTS_MAX: Final = 10_000
"""And their partitions."""
PART_BYTES: Final = 200
"""What a partition takes that is remembered, about."""
SHARE_SESSIONS_MAX: Final = 10
"""And sessions of a connection; clients have one."""

SHARE_NAME_MAX: Final = 1_000
"""Length of the names of its group and its member; brokers make a member's of 22 characters."""

RECORDS_MAX: Final = 10_000
"""A limited request never asks for more records at once: each may be a range of its own in the answer."""

SHARE_SESSION_NOT_FOUND: Final = 122

_EVER: Final = -1
"""No request has this number."""

_BEHIND_MAX: Final = 10
_BEHIND_BYTES_MAX: Final = 65_536
"""Requests behind a held one that are looked at, and their bytes: it is done with each piece that comes."""

Parts = tuple[bytes, Sequence[int]]
"""A topic, and some of its partitions."""


def may_acknowledge(requests: Behind) -> bool:
    """Whether anything behind the held request may acknowledge.

    Other members' ShareFetches that do not would wait at the broker too. If the held one gave way to them,
    two members of a connection would ask again and again, each for the other's sake.
    """
    if requests.waiting > _BEHIND_MAX or requests.waiting_bytes > _BEHIND_BYTES_MAX:
        return True
    pos, end = requests.pos, requests.pos + requests.waiting_bytes
    held = True
    while pos < end:
        start = pos + LENGTH_BYTES
        pos = start + LENGTH.unpack_from(requests.data, pos)[0]
        if not held and _acknowledges(requests.copy(start, pos)):
            return True
        held = False
    return False


def _acknowledges(frame: bytes) -> bool:
    """Whether it is no ShareFetch that does not; what cannot be read is not."""
    try:
        header = parse_header(frame)
        if header.api_key != SHARE_FETCH:
            return True
        asked = sharing(frame, header)
    except BadFrame:
        return True
    return asked.acknowledges or not asked.acquires


class ShareSession:
    """The topics of a share session, or of one of Fetches, as its requests have named them.

    A broker that refuses a request goes on as before. So what one lets go stays until it is accepted; only
    that request itself brings nothing of it, whatever becomes of it.

    Attributes:
        topics: id, or name -> partitions; at least those that it has at the broker.
        number: of the request that was noted last, if that lets something go, else 0; what is said of its
            topics is said as that request sees it.
        changes: how often `topics` has changed.
        partitions: how many `topics` has.
    """

    __slots__ = (
        "__weakref__", "_heard", "_leaving", "_left", "_overflown", "_stay", "_unread",
        "changes", "number", "partitions", "topics",
    )  # fmt: skip

    def __init__(self, overflown: bool = False) -> None:
        self.topics: dict[bytes, set[int]] = {}
        self.number = self.changes = self.partitions = 0
        # Topic -> the request that lets these of its partitions go.
        self._leaving: dict[bytes, tuple[int, set[int]]] = {}
        # It is so until that request is accepted; None: it is not.
        self._unread: int | None = _EVER
        self._overflown: int | None = _EVER if overflown else None
        self._heard = False
        # Topics have left; and one came after all: they may have partitions that nobody has named.
        self._left = self._stay = False

    @property
    def begun(self) -> bool:
        """It began when its requests were read already."""
        return self._unread in (None, self.number)

    @property
    def unheard(self) -> bool:
        """It began unread, and has brought nothing yet that would tell its topics."""
        return not (self._heard or self.begun)

    @property
    def overflown(self) -> bool:
        """There are more topics than are remembered."""
        return self._overflown not in (None, self.number)

    @property
    def wanted(self) -> list[bytes]:
        """Topics that may come."""
        of = self._leaving.get
        return [topic for topic, its in self.topics.items() if (self.number, its) != of(topic)]

    def note(self, epoch: int, topics: Sequence[Parts], forgotten: Sequence[Parts]) -> None:
        """A request of it, with partitions that it has and has no more; the same one may come twice."""
        anew = epoch <= 0
        self.changes += bool(anew or topics or forgotten)
        self.number = self.changes if anew or forgotten else 0
        if anew:
            self._renew(topics)
        for topic, parts in topics:
            self._add(topic, parts)
        if self.partitions > SHARE_PARTS_MAX:
            self.overflow()
        if self._overflown == _EVER:
            # Topics stay, since somebody may owe for them; what they have of partitions is not kept up.
            self.topics, self.partitions = {topic: set() for topic in self.topics}, 0
            self._leaving.clear()
        elif not anew and (self._unread is None or not self._stay):
            # A broker forgets nothing of what it begins with.
            for topic, gone in forgotten:
                if (its := self.topics.get(topic)) is not None:
                    self._leaving[topic] = self.number, its.intersection(gone)

    def accept(self, number: int) -> None:
        """The broker has accepted a request: what that lets go has left."""
        self.changes += 1
        for topic in [topic for topic, (by, _) in self._leaving.items() if by == number]:
            _, gone = self._leaving.pop(topic)
            self.partitions -= len(gone)
            self.topics[topic] -= gone
            if not self.topics[topic]:
                del self.topics[topic]
                self._left = True
        self._unread = None if self._unread == number else self._unread
        self._overflown = None if self._overflown == number else self._overflown

    def learn(self, topics: Iterable[bytes]) -> None:
        """It has brought something of these, so they belong to it."""
        for topic in topics:
            self._heard = True
            if topic not in self.topics:
                self._stay = self._left
                self._add(topic, ())
                self.changes += topic in self.topics

    def overflow(self) -> None:
        """There are more than are remembered."""
        self._overflown = _EVER

    def _renew(self, topics: Sequence[Parts]) -> None:
        """A request begins or ends it: all leaves that is not named."""
        parts = self.partitions + sum(len(its) for _, its in topics)
        if (
            self._overflown is not None
            or parts > SHARE_PARTS_MAX
            or len(self.topics) + len(topics) > SHARE_TOPICS_MAX
        ):
            # There is no room for both: until the answer nobody knows which it has.
            self.topics.clear()
            self._leaving.clear()
            self.partitions, self._overflown = 0, self.number
        self._leaving = {topic: (self.number, set(its)) for topic, its in self.topics.items()}
        self._unread = None if self._unread is None else self.number

    def _add(self, topic: bytes, parts: Iterable[int]) -> None:
        if topic not in self.topics and len(self.topics) >= SHARE_TOPICS_MAX:
            self.overflow()
        if self._overflown == _EVER:
            return
        its = self.topics.setdefault(topic, set())
        self.partitions -= len(its)
        its.update(parts)
        self.partitions += len(its)
        if topic in self._leaving:
            self._leaving[topic][1].difference_update(parts)


class Asking(NamedTuple):
    """A request of a session.

    Attributes:
        session: see there.
        number: of the request (ShareSession.number).
        ends: takes the session away; None: the request does not end it.
    """

    session: ShareSession
    number: int = 0
    ends: Callable[[], object] | None = None

    def hear(self, error: int) -> None:
        """The broker has answered, with this error of the whole request, or 0."""
        # What is not there has ended, too.
        if self.number and (not error or (self.ends is not None and error == SHARE_SESSION_NOT_FOUND)):
            self.session.accept(self.number)
            if self.ends is not None and not self.session.topics:
                self.ends()


OUTSIDE: Final = Asking(ShareSession(overflown=True))
"""A request outside of sessions."""


Known = WeakValueDictionary[tuple[object, ...], ShareSession]
"""What connections know of sessions, as long as one of them keeps it: a broker asks a member's request for
group and member alone, so that each connection may change what another's brings."""


class ShareSessions:
    """Those of one connection: of each member that it speaks for.

    Args:
        known: to all connections.
    """

    def __init__(self, known: Known) -> None:
        self._known, self._begun = known, 0
        self._kept: dict[tuple[object, ...], ShareSession] = {}

    @property
    def partitions(self) -> int:
        """How many all of them have."""
        return sum(session.partitions for session in self._kept.values())

    def of(self, asked: ShareAsked, begun: int, *whose: object) -> Asking:
        """A request of its session, as that is now; one there is no room for is overflown.

        Args:
            asked: the request.
            begun: how often reading has begun: sessions from before have gone on unread.
            whose: what else tells sessions apart.
        """
        if self._begun != begun:
            self._kept, self._begun = {}, begun
        key, ends = (begun, *whose, asked.group, asked.member), asked.epoch < 0
        session = self._known.get(key)
        room = key in self._kept or len(self._kept) < SHARE_SESSIONS_MAX
        if session is None:
            long = len(asked.group or "") + len(asked.member or b"") > SHARE_NAME_MAX
            if long or ends or not room:
                return Asking(ShareSession(overflown=True))
            session = self._known[key] = ShareSession()
        if room:
            self._kept[key] = session
        session.note(asked.epoch, () if ends else asked.topics, asked.forgotten)
        return Asking(session, session.number, partial(self._end, key) if ends else None)

    def _end(self, key: tuple[object, ...]) -> None:
        self._known.pop(key, None)
        self._kept.pop(key, None)
