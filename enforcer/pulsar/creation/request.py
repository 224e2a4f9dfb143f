"""Which topics the requests of clients would create, and how such a request is refused."""

from contextlib import suppress
from typing import Any, Final, NamedTuple

from enforcer.wire.pulsar.commands import command, error, parse
from enforcer.wire.pulsar.frames import (
    ACTIVE_CONSUMER_CHANGE,
    CLOSE_CONSUMER,
    CLOSE_PRODUCER,
    PARTITIONED_METADATA,
    PARTITIONED_METADATA_RESPONSE,
    PRODUCER,
    REACHED_END_OF_TOPIC,
    SUBSCRIBE,
    TOPIC_MIGRATED,
)
from enforcer.wire.pulsar.names import BadName, Topic, read_topic

ASKING: Final = frozenset({PRODUCER, SUBSCRIBE, PARTITIONED_METADATA})
"""Kinds of requests that may create a topic."""
CLOSING: Final = frozenset({CLOSE_PRODUCER, CLOSE_CONSUMER})
NAMING: Final = CLOSING | {ACTIVE_CONSUMER_CHANGE, REACHED_END_OF_TOPIC, TOPIC_MIGRATED}
"""What brokers say unasked of a producer or consumer, before its client has used it."""
APIS: Final = {
    PRODUCER: "PRODUCER",
    SUBSCRIBE: "SUBSCRIBE",
    PARTITIONED_METADATA: "PARTITIONED_METADATA",
}
"""What events call them: by the names that Pulsar's protocol has for its commands."""
_FAILED: Final = 1


class CreationRequest(NamedTuple):
    """A request that creates a topic which is not there.

    Attributes:
        kind: of its frame.
        frame: as it came.
        body: of its command.
        request_id: of the client's.
        owner: of a PRODUCER or SUBSCRIBE: the producer's or consumer's id, and by which kind it is closed.
        name: of the topic: the same for all ways to write it, as far as we know them.
        topic: what the name means; None: to us, nothing.
    """

    kind: int
    frame: bytes
    body: Any
    request_id: int
    owner: tuple[int, int] | None
    name: str
    topic: Topic | None


def read_want(kind: int, frame: bytes) -> CreationRequest | None:
    """What a request would create; None if it creates nothing, whatever is there.

    Topics that are not stored are nothing but a name, so only a question for their partitions, which are
    stored, counts.

    Raises:
        BadFrame: it cannot be read.
    """
    body = parse(frame)
    owner = None
    if kind == PARTITIONED_METADATA:
        # Without the field it creates: clients that do not know of it mean that.
        creates = not body.HasField("metadata_auto_creation_enabled") or body.metadata_auto_creation_enabled
    elif kind == SUBSCRIBE:
        owner = CLOSE_CONSUMER, body.consumer_id
        creates = not body.HasField("force_topic_creation") or body.force_topic_creation
    else:
        owner = CLOSE_PRODUCER, body.producer_id
        creates = True
    if not creates:
        return None
    topic: Topic | None = None
    # A broker may know more names than we do, and is asked about those as they are.
    with suppress(BadName):
        topic = read_topic(body.topic)
    if topic is not None and not topic.persistent and kind != PARTITIONED_METADATA:
        return None
    name = body.topic if topic is None else topic.name
    return CreationRequest(kind, frame, body, body.request_id, owner, name, topic)


def named(kind: int, body: Any) -> tuple[int, int]:
    """The owner, as of a want, that a frame of NAMING names."""
    if kind == TOPIC_MIGRATED:
        return (CLOSE_CONSUMER if body.resource_type else CLOSE_PRODUCER), body.resource_id
    return (kind, body.producer_id) if kind == CLOSE_PRODUCER else (CLOSE_CONSUMER, body.consumer_id)


def refusal(want: CreationRequest, code: int, message: str) -> bytes:
    """The answer that refuses a request."""
    if want.kind == PARTITIONED_METADATA:
        fields = {"response": _FAILED, "error": code, "message": message}
        return command(PARTITIONED_METADATA_RESPONSE, request_id=want.request_id, **fields)
    return error(want.request_id, code, message)
