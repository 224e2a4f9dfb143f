"""Records of the library as our own: single, packed, damaged, and those that are not wanted."""

from types import SimpleNamespace

import orjson
import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition
from message_kit import Record
from pack_kit import packed

from streaming.contract.errors import WeirError
from streaming.kafka_io.reader import Span
from weir.logs import topic_reader

EVENTS = [{"type": "backlog", "id": name, "topic": "t"} for name in ("a", "b")]


def values(record: Record, *types: str) -> list[bytes]:
    """What is read of one."""
    return [each.value for each in topic_reader.records_of(record, types)]  # type: ignore[arg-type]


def test_rows_of_other_types_are_left_out() -> None:
    """Unread; single records are left to who wants them, whatever their type is."""
    (value,) = packed(EVENTS)
    rows = [orjson.dumps(event) for event in EVENTS]
    assert values(Record(value, packed=True)) == rows
    assert values(Record(value, packed=True), "backlog") == rows
    assert values(Record(value, packed=True), "share", "limit") == []
    assert values(Record(b"single"), "share") == [b"single"]


def test_what_cannot_be_unpacked_is_shown_as_it_is() -> None:
    """Whoever reads it says what is wrong."""
    assert values(Record(b"garbage", packed=True)) == [b"garbage"]
    assert values(Record(b"garbage", packed=True), "backlog") == [b"garbage"]


def test_rows_are_handed_on_before_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record may hold a million: a thousand records of a long past filled the memory of weir tail."""
    (value,) = packed(EVENTS)
    reader, there = topic_reader.TopicReader("127.0.0.1:1", {}), iter([Record(value, packed=True)] * 5)
    monkeypatch.setattr(topic_reader, "BATCH_MAX", 3)
    monkeypatch.setattr(reader, "batch", lambda _limit_s: there)
    batches = reader.follow([])
    assert [len(next(batches)) for _ in range(4)] == [4, 4, 2, 0]
    reader.close()


def test_who_may_not_read_hears_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """weir tail said nothing, for ever; what passes by itself is waited for."""
    reader = topic_reader.TopicReader("127.0.0.1:1", {})
    away = (KafkaError(KafkaError._TRANSPORT), KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    errors = iter(SimpleNamespace(error=lambda each=each: each, topic=lambda: "weir.usage") for each in away)
    monkeypatch.setattr(reader, "batch", lambda _limit_s: [next(errors)])
    batches = reader.follow([])
    assert next(batches) == []
    with pytest.raises(WeirError, match=r"cannot read weir\.usage on 127\.0\.0\.1:1: .*uthoriz"):
        next(batches)
    reader.close()


def test_partitions_that_are_added_are_read_from_their_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """weir tail showed nothing of what was decided there, until it was started again."""
    reader, assigned = topic_reader.TopicReader("127.0.0.1:1", {}), list[tuple[int, int]]()
    reader.close()

    def assign(where: list[TopicPartition]) -> None:
        assigned.extend((one.partition, one.offset) for one in where)

    found = iter([[0], None, [0, 1], [0, 1]])

    def partitions(_topic: str, _limit_s: float) -> list[int]:
        if (numbers := next(found)) is None:
            raise WeirError("away")
        return numbers

    reader.consumer = SimpleNamespace(assign=assign, incremental_assign=assign)
    monkeypatch.setattr(topic_reader, "_LOOK_S", 0.0)
    monkeypatch.setattr(reader, "partitions", partitions)
    monkeypatch.setattr(reader, "batch", lambda _limit_s: [])
    batches = reader.follow([Span(topic="t", partition=0, start=7, end=9)])
    assert not any(next(batches) for _ in range(4))
    assert assigned == [(0, 7), (1, OFFSET_BEGINNING)]
