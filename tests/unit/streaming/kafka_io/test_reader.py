"""What a reader asks and reads, where the cluster is not ready; live in tests/kafka."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from message_kit import Record

from streaming.contract.errors import WeirError
from streaming.kafka_io import reader as reader_module
from streaming.kafka_io.reader import NoTopic, Reader, Span


class FakeConsumer:
    """A partition that has no leader for so many questions, and then these records."""

    def __init__(self, refusals: int, records: list[Record] | None = None) -> None:
        self.refusals, self.records, self.at = refusals, records or [], 0
        self.known_at = 0

    def get_watermark_offsets(self, where: TopicPartition, timeout: float) -> tuple[int, int]:
        """Its offsets."""
        self.refusals -= 1
        if self.refusals >= 0:
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
        return 3, 7

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[Any]:
        """Where its records of a time begin; the library hands a refusal on as the partition's."""
        self.refusals -= 1
        error = KafkaError(KafkaError.UNKNOWN_LEADER_EPOCH) if self.refusals >= 0 else None
        return [SimpleNamespace(partition=0, offset=-1 if error else 4, error=error)]

    def assign(self, where: list[TopicPartition]) -> None:
        """Read from there."""
        self.at = where[0].offset

    def position(self, where: list[TopicPartition]) -> list[TopicPartition]:
        """Where it is."""
        return [TopicPartition("t", 0, self.known_at)]

    def poll(self, limit_s: float) -> Record | None:
        """The next one."""
        found = next((one for one in self.records if one.offset() >= self.at), None)
        if found is not None:
            self.at = found.offset() + 1
        self.known_at = self.at
        return found


def reader(consumer: FakeConsumer) -> Reader:
    """Of this one."""
    made = Reader("127.0.0.1:1", {})
    made.close()
    made.consumer = consumer
    return made


def test_a_partition_that_has_no_leader_yet_is_asked_again() -> None:
    """Topics are asked for a moment after they are made; but not for ever."""
    assert reader(FakeConsumer(2)).span("t", 0) == Span(topic="t", partition=0, start=3, end=7)
    with pytest.raises(WeirError, match=r"cannot read t on 127\.0\.0\.1:1"):
        reader(FakeConsumer(10**9)).span("t", 0, 0.1)


def test_a_partition_that_does_not_tell_a_time_is_asked_again() -> None:
    """It was taken for one without such records: who started as its leader moved read nothing back of it."""
    span = Span(topic="t", partition=0, start=3, end=7)
    assert reader(FakeConsumer(2)).since([span], 5_000) == [4]
    with pytest.raises(WeirError, match=r"cannot read t on 127\.0\.0\.1:1"):
        reader(FakeConsumer(10**9)).since([span], 5_000, 0.1)


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_a_topic_that_we_may_not_see_is_not_called_absent(code: int) -> None:
    """Without the right to see weir.policies `weir policy get` said to start `weir up` first."""
    told = SimpleNamespace(error=KafkaError(code), partitions={})
    made = reader(FakeConsumer(0))
    made.consumer.list_topics = lambda *_, **__: SimpleNamespace(topics={"t": told})
    refused = NoTopic if code == KafkaError.UNKNOWN_TOPIC_OR_PART else WeirError
    with pytest.raises(refused) as failure:
        made.spans("t")
    assert type(failure.value) is refused


def test_the_library_tells_of_a_topic_that_is_not_there() -> None:
    """By a cluster that it plays itself."""
    made = Reader("127.0.0.1:1", {"test.mock.num.brokers": 1})
    assert made.partitions("none") == []
    made.close()


def test_who_reads_on_goes_on_behind_the_last_record() -> None:
    """Also where it broke off in the middle: what was taken is not taken again."""
    consumer = FakeConsumer(0, [Record(b"%d" % n, offset=n) for n in range(3, 6)])
    made, span = reader(consumer), Span(topic="t", partition=0, start=3, end=6)
    assert next(iter(made.read_on([span]))).value() == b"3"
    assert [one.value() for one in made.read_on([span])] == [b"4", b"5"]
    assert list(made.read_on([span])) == []
    with pytest.raises(WeirError, match="it stalled at offset 6 of 9"):
        list(made.read_on([Span(topic="t", partition=0, start=3, end=9)], 0.1))


def test_a_topic_made_again_is_read_though_its_old_position_is_still_told() -> None:
    """librdkafka may tell for a moment where it stood before it was assigned anew."""
    consumer = FakeConsumer(0, [Record(b"a", offset=n) for n in range(100)])
    found = reader(consumer)
    assert len(list(found.read_on([Span(topic="t", partition=0, start=0, end=100)]))) == 100
    assert len(list(found.read_on([Span(topic="t", partition=0, start=0, end=5)]))) == 5


def test_a_client_that_does_not_close_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a topic that was deleted; who had read it did not end: a command, or a proxy that stops."""
    over, consumer, begun = threading.Event(), FakeConsumer(0), time.monotonic()
    consumer.close = lambda: over.wait(5)  # type: ignore[attr-defined]
    monkeypatch.setattr(reader_module, "_CLOSE_S", 0.05)
    reader(consumer).close()
    over.set()
    assert time.monotonic() - begun < 4


def test_a_client_is_left_too_where_no_thread_is_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command had done its work and ended with a traceback."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    consumer = FakeConsumer(0)
    consumer.close = lambda: None  # type: ignore[attr-defined]
    reader(consumer).close()


def test_a_client_that_the_library_does_not_make_is_told_as_all_else() -> None:
    """By whoever asks: over REST a change ended in 500, and a thread that follows a topic for good."""
    with pytest.raises(WeirError, match=r"cannot read from h:1: No such configuration property"):
        Reader("h:1", {"no.such.property": "1"})


class Halting(FakeConsumer):
    """One that has a single record at a time."""

    halted = True

    def poll(self, limit_s: float) -> Record | None:
        """Each other time nothing."""
        self.halted = not self.halted
        return None if self.halted else super().poll(limit_s)


def test_what_is_done_with_a_record_meanwhile_is_no_stall() -> None:
    """A dump takes a hundred packed records at a time, and for their rows more than half a minute."""
    consumer = Halting(0, [Record(b"a", offset=n) for n in range(3)])
    for _ in reader(consumer).messages(Span(topic="t", partition=0, start=0, end=3), 0.05):
        time.sleep(0.1)
    assert consumer.at == 3
