"""Answers to Produce requests that waited too long for a slot (docs/protocol_notes.md 3.7)."""

from typing import Final

from enforcer.wire.kafka.codec import answer, asked
from enforcer.wire.kafka.frames import PRODUCE, RequestHeader
from enforcer.wire.kafka.mutations import REQUEST_TIMED_OUT
from enforcer.wire.kafka.traffic import PRODUCE_IDS_FROM

_PARTITIONS: Final = asked(PRODUCE, "TopicData(Name|TopicId? PartitionData(Index))")
_MESSAGE: Final = b"No slot under the concurrency limit of this broker; try again."


def timed_out(frame: bytes, header: RequestHeader) -> bytes:
    """The answer that refuses every partition of a Produce request: nothing of it was sent to the broker.

    Raises:
        BadFrame: the request cannot be read.
    """
    name = "TopicId" if header.api_version >= PRODUCE_IDS_FROM else "Name"
    verdict = {"ErrorCode": REQUEST_TIMED_OUT, "BaseOffset": -1, "ErrorMessage": _MESSAGE}
    refused = [
        {name: topic, "PartitionResponses": [{"Index": number, **verdict} for number in numbers]}
        for topic, numbers in _PARTITIONS(frame, header)
    ]
    return answer(header, {"Responses": refused})
