"""Of two collectors that are always started again one works: the other one stands by."""

import asyncio
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError

from streaming.collect import reports as module
from streaming.collect.reports import QUIET_S, last_begun_ms, stand_by
from streaming.contract.errors import TakenOver, WeirError
from streaming.contract.topics import Cluster, Topics

TAKEN = TakenOver("another collector has taken over", "lease")
CLUSTER = Cluster(bootstrap="b:1", topics=Topics(), client={}, topics_check_ms=1_000)


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
