"""Where groups stand, in every version, as kafka-python writes it; what the broker refused is nothing."""

from typing import Any
from uuid import UUID

from each_kit import each
from kafka.protocol import consumer
from kafka.protocol.producer import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafka_kit import build, request, response

from enforcer.kafka.groups.frames import Place, places

ID = UUID(int=5)


def name(version: int, ids_from: int = 10) -> tuple[dict[str, Any], str | bytes]:
    """How a topic is named in a version, in a message and as it is read."""
    return ({"topic_id": ID}, ID.bytes) if version >= ids_from else ({"name": "t"}, "t")


@each("version", range(11))
def test_commits(version: int) -> None:
    """Of the partitions that were taken."""
    field, topic = name(version)
    rows = [
        {"partition_index": number, "committed_offset": offset, "committed_metadata": "x"}
        for number, offset in ((0, 1 << 40), (1, 7))
    ]
    topics = [field | {"partitions": rows}]
    frame = build(consumer.OffsetCommitRequest, version, group_id="g", member_id="m", topics=topics)
    errors = [{"partition_index": number, "error_code": error} for number, error in ((1, 27), (0, 0))]
    answer = build(consumer.OffsetCommitResponse, version, topics=[field | {"partitions": errors}])
    assert places(*request(frame), response(answer)) == [Place("g", topic, 0, 1 << 40)]


@each("version", range(6))
def test_commits_of_transactions(version: int) -> None:
    """As of a consumer whose results go to Kafka exactly once."""
    part = {"partition_index": 2, "committed_offset": 9, "committed_metadata": None}
    frame = build(TxnOffsetCommitRequest, version, transactional_id="x", group_id="g", producer_id=1,
                  producer_epoch=1, topics=[{"name": "t", "partitions": [part]}])  # fmt: skip
    for error, found in ((0, [Place("g", "t", 2, 9)]), (22, [])):
        row = {"partition_index": 2, "error_code": error}
        topics = [{"name": "t", "partitions": [row]}]
        answer = build(TxnOffsetCommitResponse, version, topics=topics)
        assert places(*request(frame), response(answer)) == found


@each("version", range(1, 11))
def test_what_a_group_is_told(version: int) -> None:
    """At its start, of each group that is asked for; -1 is nowhere."""
    field, topic = name(version)
    rows = [
        {"partition_index": number, "committed_offset": offset, "metadata": "x", "error_code": error}
        for number, offset, error in ((0, 5, 0), (1, -1, 0), (2, 6, 3))
    ]
    told = {"topics": [field | {"partitions": rows}]}
    frame = build(consumer.OffsetFetchRequest, version, group_id="h", topics=[], groups=[])
    fields = {"groups": [told | {"group_id": "h"}]} if version >= 8 else told
    answer = build(consumer.OffsetFetchResponse, version, **fields)
    assert places(*request(frame), response(answer)) == [Place("h", topic, 0, 5)]
