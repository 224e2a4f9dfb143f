"""Produce requests of which some partitions are blocked: taken apart, answered, put together again.

Kafka's errors of an answer are per partition, so what is free of a request goes on as a request of its own,
and the broker's answer gets the errors of the rest (docs/protocol_notes.md 3.8).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from enforcer.wire.kafka import codec
from enforcer.wire.kafka.codec import ASKED_MAX, asked, request_layout, rewritten
from enforcer.wire.kafka.frames import PRODUCE, Fields, RequestHeader
from enforcer.wire.kafka.traffic import PRODUCE_IDS_FROM

Place = tuple[bytes, int]
"""A partition: its topic's name, or id from version 13 on, and its number."""
PartitionRefusal = tuple[int, str]
"""What is said of one partition: Kafka's error, and a message for whoever reads the client's log."""
_ASKED: Final = asked(PRODUCE, "Acks TimeoutMs TopicData(Name|TopicId? PartitionData(Index))")
_NOWHERE: Final = {"BaseOffset": -1}


class ProduceTopics(NamedTuple):
    """What a Produce request asks for.

    Attributes:
        acks: 0: there is no answer.
        timeout_ms: how long the client lets the broker take.
        places: where its records are to go.
    """

    acks: int
    timeout_ms: int
    places: list[Place]


def asked_in(frame: bytes, header: RequestHeader) -> ProduceTopics:
    """Read a Produce request; records are stepped over.

    Raises:
        BadFrame: it ends too early or a length in it is impossible.
    """
    acks, timeout_ms, topics = _ASKED(frame, header)
    return ProduceTopics(acks, timeout_ms, [(topic, number) for topic, parts in topics for number in parts])


def without(frame: bytes, header: RequestHeader, taken: Collection[Place]) -> bytes:
    """The request without some of its partitions; at least one is left.

    Raises:
        BadFrame: it cannot be read, or has too many partitions to be taken apart.
    """
    layout = request_layout(PRODUCE, header.api_version)
    body = layout.read(frame, header.body_offset, ASKED_MAX)
    name = _name_of(header)
    topics = []
    for topic in body["TopicData"]:
        parts = [part for part in topic["PartitionData"] if (topic[name], part["Index"]) not in taken]
        if parts:
            topics.append({**topic, "PartitionData": parts})
    return frame[: header.body_offset] + layout.write({**body, "TopicData": topics})


def answer(header: RequestHeader, refused: Mapping[Place, PartitionRefusal]) -> bytes:
    """The answer to a request of which nothing is left."""
    return codec.answer(header, _with(header, {}, refused))


def merged(header: RequestHeader, refused: Mapping[Place, PartitionRefusal], response: bytes) -> bytes:
    """The broker's answer to what was left of a request, with what was refused.

    Raises:
        BadFrame: the answer cannot be read.
    """
    return rewritten(
        PRODUCE, header.api_version, response, lambda body: body.update(_with(header, body, refused))
    )


def _with(header: RequestHeader, body: Fields, refused: Mapping[Place, PartitionRefusal]) -> Fields:
    name = _name_of(header)
    topics: Sequence[Fields] = body.get("Responses") or ()
    said: dict[bytes, Fields] = {
        topic[name]: {**topic, "PartitionResponses": list(topic["PartitionResponses"])} for topic in topics
    }
    for (topic, number), (code, message) in refused.items():
        parts: list[dict[str, Any]] = said.setdefault(topic, {name: topic, "PartitionResponses": []})[
            "PartitionResponses"
        ]
        verdict = {"Index": number, "ErrorCode": code, "ErrorMessage": message.encode()}
        parts.append({**verdict, **_NOWHERE})
    return {**body, "Responses": list(said.values())}


def _name_of(header: RequestHeader) -> str:
    return "TopicId" if header.api_version >= PRODUCE_IDS_FROM else "Name"
