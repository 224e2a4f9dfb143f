"""Following a topic that is made again; live in tests/kafka."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from message_kit import Record

from streaming.contract.errors import WeirError
from streaming.kafka_io import tail
from streaming.kafka_io.reader import Span
from streaming.kafka_io.tail import Tail


class FakeReader:
    """A topic of two partitions that nothing can be read of, then one of one that is empty."""

    def __init__(self, made_again: Callable[[], None]) -> None:
        self.consumer = self
        self.again, self._made_again = False, made_again

    def partitions(self, _topic: str, _limit_s: float) -> list[int]:
        """Their numbers."""
        return [0] if self.again else [0, 1]

    def span(self, topic: str, number: int, _limit_s: float) -> Span:
        """What is there."""
        return Span(topic=topic, partition=number, start=0, end=0 if self.again else 7)

    def batch(self, _limit_s: float) -> Iterator[Any]:
        """Nothing comes; meanwhile it is made again."""
        if not self.again:
            self._made_again()
        return iter(())

    def incremental_assign(self, _where: object) -> None:
        """Read from there."""

    def unassign(self) -> None:
        """Read nothing."""
        self.again = True

    def close(self) -> None:
        """Leave."""


def follow(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[Tail[Any]], FakeReader], **wanted: Callable[..., Any]
) -> None:
    """Follow a topic until it is caught up with."""

    async def caught_up() -> None:
        given: dict[str, Any] = {"parse": lambda _: [], "deliver": lambda _: None, **wanted}
        its = Tail[Any]({"bootstrap.servers": "nowhere:1"}, "t", **given)
        monkeypatch.setattr(tail, "Reader", lambda *_: make(its))
        its.start(asyncio.get_running_loop())
        try:
            await asyncio.wait_for(its.caught_up.wait(), 5)
        finally:
            await its.stop(5)

    asyncio.run(caught_up())


def test_a_client_that_cannot_be_made_is_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where for a moment no thread is left for one: an enforcer never learnt its policies."""
    monkeypatch.setattr(tail, "_RETRY_S", 0.01)
    refusals = [WeirError("no thread left")] * 2

    def make(its: Tail[Any]) -> FakeReader:
        if refusals:
            raise refusals.pop()
        return FakeReader(its.begin_anew)

    follow(monkeypatch, make)


def test_a_topic_that_is_made_again_with_fewer_partitions_is_caught_up_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was still to be read of the old one never comes; who starts meanwhile waited for it for ever."""
    follow(monkeypatch, lambda its: FakeReader(its.begin_anew))


class Deep(FakeReader):
    """A record of the topic as it was, and three of the one that was made again."""

    def __init__(self, made_again: Callable[[], None]) -> None:
        super().__init__(made_again)
        self.left = [[b"old"], [b"a", b"bad", b"c"]]

    def span(self, topic: str, number: int, _limit_s: float) -> Span:
        """What is there."""
        return Span(topic=topic, partition=number, start=0, end=3 if self.again else 7)

    def batch(self, _limit_s: float) -> Iterator[Any]:
        """All of it at once; then it is made again."""
        for offset, value in enumerate(self.left.pop(0) if self.left else ()):
            yield Record(value, partition=0, offset=offset)
        yield from super().batch(_limit_s)


def test_what_was_read_before_a_topic_was_made_again_is_told_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would count as the new one's. A record that its reader cannot bear is passed over, and said."""
    told = list[Any]()

    def parse(message: Any) -> list[bytes]:
        if message.value() == b"bad":
            raise ZeroDivisionError
        return [message.value()]

    anew = partial(told.append, "anew")
    follow(monkeypatch, lambda its: Deep(its.begin_anew), parse=parse, deliver=told.extend, begun_anew=anew)
    assert told == [b"old", "anew", b"a", b"c"]
    assert "t-0-1 met a mistake in its reader" in caplog.text


class Forbidden(FakeReader):
    """A topic that may not be read, and then may."""

    def batch(self, _limit_s: float) -> Iterator[Any]:
        """The library's word for it."""
        if not self.again:
            yield SimpleNamespace(error=lambda: KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        yield from super().batch(_limit_s)


def test_a_topic_that_may_not_be_read_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A proxy without the right to it served without limits, and its log did not say why."""
    follow(monkeypatch, lambda its: Forbidden(its.begin_anew))
    assert "t cannot be read: Broker: Topic authorization failed" in caplog.text
