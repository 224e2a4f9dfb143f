"""The newest decision of each topic, out of all that stands on `weir.decisions`."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from confluent_kafka import Message
from message_kit import Record

from streaming.contract.backlog.decisions import TTL_MS
from streaming.kafka_io.reader import Reader, Span
from weir.backlog import decisions
from weir.backlog.decisions import MARGIN_MS, BacklogReader, Decisions, back_ms

T1, T2 = "persistent://a/n/t1", "persistent://a/n/t2"


def decision(topic: str = T1, ts: int = 100, **more: Any) -> bytes:
    """A decision's bytes."""
    own = {"type": "backlog", "id": f"k{ts}", "ts": ts, "topic": topic, "backlogSize": 1.0, "ttl_ms": 60_000}
    return orjson.dumps(own | more)


def sizes(newest: Decisions) -> dict[str, float]:
    """Topic -> size of the newest decision."""
    return {name: found.decision.size for name, found in newest.of_topic.items()}


def test_what_is_only_tried_says_nothing() -> None:
    """Nor is it a bad record."""
    newest = Decisions()
    newest.take(decision(candidate="stricter"), 1000)
    assert sizes(newest) == {} and not newest.bad


def test_the_newest_of_each_topic_counts() -> None:
    """A straggler is about what was before; of one time the last one stands, since it was said again."""
    newest = Decisions()
    newest.take(decision(ts=100), 1000)
    newest.take(decision(ts=90, backlogSize=9), 1001)
    newest.take(decision(T2, ts=50, backlogSize=5), 1002)
    again = decision(ts=100, repeat=True)
    newest.take(again, 2000)
    assert sizes(newest) == {T1: 1.0, T2: 5.0}
    found = newest.of_topic.get(T1)
    assert found is not None and (found.value, found.written_ms) == (again, 2000)


def test_a_decision_is_stale_after_its_life_time() -> None:
    """From its writing on, since a repeated one keeps its own time."""
    newest = Decisions()
    newest.take(decision(), 1000)
    found = newest.of_topic.get(T1)
    assert found is not None
    assert (found.stale(61_000), found.stale(61_001)) == (False, True)


def test_what_is_no_such_decision_is_passed_over_or_counted() -> None:
    """Others' types without a word; what says that it is one and is not, with its reason."""
    newest = Decisions()
    for value in (b"", b"garbage", b'{"type":"admission"}', b'{"type":"share","group":"backlog"}', b"[1]"):
        newest.take(value, 1)
    assert (sizes(newest), newest.bad) == ({}, 0)
    action = {"type": "backlog_action", "policy": "backlog"}
    newest.take(orjson.dumps(action), 1)
    assert newest.bad == 0
    newest.take(b'{"type":"backlog"', 1)
    newest.take(decision(backlogSize="x"), 1)
    newest.take(decision("t1"), 1)
    assert (sizes(newest), newest.bad) == ({}, 3)
    assert newest.last_bad.startswith("topic 't1' is not a valid name")


def test_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond that the topic leaves of which nothing was said for longest, which is counted."""
    monkeypatch.setattr(decisions, "TOPICS_MAX", 2)
    newest = Decisions()
    for name, ts in ((T1, 1), (T2, 1), (T1, 2), ("persistent://a/n/t3", 1)):
        newest.take(decision(name, ts=ts), 1)
    assert (list(sizes(newest)), newest.of_topic.dropped) == ([T1, "persistent://a/n/t3"], 1)


class FakeReader(Reader):
    """Two partitions of records."""

    def __init__(self) -> None:
        self._read_to = {}
        self.log: dict[int, list[Record]] = {0: [], 1: []}
        self.read_spans: list[tuple[int, int, int]] = []

    def put(self, partition: int, value: bytes, ts: int) -> None:
        """Append a record."""
        offset = len(self.log[partition])
        self.log[partition].append(Record(value, partition=partition, offset=offset, ts=ts))

    def spans(
        self, topic: str, from_ms: int = 0, to_ms: int | None = None, limit_s: float = 1.0
    ) -> list[Span]:
        """From the first record of that time on."""
        return [
            Span(
                topic=topic,
                partition=number,
                start=next((n for n, one in enumerate(log) if one.timestamp()[1] >= from_ms), len(log)),
                end=len(log),
            )
            for number, log in self.log.items()
        ]

    def messages(self, span: Span, *_: Any, **__: Any) -> Iterator[Message]:
        """Those of a span."""
        self.read_spans.append((span.partition, span.start, span.end))
        yield from self.log[span.partition][span.start : span.end]  # type: ignore[misc]  # fakes


def test_it_reads_back_and_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """One life time and a check interval; the next reading begins where that ended; what is old leaves."""
    now_ms = 10_000_000
    monkeypatch.setattr(decisions, "wall_ms", lambda: now_ms)
    reader = FakeReader()
    back = TTL_MS + 30_000 + MARGIN_MS
    assert back_ms(30) == back
    reader.put(0, decision(T1), now_ms - back - 1)
    reader.put(0, decision(T1, ts=200, backlogSize=2), now_ms - back)
    reader.put(1, decision(T2), now_ms - 10)
    read = BacklogReader(reader, "d")
    assert sizes(read.read(30)) == {T1: 2.0, T2: 1.0}
    assert reader.read_spans == [(0, 1, 2), (1, 0, 1)]
    now_ms += 5
    reader.put(1, decision(T2, ts=300, backlogSize=3), now_ms)
    assert sizes(read.read(30)) == {T2: 3.0}
    assert reader.read_spans[2:] == [(0, 2, 2), (1, 1, 2)]


def test_a_topic_that_was_made_again_is_read_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its offsets begin anew, before where the old one was read to."""
    monkeypatch.setattr(decisions, "wall_ms", lambda: 10**9)
    reader = FakeReader()
    for ts in (1, 2, 3):
        reader.put(0, decision(T1, ts=ts), 10**9)
    read = BacklogReader(reader, "d")
    read.read(60)
    reader.log[0] = []
    reader.put(0, decision(T2), 10**9)
    assert sizes(read.read(60)) == {T1: 1.0, T2: 1.0}
