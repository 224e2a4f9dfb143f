"""Following a topic that is made again; live in tests/kafka."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from message_kit import Record

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


def test_a_topic_that_is_made_again_with_fewer_partitions_is_caught_up_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was still to be read of the old one never comes; who starts meanwhile waited for it for ever."""
    async def follow() -> None:
        its = Tail[Any](
            {"bootstrap.servers": "nowhere:1"}, "t", from_beginning=True, parse=lambda _: [],
            deliver=lambda _: None,
        )  # fmt: skip
        monkeypatch.setattr(tail, "Reader", lambda *_: FakeReader(its.begin_anew))
        its.start(asyncio.get_running_loop())
        try:
            await asyncio.wait_for(its.caught_up.wait(), 5)
        finally:
            await its.stop(5)

    asyncio.run(follow())


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

    async def follow() -> None:
        its = Tail[Any](
            {"bootstrap.servers": "nowhere:1"}, "t", from_beginning=True, parse=parse, deliver=told.extend,
            begun_anew=lambda: told.append("anew"),
        )  # fmt: skip
        monkeypatch.setattr(tail, "Reader", lambda *_: Deep(its.begin_anew))
        its.start(asyncio.get_running_loop())
        try:
            await asyncio.wait_for(its.caught_up.wait(), 5)
        finally:
            await its.stop(5)

    asyncio.run(follow())
    assert told == [b"old", "anew", b"a", b"c"]
    assert "t-0-1 met a mistake in its reader" in caplog.text
