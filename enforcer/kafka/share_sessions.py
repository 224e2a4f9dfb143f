"""The share sessions of one connection: which topics each of them has (KIP-932).

A broker keeps a session for each member of a group, and a request names only what changes in it.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from enforcer.kafka.part import Behind
from enforcer.wire.kafka.frames import LENGTH, LENGTH_BYTES, SHARE_FETCH, BadFrame, parse_header
from enforcer.wire.kafka.traffic import ShareAsked, sharing

SHARE_TOPICS_MAX: Final = 1_000
"""Topics of a session that are remembered."""
SHARE_PARTS_MAX: Final = 10_000
"""And their partitions."""
SHARE_SESSIONS_MAX: Final = 10
"""And sessions of a connection; clients have one."""

SHARE_NAME_MAX: Final = 1_000
"""Length of the names of its group and its member; brokers make a member's of 22 characters."""

RECORDS_MAX: Final = 10_000
"""A limited request never asks for more records at once: each may be a range of its own in the answer."""

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

    Attributes:
        topics: id, or name -> partitions.
        begun: it began when its requests were read already.
        overflown: there are more than are remembered.
        unheard: it began unread, and has brought nothing yet that would tell its topics.
        changes: how often `topics` has changed.
    """

    __slots__ = ("_partitions", "begun", "changes", "overflown", "topics", "unheard")

    def __init__(self, overflown: bool = False) -> None:
        self.topics: dict[bytes, set[int]] = {}
        self.begun, self.unheard = False, True
        self.overflown = overflown
        self.changes = self._partitions = 0

    def note(self, epoch: int, topics: Sequence[Parts], forgotten: Sequence[Parts]) -> None:
        """A request of it, with partitions that it has and has no more; the same one may come twice."""
        if epoch <= 0:
            self.topics.clear()
            self._partitions, self.overflown, self.begun, self.unheard = 0, False, True, False
        self.changes += bool(epoch <= 0 or topics or forgotten)
        for topic, parts in topics:
            self._partitions += self._add(topic, parts)
        if self._partitions > SHARE_PARTS_MAX:
            self.overflown = True
        if self.overflown:
            # Topics stay, since somebody may owe for them; what they have of partitions is not kept up.
            self.topics = {topic: set() for topic in self.topics}
            return
        for topic, gone in forgotten:
            if (known := self.topics.get(topic)) is not None:
                self._partitions -= len(known.intersection(gone))
                known.difference_update(gone)
                if not known:
                    del self.topics[topic]

    def learn(self, topics: Iterable[bytes]) -> None:
        """It has brought something of these, so they belong to it."""
        for topic in topics:
            self.unheard = False
            if topic not in self.topics:
                self._add(topic, ())
                self.changes += 1

    def _add(self, topic: bytes, parts: Iterable[int]) -> int:
        self.overflown |= topic not in self.topics and len(self.topics) >= SHARE_TOPICS_MAX
        if self.overflown:
            return 0
        its = self.topics.setdefault(topic, set())
        before = len(its)
        its.update(parts)
        return len(its) - before


class ShareSessions:
    """Those of one connection: of each member that it speaks for."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str | None, bytes | None], ShareSession] = {}

    def of(self, asked: ShareAsked) -> ShareSession:
        """The session of a request, and what it has now; one there is no room for is overflown."""
        key = asked.group, asked.member
        if len(asked.group or "") + len(asked.member or b"") > SHARE_NAME_MAX:
            return ShareSession(overflown=True)
        session = self._sessions.get(key) or ShareSession()
        session.note(asked.epoch, asked.topics, asked.forgotten)
        if asked.epoch < 0:
            self._sessions.pop(key, None)
        elif key in self._sessions or len(self._sessions) < SHARE_SESSIONS_MAX:
            self._sessions[key] = session
        else:
            return ShareSession(overflown=True)
        return session
