"""Events out: a bounded buffer, and a producer that is replaced when it is dead."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson
import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Producer
from proxy_kit import until
from sample_kit import sample_of

from enforcer.core.metrics import Metrics
from enforcer.core.reports import Reports
from streaming.columns.packed import CONTENT_TYPE, HEADER
from streaming.columns.sent import SENT_HEADER
from streaming.kafka_io import writer
from streaming.kafka_io.writer import connected

PURGED = KafkaError(KafkaError._PURGE_INFLIGHT)


class FakeProducer:
    """A producer whose queue holds two events."""

    def __init__(self) -> None:
        self.queue: list[tuple[bytes, bytes, Callable[..., None]]] = []
        self.headers: list[Any] = []
        self.broken = self.raises = False
        self.told: list[KafkaError] = []
        self.purged = False

    def give_up(self) -> None:
        """As librdkafka: the next poll raises it, once; then nothing more is taken."""
        self.broken = self.raises = True

    def produce(
        self, topic: str, *, value: bytes, key: bytes, headers: object, on_delivery: Callable[..., None]
    ) -> None:
        """As librdkafka: raises instead of waiting."""
        if self.broken:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        if len(self.queue) == 2:
            raise BufferError("full")
        self.queue.append((value, key, on_delivery))
        self.headers.append(headers)

    def __len__(self) -> int:
        """How many wait."""
        return len(self.queue)

    def poll(self, limit_s: float) -> int:
        """One report of those that a test has prepared."""
        time.sleep(0.001)
        if self.raises:
            self.raises = False
            raise KafkaException(KafkaError(KafkaError._FATAL, "out of order", True))
        if self.told and self.queue:
            self.queue.pop(0)[2](self.told.pop(0), None)
        return 0

    def purge(self) -> None:
        """What is left is told with the next poll or flush."""
        self.purged = True

    def flush(self, limit_s: float) -> int:
        """What is left."""
        while self.queue and (self.told or self.purged):
            self.queue.pop(0)[2](self.told.pop(0) if self.told else PURGED, None)
        return len(self.queue)


class Acked:
    """A record as its acknowledgement shows it."""

    def timestamp(self) -> tuple[int, int]:
        """What its broker gave it."""
        return TIMESTAMP_LOG_APPEND_TIME, 7_000


class Bench:
    """Reports with fake producers."""

    def __init__(self) -> None:
        self.producers: list[FakeProducer] = []
        self.made_s = list[float]()
        self.refused, self.learnt = list[str](), list[int]()
        self.refuses = self.breaks = False
        self.refusals = 0
        self.metrics = Metrics(10)
        self.reports = Reports(
            {"bootstrap.servers": "here"}, "weir.requests", events_max=2, event_timeout_ms=1_000,
            metrics=self.metrics, refused=self.refused.append,
            learn=lambda record_ms, _arrived_ms: self.learnt.append(record_ms), connect=self._connect,  # type: ignore[arg-type]  # a fake
        )  # fmt: skip

    def _connect(self, _client: object, own: dict[str, Any]) -> FakeProducer:
        if self.refuses:
            self.refusals += 1
            raise KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE))
        self.own = own
        self.producers.append(FakeProducer())
        self.made_s.append(time.monotonic())
        if self.breaks:
            self.producers[-1].give_up()
        return self.producers[-1]

    def count(self, result: str) -> float:
        """Events with this result."""
        return sample_of(self.metrics.registry, "weir_proxy_events_total", {"result": result})


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Reports that have not started; in the end they stop."""
    bench = Bench()
    yield bench
    bench.reports.stop(0.1)


def test_events_are_bounded_and_counted(bench: Bench) -> None:
    """A full buffer drops and counts; delivery reports count; a stop counts what is left."""
    assert not bench.reports.send({"type": "request"}, "early")
    bench.reports.start()
    (producer,) = bench.producers
    assert bench.own["queue.buffering.max.messages"] == 2
    assert [bench.reports.send({"n": n}, "user=a") for n in range(3)] == [True, True, False]
    assert bench.count("dropped") == 2
    (value, key, first), (_, _, second) = producer.queue
    assert (orjson.loads(value), key) == ({"n": 0}, b"user=a")
    first(None, Acked())
    second(KafkaError(KafkaError._MSG_TIMED_OUT), None)
    assert (bench.count("sent"), bench.count("failed")) == (1, 1)
    bench.reports.stop(0.1)
    assert bench.count("failed") == 3


def test_each_record_says_whose_it_is_and_which(bench: Bench) -> None:
    """So that the job knows those that the library sends again; a packed one that it is packed, too."""
    bench.reports.start()
    bench.reports.send({}, "user=a")
    bench.reports.send_packed(b"rows", "", "weir.usage")
    (alone,), (packed, second) = bench.producers[0].headers
    assert packed == (HEADER, CONTENT_TYPE)
    names, numbers = zip(*((said[:8], int.from_bytes(said[8:])) for _, said in (alone, second)), strict=True)
    assert {name for name, _ in (alone, second)} == {SENT_HEADER}
    assert numbers == (1, 2) and names[0] == names[1]
    other = Bench()
    other.reports.start()
    other.reports.send({}, "user=a")
    assert other.producers[0].headers[0][0][1][:8] != names[0]
    other.reports.stop(0.0)


def test_a_least_wait_of_the_settings_is_no_reason_not_to_start() -> None:
    """The library refuses one that is above the longest: ours are taken, both."""
    reports = Reports(
        {"bootstrap.servers": "127.0.0.1:1", "reconnect.backoff.ms": "2000"}, "weir.requests", events_max=2,
        event_timeout_ms=1_000, metrics=Metrics(10), refused=print, learn=print,
    )  # fmt: skip
    reports.start()
    reports.stop(0.0)


def test_the_first_event_waits_for_no_id(bench: Bench) -> None:
    """It goes before the start, by a producer of its own; that it fails is told, and is no lost event."""
    told: list[int | None] = []
    assert bench.reports.send_first({"id": "a"}, "k", "weir.usage", told.append)
    assert bench.own["enable.idempotence"] is False
    bench.reports.start()
    assert "enable.idempotence" not in bench.own
    until(lambda: told == [None], what="it is told of")
    assert len(bench.producers) == 2 and not bench.producers[1].queue
    bench.reports.stop(0.1)
    assert bench.count("failed") == 0


def test_there_is_room_until_events_or_bytes_are_too_many(bench: Bench) -> None:
    """By the number that waits; and where one was dropped for its bytes, until another has left."""
    assert not bench.reports.room()
    bench.reports.start()
    assert bench.reports.room()
    bench.reports.send({"id": "a"}, "k")
    assert bench.reports.room()
    bench.reports.send({"id": "b"}, "k")
    assert not bench.reports.room()
    assert not bench.reports.send({"id": "c"}, "k")
    producer = bench.producers[0]
    _, _, told = producer.queue.pop()
    assert not bench.reports.room()
    told(None, Acked())
    assert bench.reports.room()


def test_a_dead_producer_is_replaced_once(bench: Bench) -> None:
    """By who polls, the only one that is told: also where for a moment no thread is left for another one."""
    bench.reports.start()
    bench.refuses = True
    bench.producers[0].give_up()
    until(lambda: bench.refusals > 0, what="another one is wanted")
    assert not bench.reports.send({}, "user=a")
    bench.refuses = False
    until(lambda: bench.reports.send({}, "user=a"), what="another one takes it")
    assert len(bench.producers) == 2


def test_a_producer_that_always_breaks_is_replaced_once_a_second(bench: Bench) -> None:
    """Where the right to write is missing each said so at once: a line in the log ten times a second."""
    bench.breaks = True
    bench.reports.start()
    until(lambda: len(bench.made_s) > 2, what="another one, and one more")
    assert bench.made_s[2] - bench.made_s[1] >= 1.0


def test_a_producer_that_the_library_gives_up_is_replaced() -> None:
    """It says so with the next poll, in the thread that polls for all; of what it held only that it went."""
    made, told = list[Producer](), list[int | None]()

    def connect(client: Mapping[str, Any], own: Mapping[str, Any]) -> Producer:
        # For a broker without idempotence, which the library plays itself, it is of no use.
        old = {} if made else {"api.version.request": False, "broker.version.fallback": "0.9.0"}
        played = {"test.mock.num.brokers": 1, "allow.auto.create.topics": True, "log_level": 0}
        made.append(connected(client, {**own, **old, **played}))
        return made[-1]

    reports = Reports(
        {"bootstrap.servers": "x"}, "t", events_max=2, event_timeout_ms=5_000, metrics=Metrics(10),
        refused=print, learn=lambda *_: None, connect=connect,
    )  # fmt: skip
    reports.start()
    assert reports.send({}, "user=a", acked=told.append)
    until(lambda: len(made) == 2 and told == [None], what="another one")
    assert reports.send({}, "user=a", acked=told.append)
    until(lambda: len(told) == 2, what="it takes events")
    reports.stop(0.1)
    assert told[1]


@pytest.mark.parametrize("reports", [1, 2])
def test_what_a_dead_producer_held_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, reports: int
) -> None:
    """All of it, and in a limited time: what it does not tell by itself it is made to."""
    monkeypatch.setattr(writer, "LAST_S", 0.1)
    told = list[int | None]()
    bench.reports.start()
    for _ in range(2):
        assert bench.reports.send({}, "user=a", acked=told.append)
    bench.producers[0].give_up()
    bench.producers[0].told += [KafkaError(KafkaError._MSG_TIMED_OUT)] * reports
    until(lambda: len(told) == 2, what="both are told")
    assert (told, bench.count("failed"), len(bench.producers)) == ([None, None], 2, 2)
    assert bench.producers[0].purged == (reports == 1)
    assert bench.reports.send({}, "user=a")


def test_who_asked_is_told_of_an_event_that_its_topic_refuses(bench: Bench) -> None:
    """It is counted apart, and the producer lives on."""
    bench.reports.start()
    bench.reports.send({"id": "p1-7"}, "user=a")
    bench.producers[0].queue[0][2](KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), None)
    assert (bench.refused, bench.count("too_large"), bench.count("failed")) == (["p1-7"], 1, 0)
    assert len(bench.producers) == 1


def test_who_waits_is_told_what_came_of_an_event(bench: Bench) -> None:
    """Its broker's time, from which the clock is learnt too; None if it was not taken."""
    told = list[int | None]()
    bench.reports.start()
    for _ in range(2):
        bench.reports.send({}, "user=a", acked=told.append)
    (_, _, first), (_, _, second) = bench.producers[0].queue
    first(None, Acked())
    second(KafkaError(KafkaError._MSG_TIMED_OUT), None)
    assert (told, bench.learnt) == ([7_000, None], [7_000])


def test_a_packed_record_is_an_event(bench: Bench) -> None:
    """It is bounded and counted as one."""
    bench.reports.start()
    assert bench.reports.send({"id": "e1"}, "p1", "weir.usage")
    assert bench.reports.send_packed(b"rows", "p1", "weir.usage")
    assert not bench.reports.send_packed(b"rows", "p1", "weir.usage")
    (producer,) = bench.producers
    assert [(value, key) for value, key, _ in producer.queue][1] == (b"rows", b"p1")
