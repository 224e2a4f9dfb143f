"""Where groups stand, as their commits and the answers to who asks for them say.

Sources: Kafka's message schemas OffsetCommit 0-10, OffsetFetch 0-10, TxnOffsetCommit 0-5.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from enforcer.kafka.groups.frames import LAST_VERSION, OFFSET_COMMIT, OFFSET_FETCH, TXN_OFFSET_COMMIT
from enforcer.wire.kafka.codec import asked, told
from enforcer.wire.kafka.frames import RequestHeader

_ROWS: Final = 4
_TOPIC: Final = "Name|TopicId:text"
_COMMITS: Final = (OFFSET_COMMIT, TXN_OFFSET_COMMIT)
_COMMITTED: Final[Mapping[int, Callable[..., Any]]] = {
    key: asked(key, f"GroupId:text Topics({_TOPIC} Partitions(PartitionIndex CommittedOffset))", rows=_ROWS)
    for key in _COMMITS
}
_TAKEN: Final[Mapping[int, Callable[..., Any]]] = {
    key: told(key, f"Topics({_TOPIC} Partitions(PartitionIndex ErrorCode))", rows=_ROWS) for key in _COMMITS
}
_GROUP: Final = asked(OFFSET_FETCH, "GroupId:text")
_STANDS: Final = f"Topics({_TOPIC} Partitions(PartitionIndex CommittedOffset ErrorCode))"
_TOLD: Final = told(OFFSET_FETCH, f"{_STANDS} Groups(GroupId:text {_STANDS})", rows=_ROWS)


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
    if version > LAST_VERSION[key]:
        return []
    if key == OFFSET_FETCH:
        topics, groups = _TOLD(response, version)
        return [
            Place(group, topic, number, offset)
            for group, topics in [*groups, *([(_GROUP(frame, header), topics)] if topics else ())]
            for topic, parts in topics
            for number, offset, error in parts
            if not error and offset >= 0
        ]
    if key not in _COMMITS:
        return []
    group, topics = _COMMITTED[key](frame, header)
    taken = {
        (topic, number)
        for topic, parts in _TAKEN[key](response, version)
        for number, error in parts
        if not error
    }
    return [
        Place(group, topic, number, offset)
        for topic, parts in topics
        for number, offset in parts
        if (topic, number) in taken
    ]
