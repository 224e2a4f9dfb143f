"""Where groups stand, as their commits and the answers to who asks for them say.

Sources: Kafka's message schemas OffsetCommit 0-10, OffsetFetch 0-10, TxnOffsetCommit 0-5.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from enforcer.kafka.groups.frames import (
    GROUPS_FROM,
    LAST_VERSION,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    THROTTLE_FROM,
    TXN_OFFSET_COMMIT,
)
from enforcer.wire.kafka.fields import Cursor
from enforcer.wire.kafka.frames import RequestHeader, is_flexible, response_body_offset
from enforcer.wire.kafka.traffic import TOPIC_ID_BYTES

_IDS_FROM: Final = 10
_ROOM: Final = 4
"""Rows that a partition counts for in Cursor's bound."""


class Place(NamedTuple):
    """Where a group stands in a partition.

    Attributes:
        group: which group.
        topic: name or id.
        number: of the partition.
        offset: of the next record; -1 where it has never committed.
    """

    group: str
    topic: str | bytes
    number: int
    offset: int


def places(frame: bytes, header: RequestHeader, response: bytes) -> list[Place]:
    """What a request about offsets and its answer say together; nothing of what the broker refused.

    Raises:
        BadFrame: one of them cannot be read.
    """
    key, version = header.api_key, header.api_version
    if key not in _READ or version > LAST_VERSION[key]:
        return []
    flexible = is_flexible(key, version)
    asked = Cursor(frame, header.body_offset, flexible)
    answer = Cursor(response, response_body_offset(key, version, response), flexible)
    answer.skip(4 if version >= THROTTLE_FROM[key] else 0)
    return list(_READ[key](asked, answer, version))


def _committed(asked: Cursor, answer: Cursor, version: int) -> Iterator[Place]:
    group = asked.string()
    if version >= 1:
        asked.skip(4)  # generation
        asked.skip_string()  # member
    if version >= 7:
        asked.skip_string()  # name of a static member
    if 2 <= version <= 4:
        asked.skip(8)  # retention
    behind = 8 if version == 1 else 4 if version >= 6 else 0  # time, or leader's epoch
    return _taken(group, asked, answer, ids=version >= _IDS_FROM, behind=behind)


def _committed_with_transaction(asked: Cursor, answer: Cursor, version: int) -> Iterator[Place]:
    asked.skip_string()  # transactional id
    group = asked.string()
    asked.skip(10)  # producer's id and epoch
    if version >= 3:
        asked.skip(4)  # generation
        asked.skip_string()  # member
        asked.skip_string()  # name of a static member
    return _taken(group, asked, answer, ids=False, behind=4 if version >= 2 else 0)


def _taken(group: str, asked: Cursor, answer: Cursor, *, ids: bool, behind: int) -> Iterator[Place]:
    """The offsets of a commit that the broker has taken."""
    taken = {(topic, number) for topic, number, error in _errors(answer, ids) if not error}
    for _ in asked.elements(_ROOM):
        topic = _topic(asked, ids)
        for _ in asked.elements(_ROOM):
            number, offset = asked.int32(), asked.int64()
            asked.skip(behind)
            asked.skip_string()  # metadata
            asked.skip_tags()
            if (topic, number) in taken:
                yield Place(group, topic, number, offset)
        asked.skip_tags()


def _errors(answer: Cursor, ids: bool) -> Iterator[tuple[str | bytes, int, int]]:
    for _ in answer.elements(_ROOM):
        topic = _topic(answer, ids)
        for _ in answer.elements(_ROOM):
            yield topic, answer.int32(), answer.int16()
            answer.skip_tags()
        answer.skip_tags()


def _told(asked: Cursor, answer: Cursor, version: int) -> Iterator[Place]:
    if version < GROUPS_FROM:
        yield from _of_group(asked.string(), answer, version)
        return
    for _ in answer.elements():
        group = answer.string()
        yield from _of_group(group, answer, version)
        answer.skip(2)  # error
        answer.skip_tags()


def _of_group(group: str, answer: Cursor, version: int) -> Iterator[Place]:
    ids = version >= _IDS_FROM
    for _ in answer.elements(_ROOM):
        topic = _topic(answer, ids)
        for _ in answer.elements(_ROOM):
            number, offset = answer.int32(), answer.int64()
            answer.skip(4 if version >= 5 else 0)  # leader's epoch
            answer.skip_string()  # metadata
            if not answer.int16() and offset >= 0:
                yield Place(group, topic, number, offset)
            answer.skip_tags()
        answer.skip_tags()


def _topic(cursor: Cursor, ids: bool) -> str | bytes:
    return cursor.raw(TOPIC_ID_BYTES) if ids else cursor.string()


_READ: Final = {
    OFFSET_COMMIT: _committed,
    OFFSET_FETCH: _told,
    TXN_OFFSET_COMMIT: _committed_with_transaction,
}
