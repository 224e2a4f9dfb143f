"""Sending: pace, a full queue, failures, and stopping, with a producer that is not there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import KafkaError, KafkaException
from plan_kit import file_of

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster, Topics
from streaming.kafka_io.policy_topic import PolicyLog
from weir.logs.send_lines import Addresser, OutgoingRecord, recorded
from weir.logs.sender import BUFFER_MAX, DELIVERY_LIMIT_S, STOP_LIMIT_S, Pace, Sender, producer_for, send

NOW_S = 1_795_200_000.0
NOW = int(NOW_S * 1000)


class Clock:
    """A clock that moves only when somebody waits."""

    def __init__(self) -> None:
        self.s = NOW_S

    def now(self) -> float:
        return self.s

    def wait(self, limit_s: float) -> bool:
        self.s += limit_s
        return False


class Told:
    """What a producer tells about a delivery."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def topic(self) -> str:
        return self._topic

    def str(self) -> str:
        return "it is away"


class FakeProducer:
    """Delivers on poll; `fails` records fail, `full` calls find the queue full, `lost` never arrive."""

    def __init__(
        self, clock: Clock, *, fails: int = 0, full: int = 0, lost: int = 0, broken: bool = False,
        breaks: bool = False,
    ) -> None:
        self.clock, self.fails, self.full, self.lost, self.broken = clock, fails, full, lost, broken
        self.breaks = breaks
        self.records: list[tuple[float, str, bytes, bytes]] = []
        self._waiting: list[tuple[Callable[..., None], str]] = []

    def produce(self, topic: str, *, value: bytes, key: bytes, on_delivery: Callable[..., None]) -> None:
        if self.broken:
            raise KafkaException(KafkaError(KafkaError._FATAL, "fatal"))
        if self.full:
            self.full -= 1
            raise BufferError
        self.records.append((self.clock.s, topic, key, value))
        self._waiting.append((on_delivery, topic))

    def poll(self, timeout: float) -> int:
        self.clock.s += timeout
        if self.broken:
            raise KafkaException(KafkaError(KafkaError._FENCED, "lost its place", True))
        while self._waiting:
            told, topic = self._waiting.pop()
            failed, self.fails = self.fails > 0, max(0, self.fails - 1)
            told(Told(topic) if failed else None, Told(topic))
        return 0

    def flush(self, timeout: float) -> int:
        if self.lost:
            self.clock.s += timeout
        if self.breaks:
            raise KafkaException(KafkaError(KafkaError._FENCED, "lost its place", True))
        return self.lost

    def __len__(self) -> int:
        return self.lost


def sending(
    folder: Path,
    producer: FakeProducer,
    events: list[dict[str, Any]],
    *,
    speed: float | None = 1.0,
    keep_times: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[bool, Sender, list[str]]:
    """Send events; whether all went, the sender, and the lines of progress."""
    file = file_of(folder, "e.jsonl", *events)
    said: list[str] = []
    sender = Sender(producer, progress=said.append, now_s=producer.clock.now)
    pace = None
    if speed is not None:
        pace = Pace(factor=speed, wait=producer.clock.wait, now_s=producer.clock.now)
    addresser = Addresser(topics=Topics(), log=PolicyLog(), now_ms=NOW)
    done = send(recorded([file]), addresser, sender, pace, keep_times=keep_times, stopped=stopped)
    return done, sender, said


def tick(ts: int) -> dict[str, Any]:
    return {"type": "tick", "ts": ts}


@pytest.mark.parametrize(("speed", "expected"), [(1.0, [0, 1, 4]), (2.0, [0, 0.5, 2]), (None, [0, 0, 0])])
def test_events_go_out_in_the_rhythm_of_the_recording(
    tmp_path: Path, speed: float | None, expected: list[float]
) -> None:
    """By the differences of their times, so many times as fast, or at once; progress each second."""
    producer = FakeProducer(Clock())
    done, sender, said = sending(tmp_path, producer, [tick(60_000), tick(61_000), tick(64_000)], speed=speed)
    times = [at - producer.records[0][0] for at, *_ in producer.records]
    assert times == pytest.approx(expected)
    assert done and sender.delivered == {"weir.usage": 3}
    assert bool(said) == (speed is not None)


def test_times_are_moved_to_now_or_kept(tmp_path: Path) -> None:
    """Moved, an event goes out when its new time comes, in its place of the round; kept, at once."""
    moved = FakeProducer(Clock())
    _, _, said = sending(tmp_path, moved, [tick(70_000)])
    assert said[0] == "begins with the next round, at 18:40:10.000"
    ((at, *_, value),) = moved.records
    assert orjson.loads(value)["ts"] == NOW + 10_000 == pytest.approx(at * 1000)
    # Of a made-up one, from 0 on, the first kept its time, and went at once.
    made = FakeProducer(Clock())
    sending(tmp_path, made, [{"type": "tick"}, tick(0), tick(1_000)])
    assert [orjson.loads(value).get("ts", 0) for *_, value in made.records] == [0, NOW, NOW + 1_000]
    assert [at for at, *_ in made.records] == pytest.approx([NOW_S, NOW_S, NOW_S + 1])
    kept = FakeProducer(Clock())
    sending(tmp_path, kept, [tick(61_000)], keep_times=True)
    ((at, *_, value),) = kept.records
    assert (at, orjson.loads(value)["ts"]) == (NOW_S, 61_000)


def test_a_full_queue_holds_sending_back(tmp_path: Path) -> None:
    """Until there is room, and not for ever."""
    producer = FakeProducer(Clock(), full=5)
    done, sender, _ = sending(tmp_path, producer, [tick(1)], speed=None)
    assert done and sender.delivered == {"weir.usage": 1}
    with pytest.raises(WeirError, match=rf"{BUFFER_MAX} records wait"):
        sending(tmp_path, FakeProducer(clock := Clock(), full=10_000), [tick(1)], speed=None)
    assert clock.s - NOW_S < DELIVERY_LIMIT_S + 1


def test_failures_are_counted_with_the_first_reason(tmp_path: Path) -> None:
    """What the cluster refused, and what it never answered."""
    done, sender, _ = sending(tmp_path, FakeProducer(Clock(), fails=1), [tick(1), tick(2)], speed=None)
    assert (done, sender.failed, sender.failure) == (True, 1, "it is away")
    _, sender, _ = sending(tmp_path, FakeProducer(Clock(), lost=3), [tick(1)], speed=None)
    assert (sender.failed, sender.failure) == (3, "no answer within 30 s")


def test_a_record_too_large_fails_alone() -> None:
    """The library refuses it before it is sent; what comes after it goes on."""
    cluster = Cluster(bootstrap="127.0.0.1:1", topics=Topics(), client={})
    sender = Sender(producer_for(cluster), progress=lambda line: None)
    sender.send(OutgoingRecord(due=0, topic="t", key=b"", value=b"x" * 2_000_000))
    assert (sender.failed, sender.delivered) == (1, {})
    assert "too large" in sender.failure


def test_a_producer_that_breaks_at_the_end_has_failed_what_it_holds(tmp_path: Path) -> None:
    """The library raises it out of the last wait, which ended in a traceback."""
    producer = FakeProducer(Clock(), lost=3, breaks=True)
    done, sender, _ = sending(tmp_path, producer, [tick(1)], speed=None)
    assert done and sender.failed == 3


def test_a_broken_producer_ends_it() -> None:
    """An idempotent producer that has lost its place takes nothing any more."""
    producer = FakeProducer(Clock(), broken=True)
    sender = Sender(producer, progress=lambda line: None, now_s=producer.clock.now)
    with pytest.raises(WeirError, match="sending broke off: lost its place"):
        sender.send(OutgoingRecord(due=0, topic="t", key=b"", value=b""))


def test_a_stop_ends_it_between_two_events(tmp_path: Path) -> None:
    """What was sent before is delivered."""
    producer = FakeProducer(Clock())
    done, sender, _ = sending(
        tmp_path, producer, [tick(1), tick(1_000_000)], stopped=lambda: producer.clock.s > NOW_S + 120
    )
    assert (done, sender.delivered) == (False, {"weir.usage": 1})


@pytest.mark.parametrize("full", [10_000, 0])
def test_a_stop_ends_sending_to_a_cluster_that_is_away(full: int, tmp_path: Path) -> None:
    """A full queue, and what is in it: Ctrl-C was heard of after a minute."""
    producer = FakeProducer(clock := Clock(), full=full, lost=3)
    done, sender, _ = sending(tmp_path, producer, [tick(1)], speed=None, stopped=lambda: clock.s > NOW_S + 1)
    assert (done, sender.failed) == (not full, 3) and 5 < clock.s - NOW_S < 2 + STOP_LIMIT_S
    assert sender.failure == f"no answer within {STOP_LIMIT_S:g} s"


def test_a_stop_ends_a_wait() -> None:
    """Ctrl-C in a long pause of the recording does not wait for its end."""
    pace = Pace(factor=1, wait=lambda limit_s: True, now_s=lambda: NOW_S)
    pace.begin(NOW, at_its_time=True)
    assert list(pace.steps(NOW + 3_600_000)) == [NOW]


def test_a_record_goes_out_whole() -> None:
    """Topic, key and value as given."""
    producer = FakeProducer(Clock())
    sender = Sender(producer, progress=lambda line: None, now_s=producer.clock.now)
    sender.send(OutgoingRecord(due=0, topic="t", key=b"k", value=b"v"))
    assert producer.records == [(NOW_S, "t", b"k", b"v")]
