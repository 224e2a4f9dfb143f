"""How many records and bytes pass, read from Produce requests, Fetch and ShareFetch responses as they are.

Hot path: a pass over the partitions and one read per record batch; records are neither decompressed, touched
nor copied.
See docs/protocol_notes.md 3.1.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Final, NamedTuple

from enforcer.wire.kafka.batches import count_batches, count_records
from enforcer.wire.kafka.codec import Reader, asked, spliced, told
from enforcer.wire.kafka.frames import (
    FETCH,
    PRODUCE,
    SHARE_FETCH,
    Frame,
    RequestHeader,
    TooManyRows,
    array_length,
    is_flexible,
    skip_tags,
)

PRODUCE_PARTS_MAX: Final = 10_000
"""Topics and partitions of one Produce request that are gone through; more would hold up other traffic."""
FETCH_PARTS_MAX: Final = 50_000
"""The same of a Fetch request, whose parts take a fifth of the time."""
STEP_PARTS: Final = 10_000
"""And of a Fetch response in one step, or where each is looked at."""
PRODUCE_IDS_FROM: Final = 13
FETCH_IDS_FROM: Final = 13
METADATA_IDS_FROM: Final = 10
_KEPT_MIN_MS: Final = 100.0

_INT32: Final = struct.Struct(">i")
_INT32_PAIR: Final = struct.Struct(">ii")
_FOUR: Final = struct.Struct(">iiii")


class TopicUse(NamedTuple):
    """What went by of one topic in one frame.

    Attributes:
        topic: its name, or its 16-byte id in versions that have no names.
        records: records, by the headers of their batches.
        size: bytes of the batches, as they are on the wire.
    """

    topic: bytes
    records: int
    size: int


class Part(NamedTuple):
    """What one partition gets in a Produce request.

    Attributes:
        topic: as in TopicUse.
        number: the partition's.
        records: how many.
        size: their bytes.
    """

    topic: bytes
    number: int
    records: int
    size: int


PARTS_MAX: Final = 1_000
"""Partitions of one Produce request that are told apart; what a broker refuses of others is not known."""


class FetchSummary(NamedTuple):
    """What a Fetch request asks for.

    Attributes:
        topics: names or ids; an incremental one lists only what changed in its session, most times nothing.
        limit_offset: where its max_bytes stands in the frame, its min_bytes before it; None: this version has
            none.
        limit_bytes: max_bytes.
        epoch: in its session: 0 begins one, -1: it has none; both list all topics.
        more: it has more parts than are gone through; `topics` are the first of them.
    """

    topics: list[bytes]
    limit_offset: int | None
    limit_bytes: int
    epoch: int
    more: bool


ACKS: Final = asked(PRODUCE, "at:Acks Acks")
"""Where the acks field of a Produce request stands, and what it says; raises BadFrame."""
produce_acks: Final[Callable[[Frame, RequestHeader], int]] = asked(PRODUCE, "Acks")
"""What it says alone; with 0 the broker sends no response at all; raises BadFrame."""

_PRODUCED: Final = asked(
    PRODUCE, "TopicData(Name|TopicId PartitionData(Index of:Records end:Records))",
    room=PRODUCE_PARTS_MAX, rows=1,
)  # fmt: skip


def produced(frame: Frame, header: RequestHeader, parts: list[Part]) -> list[TopicUse]:
    """What a Produce request brings, per topic.

    Args:
        frame: the request.
        header: its header.
        parts: gets the same per partition, up to PARTS_MAX.

    Raises:
        BadFrame: it ends too early or a length in it is impossible.
    """
    found = []
    for topic, partitions in _PRODUCED(frame, header):
        records = size = 0
        for index, start, end in partitions:
            count = count_records(frame, start, end)
            size += end - start
            records += count
            if len(parts) < PARTS_MAX:
                parts.append(Part(topic, index, count, end - start))
        found.append(TopicUse(topic, records, size))
    return found


_RESPONSES: Final = told(FETCH, "of:Responses Responses:count")
_TOPIC: Final = Reader(FETCH, "response.Responses()", "Topic|TopicId of:Partitions Partitions:count")
_PARTITION: Final = Reader(FETCH, "response.Responses().Partitions()", "of:Records end:Records end")


def fetched_in_steps(frame: Frame, version: int, found: list[TopicUse]) -> Iterator[None]:
    """What a Fetch response brings, per topic, put into `found`; topics without records are left out.

    It halts after each STEP_PARTS topics and partitions.

    Raises:
        BadFrame: it ends too early or a length in it is impossible.
    """
    flexible, left = is_flexible(FETCH, version), STEP_PARTS
    offset, topics = _RESPONSES(frame, version)
    for _ in range(topics):
        topic, offset, partitions = _TOPIC(frame, version, offset)
        records = size = 0
        for _ in range(partitions):
            start, end, offset = _PARTITION(frame, version, offset)
            if end > start:
                size += end - start
                records += count_records(frame, start, end)
            left -= 1
            if not left:
                left = STEP_PARTS
                yield
        offset = skip_tags(frame, offset) if flexible else offset
        if size:
            found.append(TopicUse(topic, records, size))
        left -= 1
        if not left:
            left = STEP_PARTS
            yield


_FETCHING: Final = Reader(FETCH, "request", "Topics(Topic|TopicId) at:MaxBytes MaxBytes SessionEpoch", rows=1)
_TOPICS_AT: Final = asked(FETCH, "at:Topics of:Topics")


def fetching(frame: Frame, header: RequestHeader) -> FetchSummary:
    """What a Fetch request asks for.

    Raises:
        BadFrame: it ends too early or a length in it is impossible.
    """
    version, body, more = header.api_version, header.body_offset, False
    try:
        topics, limit_offset, limit_bytes, epoch = _FETCHING(frame, version, body, FETCH_PARTS_MAX)
    except TooManyRows:
        start, end = _TOPICS_AT(frame, header)
        first = array_length(FETCH_PARTS_MAX, is_flexible(FETCH, version))
        fewer, more = spliced(bytes(frame), [(start, end, first)]), True
        topics, limit_offset, limit_bytes, epoch = _FETCHING(fewer, version, body, FETCH_PARTS_MAX)
    return FetchSummary(topics, limit_offset or None, limit_bytes, epoch, more)


UNKNOWN_SESSION: Final = -1
"""A session that no broker has: theirs are positive."""
session_of: Final = asked(FETCH, "at:SessionId SessionId SessionEpoch")
"""Where the session of a Fetch request stands (0: nowhere), the session and its epoch; raises BadFrame."""


def with_session(frame: bytes, at: int, session: int, epoch: int) -> bytes:
    """A Fetch request in another session."""
    return b"".join((frame[:at], _INT32_PAIR.pack(session, epoch), frame[at + _INT32_PAIR.size :]))


fetch_session: Final = asked(
    FETCH,
    "SessionEpoch Topics(Topic|TopicId Partitions(Partition)) ForgottenTopicsData(Topic|TopicId Partitions)",
    room=STEP_PARTS, rows=1,
)  # fmt: skip
"""What a Fetch request changes in its session: the epoch, topics with partitions that it has, or has no more;
raises BadFrame, TooManyRows where these are very many."""

fetch_told: Final = told(FETCH, "ErrorCode SessionId")
"""The error of a whole Fetch response, and the session that it is of; raises BadFrame."""


def with_limit(frame: bytes, asked: FetchSummary, limit: int) -> bytes:
    """A Fetch request that brings at most so many bytes, and waits for no more than that."""
    at = asked.limit_offset
    assert at is not None
    least = min(_INT32.unpack_from(frame, at - 4)[0], limit)
    most = min(asked.limit_bytes, limit)
    return b"".join((frame[: at - 4], _INT32_PAIR.pack(least, most), frame[at + 4 :]))


class ShareAsked(NamedTuple):
    """What a ShareFetch request asks for, and what it acknowledges.

    Attributes:
        group: the share group; None: the broker refuses it.
        member: its member; a connection may speak for several.
        epoch: in its session: 0 begins one, -1 ends it; else the request only tells what changes.
        wait_at: where MaxWaitMs stands in the frame; MinBytes, MaxBytes and MaxRecords follow.
        wait_ms: how long it waits for the minimum.
        min_bytes: the minimum.
        max_bytes: the most bytes.
        max_records: the most records; the broker may bring the rest of a batch as well.
        topics: ids of topics, with the partitions of each that are new in the session or acknowledged.
        forgotten: the same that leave the session.
        acknowledges: it carries acknowledgements.
    """

    group: str | None
    member: bytes | None
    epoch: int
    wait_at: int
    wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    topics: list[tuple[bytes, list[int]]]
    forgotten: list[tuple[bytes, Sequence[int]]]
    acknowledges: bool

    @property
    def acquires(self) -> bool:
        """Whether it may bring records: one that only renews or acknowledges asks for none."""
        return self.epoch >= 0 and self.max_records != 0 and self.max_bytes != 0

    def kept_ms(self, most_ms: float) -> float:
        """How long it may be kept: as it would wait at the broker; a moment, or its client asked at once."""
        return min(most_ms, max(float(self.wait_ms), _KEPT_MIN_MS))

    @property
    def summary(self) -> FetchSummary:
        """The same as of a Fetch."""
        topics = [topic for topic, _ in self.topics]
        return FetchSummary(topics, self.wait_at + 2 * _INT32.size, self.max_bytes, self.epoch, False)


_SHARING: Final = asked(
    SHARE_FETCH,
    "GroupId:text? MemberId? ShareSessionEpoch at:MaxWaitMs MaxWaitMs MinBytes MaxBytes MaxRecords"
    " Topics(TopicId Partitions(PartitionIndex AcknowledgementBatches:count))"
    " ForgottenTopicsData(TopicId Partitions)",
    room=FETCH_PARTS_MAX, rows=1,
)  # fmt: skip


def sharing(frame: Frame, header: RequestHeader) -> ShareAsked:
    """What a ShareFetch request asks for.

    Raises:
        BadFrame: it ends too early, has too many parts, or a length in it is impossible.
    """
    *front, topics, forgotten = _SHARING(frame, header)
    named = [(topic, [index for index, _ in parts]) for topic, parts in topics]
    acknowledges = any(count > 0 for _, parts in topics for _, count in parts)
    return ShareAsked._make((*front, named, forgotten, acknowledges))


def with_share(
    frame: bytes, asked: ShareAsked, *, records: int, size: int, wait_ms: float = inf
) -> bytes:
    """A ShareFetch request for so many records and bytes at most; without records it is answered at once.

    It waits there for `wait_ms` at most. What it acknowledges is not touched. Without bytes Kafka 4.1 fails.
    """
    waits = int(min(asked.wait_ms, wait_ms)) if records else 0
    room = _FOUR.pack(waits, min(asked.min_bytes, size), size, records)
    return b"".join((frame[: asked.wait_at], room, frame[asked.wait_at + len(room) :]))


share_error: Final = told(SHARE_FETCH, "ErrorCode")
"""The error of a whole ShareFetch response; raises BadFrame."""


class ShareUse(NamedTuple):
    """What a member of a share group got of one topic.

    Attributes:
        topic: its id.
        records: records that it acquired.
        size: bytes of the batches that came with them.
        batches: how many.
        again: those of the records that were delivered before.
    """

    topic: bytes
    records: int
    size: int
    batches: int
    again: int


_SHARED: Final = told(
    SHARE_FETCH,
    "Responses(TopicId Partitions(of:Records end:Records"
    " AcquiredRecords(FirstOffset LastOffset DeliveryCount)))",
    room=FETCH_PARTS_MAX, rows=1,
)  # fmt: skip


def shared(frame: Frame, version: int) -> list[ShareUse]:
    """What a ShareFetch response brings, per topic; topics without records are left out.

    Batches come whole, with records in them that others have acquired; of a range of offsets with gaps no
    more count than the batches hold.

    Raises:
        BadFrame: it ends too early, has too many parts, or a length in it is impossible.
    """
    found = []
    for topic, parts in _SHARED(frame, version):
        records = size = batches = again = 0
        for start, end, acquired in parts:
            held = count_records(frame, start, end)
            own = twice = 0
            for first, last, delivery in acquired:
                own += max(0, last - first + 1)
                twice += max(0, last - first + 1) if delivery > 1 else 0
            records += min(own, held)
            again += min(twice, held)
            size += max(0, end - start)
            batches += count_batches(frame, start, end)
        if size:
            found.append(ShareUse(topic, records, size, batches, again))
    return found
