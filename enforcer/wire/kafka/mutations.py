"""Requests that create, grow or delete topics, and their responses.

A request is read and cut down: items that go on are copied byte for byte, tagged fields included. What was
rejected is added to what the broker said, or makes a whole answer.
Source: docs/protocol_notes.md 1.2 (versions).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from enforcer.wire.kafka import frames
from enforcer.wire.kafka.codec import Reader, answer, layout, patch_throttle, spliced, told
from enforcer.wire.kafka.frames import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    TOPIC_NAME_MAX,
    BadFrame,
    Fields,
    Reason,
    RequestHeader,
    TooManyRows,
    is_flexible,
)

# From this version a client is told error 89 per topic; before it, everything is done and then throttled.
STRICT_FROM: Final[Mapping[int, int]] = MappingProxyType(
    {CREATE_TOPICS: 6, DELETE_TOPICS: 5, CREATE_PARTITIONS: 3}
)
MUTATION_KEYS: Final = frozenset(STRICT_FROM)


class MutationItem(NamedTuple):
    """One topic of a request.

    Attributes:
        position: index in the request, from 0.
        start: offset of its first byte in the frame.
        end: offset after its last byte.
        raw_name: as it came, since what is not UTF-8 would not survive decoding; None: it is named by id.
        partitions: create: num_partitions as sent (-1: the cluster's default, or see assignments); grow: the
            total asked for; delete: -1.
        assignments: create and grow: number of manual assignments, -1 if there is no list of them; else 0.
        replication_factor: create: as sent, else -1.
        topic_id: 16 bytes, None when the topic is named by name.
    """

    position: int
    start: int
    end: int
    raw_name: bytes | None
    partitions: int = -1
    assignments: int = 0
    replication_factor: int = -1
    topic_id: bytes | None = None

    @property
    def name(self) -> str | None:
        """The name; None when the topic is named by id."""
        return None if self.raw_name is None else str(self.raw_name, "utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationRequest:
    """A CreateTopics, DeleteTopics or CreatePartitions request.

    Attributes:
        api: which.
        version: its version.
        correlation_id: number that the response must repeat.
        validate_only: a dry run; always False for DeleteTopics, which has none.
        items: the topics, in request order.
        frame: the whole request.
        list_start: offset of the length of the topic list.
        list_end: offset after the list.
    """

    api: int
    version: int
    correlation_id: int
    validate_only: bool
    items: tuple[MutationItem, ...]
    frame: bytes
    list_start: int
    list_end: int

    @property
    def strict(self) -> bool:
        """Whether the client understands error 89."""
        return self.version >= STRICT_FROM[self.api]

    @property
    def flexible(self) -> bool:
        """Whether the version has compact fields and tagged sections."""
        return is_flexible(self.api, self.version)


DETAILS_PER_ITEM: Final = 10
"""Manual assignments and configurations of a request, for each of the topics that it may have."""


class TooManyItems(Exception):
    """A request has more topics, or details of topics, than are gone through.

    Attributes:
        request: what was read of it, to be answered and not to be forwarded.
    """

    def __init__(self, request: MutationRequest) -> None:
        super().__init__()
        self.request = request


_TOPICS: Final = "Topics|TopicNames"
_ITEMS: Final = {
    CREATE_TOPICS: "Topics(at end Name NumPartitions Assignments:count ReplicationFactor)",
    DELETE_TOPICS: "Topics(at end Name TopicId) TopicNames(at end:Text Text)",
    CREATE_PARTITIONS: "Topics(at end Name Count Assignments:count)",
}
_COUNTS: Final = {api: Reader(api, "request", f"of:{_TOPICS} {_TOPICS}:count") for api in STRICT_FROM}
# Topics are counted beforehand, so that their details alone take of the room.
_LISTS: Final = {api: Reader(api, "request", f"end:{_TOPICS} {_ITEMS[api]}", rows=0) for api in STRICT_FROM}
_REQUESTS: Final = {
    api: Reader(api, "request", f"end end:{_TOPICS} {dry_run} {_ITEMS[api]}", rows=0)
    for api, dry_run in zip(STRICT_FROM, ("validateOnly", "", "ValidateOnly"), strict=True)
}


def decode_request(frame: bytes, header: RequestHeader, items_max: int = frames.ROWS_MAX) -> MutationRequest:
    """Reads CreateTopics 2-7, DeleteTopics 1-6 or CreatePartitions 0-3.

    Args:
        frame: the request.
        header: its header.
        items_max: topics that it may have, and DETAILS_PER_ITEM as many assignments and configurations.

    Raises:
        BadFrame: the request ends too early, has bytes left over, or a length in it is impossible.
        TooManyItems: it has more of them.
    """
    api, version, start = header.api_key, header.api_version, header.body_offset
    first, count = _COUNTS[api](frame, version, start)
    room = items_max * DETAILS_PER_ITEM
    try:
        if count > items_max:
            raise TooManyRows
        end, list_end, *rest = _REQUESTS[api](frame, version, start, room)
    except TooManyRows as many:
        raise TooManyItems(_in_bounds(frame, header, first, min(count, items_max), room)) from many
    validate_only = api != DELETE_TOPICS and rest.pop(0)
    if end != len(frame):
        raise BadFrame(Reason.BAD_VALUE)
    return MutationRequest(
        api=api, version=version, correlation_id=header.correlation_id, validate_only=validate_only,
        items=_items(api, rest), frame=frame, list_start=start, list_end=list_end,
    )  # fmt: skip


def _in_bounds(frame: bytes, header: RequestHeader, first: int, count: int, room: int) -> MutationRequest:
    """The first topics of a request that has too many: `count` of them, or less if their details are."""
    api, version, start = header.api_key, header.api_version, header.body_offset
    while True:
        shorter = spliced(frame, [(start, first, frames.array_length(count, is_flexible(api, version)))])
        try:
            _, *lists = _LISTS[api](shorter, version, start, room)
        except TooManyRows:
            count //= 2
            continue
        return MutationRequest(
            api=api, version=version, correlation_id=header.correlation_id, validate_only=False,
            items=_items(api, lists), frame=shorter, list_start=0, list_end=0,
        )  # fmt: skip


def _items(api: int, lists: Iterable[Iterable[tuple[Any, ...]]]) -> tuple[MutationItem, ...]:
    make = _deletion if api == DELETE_TOPICS else MutationItem
    return tuple(make(position, *row) for position, row in enumerate(chain(*lists)))


def _deletion(
    position: int, start: int, end: int, name: bytes | None, topic_id: bytes = frames.NO_ID
) -> MutationItem:
    return MutationItem(position, start, end, name, topic_id=None if topic_id == frames.NO_ID else topic_id)


def without(request: MutationRequest, gone: Collection[int]) -> bytes:
    """The request's frame without the items at these positions, which should be found at once."""
    kept = [request.frame[item.start : item.end] for item in request.items if item.position not in gone]
    if len(kept) == len(request.items):
        return request.frame
    count = frames.array_length(len(kept), request.flexible)
    head, tail = request.frame[: request.list_start], request.frame[request.list_end :]
    return b"".join((head, count, *kept, tail))


THROTTLING_QUOTA_EXCEEDED: Final = 89  # Kafka's error code
POLICY_VIOLATION: Final = 44  # Kafka's, as its controller gives for a request with too many partitions
REQUEST_TIMED_OUT: Final = 7  # Kafka's; clients try again within their delivery timeout
ANSWER_ROOM: Final = 1_000_000
"""As many as were asked for, and a broker tells some 35 configurations of each topic that it created."""
# A message may name the client, which may have a name of 32 kB; older versions hold no more than that.
_MESSAGE_MAX: Final = 2_000
_SAID: Final = {
    CREATE_TOPICS: "Topics",
    DELETE_TOPICS: "Responses",
    CREATE_PARTITIONS: "Results",
}


class AnsweredItem(NamedTuple):
    """What the broker said about one topic. A tuple, not a dataclass: a response may have thousands.

    Attributes:
        name: None when a deletion by id failed.
        error_code: 0 when it was done.
        topic_id: all zero where the version has none or the broker gave none.
        num_partitions: of a topic created (CreateTopics v5+), else -1.
    """

    name: str | None
    error_code: int
    topic_id: bytes = frames.NO_ID
    num_partitions: int = -1


_OUTCOME: Final = {
    CREATE_TOPICS: "Name:text? ErrorCode TopicId NumPartitions",
    DELETE_TOPICS: "Name:text? ErrorCode TopicId",
    CREATE_PARTITIONS: "Name:text? ErrorCode",
}
_OUTCOMES: Final = {
    api: told(api, f"{field}({_OUTCOME[api]}) end", room=ANSWER_ROOM) for api, field in _SAID.items()
}
_ANSWERED: Final = {api: told(api, f"at:{field} of:{field} {field}:count") for api, field in _SAID.items()}
_MESSAGES: Final = {
    api: told(
        api, f"{_SAID[api]}(ErrorCode at:ErrorMessage ErrorMessage end:ErrorMessage) end", room=ANSWER_ROOM
    )
    for api in (CREATE_TOPICS, CREATE_PARTITIONS)
}


def decode_answer(api: int, version: int, response: bytes) -> list[AnsweredItem]:
    """What a response to CreateTopics 2-7, DeleteTopics 1-6 or CreatePartitions 0-3 says of each topic.

    Raises:
        BadFrame: the response ends too early or a length in it is impossible.
    """
    return [AnsweredItem(*item) for item in _OUTCOMES[api](response, version)[0]]


def merge(
    response: bytes,
    request: MutationRequest,
    rejected: Collection[int],
    message: str,
    throttle_ms: int,
    error_code: int = THROTTLING_QUOTA_EXCEEDED,
) -> bytes:
    """The broker's response to the admitted items, with the rejected ones added.

    Args:
        response: what the broker answered, copied as it is.
        request: the request as the client sent it.
        rejected: positions in the request.
        message: error message, in the versions that have one.
        throttle_ms: throttle_time_ms is raised to this if it is less.
        error_code: of the rejected items.

    Raises:
        BadFrame: the response ends too early or a length in it is impossible.
    """
    refused = [item for item in request.items if item.position in rejected]
    if refused:
        write = layout(request.api, request.version, f"response.{_SAID[request.api]}()").write
        # As Kafka fills them for a topic that it rejects: no partitions, no replication, no configurations.
        said: Fields = {
            "ErrorCode": error_code, "ErrorMessage": message[:_MESSAGE_MAX].encode("utf-8", "replace"),
            "NumPartitions": -1, "ReplicationFactor": -1, "Configs": (),
        }  # fmt: skip
        named = ({"Name": item.raw_name, "TopicId": item.topic_id or frames.NO_ID} for item in refused)
        added = [write(said | name) for name in named]
        # Before what the broker said, so that its list need not be gone through; clients go by the names.
        start, first, count = _ANSWERED[request.api](response, request.version)
        whole = frames.array_length(max(0, count) + len(added), request.flexible)
        response = b"".join((response[:start], whole, *added, response[first:]))
    return patch_throttle(request.api, request.version, response, throttle_ms)


def refuse_all(
    request: MutationRequest,
    throttle_ms: int,
    message: str,
    error_code: int = THROTTLING_QUOTA_EXCEEDED,
) -> bytes:
    """A whole answer that rejects every item, without asking the broker."""
    header = RequestHeader(request.api, request.version, request.correlation_id, None, 0)
    empty = answer(header, {_SAID[request.api]: ()})
    return merge(empty, request, range(len(request.items)), message, throttle_ms, error_code)


def explain_throttle(api: int, version: int, response: bytes, message: str) -> bytes:
    """The response with `message` on every topic that was done, so that old clients learn of the throttle.

    Only permissive versions that have the field are changed: CreateTopics 2-5 and CreatePartitions 0-2
    (KIP-599's draft). A message that the broker gave stays.

    Raises:
        BadFrame: the response ends too early or a length in it is impossible.
    """
    if version >= STRICT_FROM[api] or api not in _MESSAGES:
        return response
    text = frames.string(message[:_MESSAGE_MAX], is_flexible(api, version))
    spans = [
        (start, end, text)
        for error_code, start, given, end in _MESSAGES[api](response, version)[0]
        if error_code == 0 and given is None
    ]
    return spliced(response, spans)


_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def is_legal_name(name: str) -> bool:
    """Whether Kafka accepts this as the name of a new topic."""
    return name not in (".", "..") and len(name) <= TOPIC_NAME_MAX and _LEGAL_NAME.fullmatch(name) is not None


def topics_of(topology: Fields) -> set[bytes]:
    """The names of all topics that the topology of a StreamsGroupHeartbeat reads, writes or needs."""
    names: set[bytes] = set()
    for part in topology["Subtopologies"]:
        names.update(part["SourceTopics"], part["RepartitionSinkTopics"])
        for field in ("StateChangelogTopics", "RepartitionSourceTopics"):
            names.update(topic["Name"] for topic in part[field])
    return names
