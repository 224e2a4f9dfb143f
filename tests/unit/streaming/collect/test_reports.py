"""A collector that may not write any more: another has taken over, or it has ended itself; who stands by."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from kafka.errors import KafkaConnectionError

from streaming.collect import reports as module
from streaming.collect.reports import DOUBT_TIMES, QUIET_S, Reports, last_begun_ms, stand_by
from streaming.contract.errors import TakenOver, WeirError
from streaming.contract.topics import Cluster, Topics
from streaming.kafka_io.writer import NotWritten, Record

LIMIT_S = 10.0
EVENT = [("b", {"type": "group_usage"})]


class World:
    """Transactions that end as told, and a clock."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.fails: list[Exception] = []

    def __call__(self, *_: object) -> "World":
        if self.fails and isinstance(self.fails[0], WeirError):
            raise self.fails.pop(0)
        return self

    def monotonic(self) -> float:
        """The clock."""
        return self.now_s

    def write(self, records: Iterable[Record], _limit_s: float) -> None:
        """Write them, or fail."""
        assert list(records)
        if self.fails:
            raise self.fails.pop(0)

    def abort(self, _limit_s: float) -> set[int]:
        """Nothing more is wrong."""
        return set()


def fenced() -> NotWritten:
    """What a producer is told behind which another one has started."""
    return NotWritten("fenced", {KafkaError._FENCED})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Kafka as it is told to be."""
    made: Any = World()
    monkeypatch.setattr(module, "Transactions", made)
    monkeypatch.setattr(module, "time", made)
    return made


@pytest.mark.parametrize("failure", [NotWritten("timed out", set()), WeirError("Kafka is away")])
def test_who_had_failed_before_may_have_ended_itself(world: World, failure: Exception) -> None:
    """By what it asked then and the broker found later; long after it, and without, somebody else has."""
    reports = Reports(Cluster("here", Topics()), "lease", LIMIT_S)
    # Whoever could not write takes the right again.
    world.fails = [NotWritten("timed out", set()), failure]
    for _ in range(2):
        with pytest.raises(WeirError):
            reports.write(EVENT)
    reports.write(EVENT)
    world.now_s += DOUBT_TIMES * LIMIT_S - 1
    world.fails = [fenced()]
    with pytest.raises(WeirError, match="was not written") as caught:
        reports.write(EVENT)
    assert not isinstance(caught.value, TakenOver)
    reports.write(EVENT)
    world.now_s += DOUBT_TIMES * LIMIT_S + 1
    world.fails = [fenced()]
    with pytest.raises(TakenOver):
        reports.write(EVENT)


def test_another_one_has_taken_over(world: World) -> None:
    reports = Reports(Cluster("here", Topics()), "lease", LIMIT_S)
    reports.write(EVENT)
    world.fails = [fenced()]
    with pytest.raises(TakenOver):
        reports.write(EVENT)


TAKEN = TakenOver("another collector has taken over", "lease")
CLUSTER = Cluster(bootstrap="b:1", topics=Topics(), client={})


class Other:
    """Whoever has taken over, as Kafka tells of it at each look, and the time that passes.

    Args:
        told: when its newest transaction began, look after look; the last one goes on. None: no answer.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, told: Sequence[int | None]) -> None:
        self.now_s, self.looks = 0.0, 0
        self.failure: Exception = WeirError("no answer")
        self._told: Iterator[int | None] = iter(told)
        self._last: int | None = -1
        monkeypatch.setattr(module, "_LOOK_S", 0)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(module, "last_begun_ms", self._look)

    def _look(self, _cluster: Cluster, lease: str) -> int:
        assert lease == TAKEN.lease
        self.now_s += 10
        self.looks += 1
        self._last = next(self._told, self._last)
        if self._last is None:
            raise self.failure
        return self._last


def test_nobody_takes_over_from_one_that_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its transactions is a sign of life; the silence after the last one has to be three minutes."""
    other = Other(monkeypatch, [at for at in range(100) for _ in range(17)])
    asyncio.run(stand_by(CLUSTER, TAKEN, 60))
    assert other.looks == 99 * 17 + 1 + QUIET_S / 10


@pytest.mark.parametrize("told", [[], [5]])
def test_silence_is_waited_for(monkeypatch: pytest.MonkeyPatch, told: list[int | None]) -> None:
    """Also of one that has not begun anything, and longer where reports are further apart."""
    other = Other(monkeypatch, told)
    asyncio.run(stand_by(CLUSTER, TAKEN, 600))
    assert other.now_s in (1_800, 1_810)


@pytest.mark.parametrize("failure", [WeirError("no answer"), RuntimeError("can't start new thread")])
def test_where_kafka_does_not_tell_nobody_is_silent(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    """Its silence begins anew with the next answer; so where this host has no thread left to ask with."""
    other = Other(monkeypatch, [7, 7, *[None] * 50, 7])
    other.failure = failure
    asyncio.run(stand_by(CLUSTER, TAKEN, 60))
    assert other.now_s == 520 + 180


def test_a_kafka_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As any other failure, in words."""

    def connect(**_: Any) -> None:
        raise KafkaConnectionError("nobody")

    monkeypatch.setattr(module, "AdminClient", connect)
    with pytest.raises(WeirError, match="b:1 does not tell who writes as lease"):
        last_begun_ms(Cluster("b:1"), "lease")
