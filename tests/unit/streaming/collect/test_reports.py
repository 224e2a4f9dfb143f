"""A collector that may not write any more: another one has taken over, or it has ended itself."""

from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from streaming.collect import reports as module
from streaming.collect.reports import DOUBT_TIMES, Reports
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
