"""Produce requests of which some partitions are blocked: taken apart, answered, put together again.

Kafka's errors of an answer are per partition, so what is free of a request goes on as a request of its own,
and the broker's answer gets the errors of the rest (docs/protocol_notes.md 3.8).
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from enforcer.wire.kafka import codec
from enforcer.wire.kafka.codec import asked, layout, spliced, told
from enforcer.wire.kafka.frames import PRODUCE, Fields, RequestHeader, array_length, is_flexible
from enforcer.wire.kafka.traffic import PRODUCE_IDS_FROM

Place = tuple[bytes, int]
"""A partition: its topic's name, or id from version 13 on, and its number."""
PartitionRefusal = tuple[int, str]
"""What is said of one partition: Kafka's error, and a message for whoever reads the client's log."""
_ASKED: Final = asked(PRODUCE, "Acks TimeoutMs TopicData(Name|TopicId? PartitionData(Index))")
_PLACES: Final = asked(
    PRODUCE, "at:TopicData of:TopicData TopicData("
    "at Name|TopicId? at:PartitionData of:PartitionData PartitionData(at Index end) end)", rows=1,
)  # fmt: skip
# To its end, that none which is damaged goes on.
_ANSWERED: Final = told(
    PRODUCE, "at:Responses of:Responses Responses(Name|TopicId? at:PartitionResponses"
    " of:PartitionResponses PartitionResponses:count end:PartitionResponses) end:Responses end", rows=1,
)  # fmt: skip


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
        BadFrame: it cannot be read.
    """
    flexible = is_flexible(PRODUCE, header.api_version)
    at, of, topics = _PLACES(frame, header)
    spans: list[tuple[int, int, bytes]] = []
    left = 0
    for start, topic, parts_at, parts_of, parts, end in topics:
        gone = [(begins, ends, b"") for begins, number, ends in parts if (topic, number) in taken]
        if len(gone) == len(parts):
            spans.append((start, end, b""))
            continue
        left += 1
        if gone:
            spans += [(parts_at, parts_of, array_length(len(parts) - len(gone), flexible)), *gone]
    return spliced(frame, [(at, of, array_length(left, flexible)), *spans])


def answer(header: RequestHeader, refused: Mapping[Place, PartitionRefusal]) -> bytes:
    """The answer to a request of which nothing is left."""
    return merged(header, refused, codec.answer(header, {}))


def merged(header: RequestHeader, refused: Mapping[Place, PartitionRefusal], response: bytes) -> bytes:
    """The broker's answer to what was left of a request, with what was refused.

    Raises:
        BadFrame: the answer cannot be read.
    """
    version = header.api_version
    flexible = is_flexible(PRODUCE, version)
    more: dict[bytes, list[Fields]] = {}
    for (topic, number), (code, message) in refused.items():
        verdict = {"Index": number, "ErrorCode": code, "ErrorMessage": message.encode(), "BaseOffset": -1}
        more.setdefault(topic, []).append(verdict)
    at, of, topics, end, _ = _ANSWERED(response, version)
    spans: list[tuple[int, int, bytes]] = []
    write = layout(PRODUCE, version, "response.Responses().PartitionResponses()").write
    for topic, parts_at, parts_of, count, parts_end in topics:
        if verdicts := more.pop(topic, None):
            length = array_length(count + len(verdicts), flexible)
            spans += [(parts_at, parts_of, length), (parts_end, parts_end, b"".join(map(write, verdicts)))]
    name = "TopicId" if version >= PRODUCE_IDS_FROM else "Name"
    write = layout(PRODUCE, version, "response.Responses()").write
    new = b"".join(write({name: topic, "PartitionResponses": verdicts}) for topic, verdicts in more.items())
    length = array_length(len(topics) + len(more), flexible)
    return spliced(response, [(at, of, length), *spans, (end, end, new)])
