"""Metadata: requests that create nothing, answers in the form of old versions, partition counts.

Sources: docs/protocol_notes.md 3.3 and 1.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from enforcer.wire.kafka import frames
from enforcer.wire.kafka.codec import asked, request_layout, spliced, told
from enforcer.wire.kafka.frames import CORRELATION_BYTES, METADATA, Fields, RequestHeader

_AUTO_CREATION_FROM: Final = 4  # Metadata version with allow_auto_topic_creation
ASKED_AT_ONCE: Final = 90
"""Topics of one look-up: with a thousand partitions each the answer can still be gone through (ROWS_MAX)."""
RECENT_TOPIC_MS: Final = 5_000
"""So long our own answers are believed about a topic's partitions, not the metadata, which may lag by
seconds."""
BY_ID_FROM: Final = 12  # the first Metadata version that can ask by topic id (Kafka 3.1)
_BY_NAME: Final = _AUTO_CREATION_FROM  # the first that can ask without creating anything: every broker has it

_FLAG: Final = asked(METADATA, "Topics:count end:Topics AllowAutoTopicCreation end")
_NEWER: Final = told(
    METADATA,
    "Brokers(at:Rack end:Rack) at:ClusterId end:ClusterId end:ControllerId"
    " Topics(at:IsInternal end:IsInternal)",
)
"""Fields of version 4 that older ones lack."""
_CLUSTER_ID: Final = told(METADATA, "Brokers:count at:ClusterId end:ClusterId")
_ERRORS: Final = told(METADATA, "Topics(ErrorCode Name:text?)")
_COUNTS: Final = told(METADATA, "Brokers:count Topics(ErrorCode Name:text? TopicId Partitions:count)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCounts:
    """What a lookup said about topics.

    Attributes:
        by_name: partition count per name asked for; None if there is no such topic. Names that the client
            may not describe, or that failed, are missing.
        by_id: the same per topic id.
        names: topic id -> name, of every topic seen.
        broker_count: brokers alive.
    """

    by_name: Mapping[str, int | None]
    by_id: Mapping[bytes, int | None]
    names: Mapping[bytes, str]
    broker_count: int

    def merged(self, other: "TopicCounts") -> "TopicCounts":
        """Both lookups together; where both know a topic, `other` counts."""
        return TopicCounts(
            by_name={**self.by_name, **other.by_name},
            by_id={**self.by_id, **other.by_id},
            names={**self.names, **other.names},
            broker_count=max(self.broker_count, other.broker_count),
        )


NOTHING_KNOWN: Final = TopicCounts(by_name={}, by_id={}, names={}, broker_count=0)


def forbid_auto_creation(frame: bytes, header: RequestHeader) -> tuple[bytes, bool]:
    """A Metadata request that creates no topics, and whether that changed it.

    Versions 0-3 have no flag and always create, so they become version 4: turn the answer back with
    `metadata_answer_as`. (Version 4 differs from 3 by the flag alone.)

    What was not read is not passed on: a byte behind the topics would be read in the flag's place. Brokers
    ignore such bytes, and librdkafka 2.16 sends three of them when it asks for all topics in version 13, so
    they are no reason to refuse the request.

    Raises:
        BadFrame: the request ends too early or a length in it is impossible.
    """
    version = header.api_version
    count, flag, creates, end = _FLAG(frame, header)
    if version < _AUTO_CREATION_FROM:
        # In version 0 an empty list asks for all topics; later versions say that with a null list.
        topics = frames.int32(-1) if version == 0 and count == 0 else frame[header.body_offset : flag]
        head = frame[:2] + frames.int16(_AUTO_CREATION_FROM) + frame[4 : header.body_offset]
        return head + topics + b"\0", True
    if not creates:
        return frame, False
    return frame[:flag] + b"\0" + frame[flag + 1 : end], True


def metadata_answer_as(response: bytes, version: int) -> bytes:
    """A Metadata v4 response in the form of version 0-3; the correlation id stays.

    Raises:
        BadFrame: the response ends too early or a length in it is impossible.
    """
    if version == 3:
        return response
    newer = [(CORRELATION_BYTES, CORRELATION_BYTES + 4)]  # throttle time
    if version == 1:
        # Topics, of which there may be very many, are the same.
        newer.append(_CLUSTER_ID(response, _AUTO_CREATION_FROM)[1:])
    elif version == 0:
        racks, cluster_at, _, controller_end, internals = _NEWER(response, _AUTO_CREATION_FROM)
        newer += [*racks, (cluster_at, controller_end), *internals]
    return spliced(response, [(start, end, b"") for start, end in newer])


_UNKNOWN_TOPIC: Final = 3


def unknown_topics(response: bytes, version: int) -> list[str]:
    """The topics that a Metadata response 0-13 does not know (error 3).

    Raises:
        BadFrame: the response ends too early or a length in it is impossible.
    """
    topics = _ERRORS(response, version)
    return [name for error, name in topics if error == _UNKNOWN_TOPIC and name is not None]


def topics_request(correlation_id: int, client_id: bytes, topics: Sequence[str] | Sequence[bytes]) -> bytes:
    """A Metadata request of our own that creates nothing, for `decode_topics`.

    Of a version that the broker has: whoever names topics by id was offered that by one that knows ids.

    Args:
        correlation_id: number that the response repeats.
        client_id: as the client wrote it, its length included (frames.client_id_field).
        topics: topics to ask for, by name or by id.
    """
    ids = [one for one in topics if isinstance(one, bytes)]
    asked_for: list[Fields] = [{"TopicId": topic_id, "Name": None} for topic_id in ids]
    asked_for += [{"Name": one.encode("utf-8", "replace")} for one in topics if isinstance(one, str)]
    version = BY_ID_FROM if ids else _BY_NAME
    head = frames.int16(METADATA) + frames.int16(version) + frames.int32(correlation_id)
    body = request_layout(METADATA, version).write({"Topics": asked_for, "AllowAutoTopicCreation": False})
    return b"".join((head, client_id, frames.tags(bool(ids)), body))


_NO_SUCH_TOPIC: Final = frozenset({_UNKNOWN_TOPIC, 17, 100})  # the others: invalid name, unknown topic id


def decode_topics(response: bytes, ids: bool) -> TopicCounts:
    """Reads the answer to `topics_request`.

    Args:
        response: the answer.
        ids: it was asked for topic ids.

    Raises:
        BadFrame: the response ends too early or a length in it is impossible.
    """
    brokers, topics = _COUNTS(response, BY_ID_FROM if ids else _BY_NAME)
    by_name: dict[str, int | None] = {}
    by_id: dict[bytes, int | None] = {}
    topic_names: dict[bytes, str] = {}
    for error, name, topic_id, partitions in topics:
        if error not in (0, *_NO_SUCH_TOPIC) and partitions <= 0:
            continue
        count = None if error in _NO_SUCH_TOPIC else max(0, partitions)
        if name is not None:
            by_name[name] = count
        if topic_id != frames.NO_ID:
            by_id[topic_id] = count
            if name is not None:
                topic_names[topic_id] = name
    return TopicCounts(by_name=by_name, by_id=by_id, names=topic_names, broker_count=max(0, brokers))
