"""The part that looks after backlogs: what it does when another collector takes over."""

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from streaming.collect.settings import BacklogSettings
from streaming.contract.errors import TakenOver, WeirError
from streaming.contract.topics import Cluster, Topics
from weir.collect import backlogs as module
from weir.collect.backlogs import BacklogPart

CLUSTER = Cluster(bootstrap="b:1", topics=Topics(), client={})


class TwiceTaken:
    """A collector that is taken over at once, and the second time is told to end."""

    def __init__(self) -> None:
        self.runs = 0

    def interval_s(self) -> int:
        """Of the policies."""
        return 90

    async def run(self, _checked: Any) -> None:
        """Until another one has started."""
        self.runs += 1
        raise TakenOver("another collector", "lease") if self.runs == 1 else asyncio.CancelledError


@pytest.mark.parametrize("waits", [False, True])
def test_who_stands_by_goes_on_when_the_other_one_has_ended(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Any other ends there."""
    collector, stood_by = TwiceTaken(), []

    async def start(*_: Any, once: bool) -> TwiceTaken:
        return collector

    async def stand_by(_cluster: Cluster, taken: TakenOver, interval_s: float) -> None:
        stood_by.append((taken.lease, interval_s))

    monkeypatch.setattr(BacklogPart, "_start", start)
    monkeypatch.setattr(module, "stand_by", stand_by)
    monkeypatch.setattr(module, "AGAIN_S", 0)
    none: Any = None
    part = BacklogPart(CLUSTER, "kafka", BacklogSettings(), CollectorRegistry(), none, stand_by=waits)
    with pytest.raises(asyncio.CancelledError if waits else TakenOver):
        asyncio.run(part.run())
    assert stood_by == ([("lease", 90)] if waits else [])


@pytest.mark.parametrize("failure", [WeirError("no answer"), RuntimeError("can't start new thread")])
def test_a_start_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    """Also where this host has no thread left for a moment."""
    failures, collector = [failure], TwiceTaken()
    collector.runs = 1

    async def start(*_: Any, once: bool) -> TwiceTaken:
        if failures:
            raise failures.pop()
        return collector

    monkeypatch.setattr(BacklogPart, "_start", start)
    monkeypatch.setattr(module, "AGAIN_S", 0)
    none: Any = None
    part = BacklogPart(CLUSTER, "kafka", BacklogSettings(), CollectorRegistry(), none, stand_by=False)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(part.run())
    assert (failures, collector.runs) == ([], 2)
