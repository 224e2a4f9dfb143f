"""Responses to the three admin APIs: read them, add what was rejected, make whole answers.

As with requests, what the broker said is copied byte for byte and only added to.
Source: docs/protocol_notes.md 1.2.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from enforcer.wire.kafka import fields
from enforcer.wire.kafka.fields import STRING, Cursor
from enforcer.wire.kafka.frames import is_flexible, response_body_offset
from enforcer.wire.kafka.mutations import STRICT_FROM, MutationApi, MutationItem, MutationRequest
from enforcer.wire.kafka.throttle import patch_throttle

THROTTLING_QUOTA_EXCEEDED: Final = 89  # Kafka's error code
POLICY_VIOLATION: Final = 44  # Kafka's, as its controller gives for a request with too many partitions
REQUEST_TIMED_OUT: Final = 7  # Kafka's; clients try again within their delivery timeout
_THROTTLE_BYTES: Final = 4
_ROOM: Final = 1_000_000
# A message may name the client, which may have a name of 32 kB; older versions hold no more than that.
_MESSAGE_MAX: Final = 2_000


class AnsweredItem(NamedTuple):
    """What the broker said about one topic. A tuple, not a dataclass: a response may have thousands.

    Attributes:
        name: None when a deletion by id failed.
        topic_id: 16 bytes; None where the version has none or the broker gave none.
        error_code: 0 when it was done.
        num_partitions: of a topic created (CreateTopics v5+), else None.
        start: offset of the item's first byte in the frame.
        message_start: offset of the error message, None where the version has none.
        message_end: offset after the error message.
        message_is_null: the broker gave no message, or the version has none.
        end: offset after the item's last byte.
    """

    name: str | None
    topic_id: bytes | None
    error_code: int
    num_partitions: int | None
    start: int
    message_start: int | None
    message_end: int
    message_is_null: bool
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response to one of the three APIs.

    Attributes:
        items: what was said about each topic, in the broker's order.
        throttle_ms: throttle_time_ms of the response.
        list_start: offset of the length of the list.
        list_end: offset after the list.
    """

    items: tuple[AnsweredItem, ...]
    throttle_ms: int
    list_start: int
    list_end: int


def decode_answer(api: MutationApi, version: int, response: bytes) -> Answer:
    """Reads a response to CreateTopics 2-7, DeleteTopics 1-6 or CreatePartitions 0-3.

    Raises:
        BadFrame: the response ends too early or a length in it is impossible.
    """
    cursor = Cursor(response, response_body_offset(api, version, response), is_flexible(api, version))
    # As many as were asked for, and a broker tells some 35 configurations of each topic that it created.
    cursor.room = _ROOM
    throttle_ms = cursor.int32()
    list_start = cursor.offset
    items = tuple([_read_item(api, version, cursor) for _ in cursor.elements()])
    list_end = cursor.offset
    cursor.skip_tags()
    return Answer(items=items, throttle_ms=throttle_ms, list_start=list_start, list_end=list_end)


def _has_message(api: MutationApi, version: int) -> bool:
    return api is not MutationApi.DELETE_TOPICS or version >= 5


def _has_id(api: MutationApi, version: int) -> bool:
    first = {MutationApi.CREATE_TOPICS: 7, MutationApi.DELETE_TOPICS: 6}.get(api)
    return first is not None and version >= first


def _read_item(api: MutationApi, version: int, cursor: Cursor) -> AnsweredItem:
    start = cursor.offset
    name = cursor.nullable_string()
    topic_id = cursor.raw(len(fields.NO_ID)) if _has_id(api, version) else None
    error_code = cursor.int16()
    message_start = cursor.offset if _has_message(api, version) else None
    message_bytes = -1 if message_start is None else cursor.string_length()
    message_is_null = message_bytes < 0
    cursor.skip(max(0, message_bytes))
    message_end = cursor.offset
    num_partitions = None
    if api is MutationApi.CREATE_TOPICS and version >= 5:
        num_partitions = cursor.int32()
        cursor.skip(2)  # replication factor
        # Configurations: key, value; read only, source, sensitive.
        cursor.skip_rows(parts=(STRING, STRING), after=3)
    cursor.skip_tags()
    return AnsweredItem(
        name=name, topic_id=None if topic_id == fields.NO_ID else topic_id, error_code=error_code,
        num_partitions=num_partitions, start=start, message_start=message_start, message_end=message_end,
        message_is_null=message_is_null, end=cursor.offset,
    )  # fmt: skip


def _encode_rejected(
    request: MutationRequest, items: Iterable[MutationItem], error_code: int, message: str
) -> list[bytes]:
    api, version, flexible = request.api, request.version, request.flexible
    parts = [fields.int16(error_code)]
    if _has_message(api, version):
        parts.append(fields.string(message[:_MESSAGE_MAX], flexible))
    if api is MutationApi.CREATE_TOPICS and version >= 5:
        # As Kafka fills them for a topic that it rejects: no partitions, no replication, no configurations.
        parts += [fields.int32(-1), fields.int16(-1), fields.array_length(0, flexible)]
    parts.append(fields.tags(flexible))
    end, has_id = b"".join(parts), _has_id(api, version)
    return [
        fields.raw_string(request.frame, item.start, flexible)
        + ((item.topic_id or fields.NO_ID) if has_id else b"")
        + end
        for item in items
    ]


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
        added = _encode_rejected(request, refused, error_code, message)
        # Before what the broker said, so that its list need not be gone through; clients go by the names.
        start = response_body_offset(request.api, request.version, response) + _THROTTLE_BYTES
        cursor = Cursor(response, start, request.flexible)
        count = fields.array_length(max(0, cursor.array_length()) + len(added), request.flexible)
        response = b"".join((response[:start], count, *added, response[cursor.offset :]))
    return patch_throttle(request.api, request.version, response, throttle_ms)


def refuse_all(
    request: MutationRequest,
    throttle_ms: int,
    message: str,
    error_code: int = THROTTLING_QUOTA_EXCEEDED,
) -> bytes:
    """A whole answer that rejects every item, without asking the broker."""
    tags = fields.tags(request.flexible)
    head = fields.int32(request.correlation_id) + tags + fields.int32(0)
    empty = head + fields.array_length(0, request.flexible) + tags
    return merge(empty, request, range(len(request.items)), message, throttle_ms, error_code)


def explain_throttle(api: MutationApi, version: int, response: bytes, message: str) -> bytes:
    """The response with `message` on every topic that was done, so that old clients learn of the throttle.

    Only permissive versions that have the field are changed: CreateTopics 2-5 and CreatePartitions 0-2
    (KIP-599's draft). A message that the broker gave stays.

    Raises:
        BadFrame: the response ends too early or a length in it is impossible.
    """
    if version >= STRICT_FROM[api] or not _has_message(api, version):
        return response
    text = fields.string(message[:_MESSAGE_MAX], is_flexible(api, version))
    parts: list[bytes] = []
    copied = 0
    for item in decode_answer(api, version, response).items:
        if item.error_code == 0 and item.message_is_null and item.message_start is not None:
            parts += (response[copied : item.message_start], text)
            copied = item.message_end
    return b"".join((*parts, response[copied:]))
