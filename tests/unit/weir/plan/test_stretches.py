"""A plan of a log that comes some at a time: the same as of all at once, and never much in memory."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_kit import TOPIC, delivery, report, tick
from law_kit import T0, request
from mixed_log import OTHER, TODAY, TOMORROW, mixed
from plan_kit import dispatched, file_of, grouped, outcomes, plan_of, policies_of, quotas_of

from streaming.log import reading, stretches
from weir.plan import delays
from weir.plan.delays import Delays
from weir.plan.run import plan
from weir.plan.shown.summary import summary
from weir.plan.waiting import deliveries, requests
from weir.plan.waiting.queues import HELD_MAX_MS


def told(folder: Path, log: str) -> tuple[Any, list[bytes]]:
    """What comes of a log: the summary, and the decisions under its own policies."""
    own, other = policies_of(folder, "a.yaml", **TODAY), policies_of(folder, "b.yaml", **TOMORROW)
    with plan(own, [log], [other, own], totals=True) as planned:
        return summary(planned.plans, planned.proven), list(planned.replayed.decisions)


def test_a_plan_in_stretches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the log is cut, and whether it is in order: who waits goes on in the next stretch."""
    events = mixed(1200, seed=29)
    log = file_of(tmp_path, "log.jsonl", *events)
    whole = told(tmp_path, log)
    random.Random(30).shuffle(events)
    # Of one time they come in the order of the file.
    disorder = file_of(tmp_path, "disorder.jsonl", *events)
    other = told(tmp_path, disorder)
    monkeypatch.setattr(reading, "READ_AT_ONCE", 20_000)
    monkeypatch.setattr(stretches, "READ_AT_ONCE", 20_000)
    monkeypatch.setattr(stretches, "SAMPLED", 8)
    assert told(tmp_path, log) == whole
    assert told(tmp_path, disorder) == other


@pytest.mark.parametrize(
    ("events", "limits", "whose", "expected"),
    [
        ([request(f"a{n}", n, 11) for n in range(9)], quotas_of(alice=0.1), "user=alice", [1, 2, 6]),
        ([delivery(n, msgs=10) for n in range(9)], dispatched(10), f"{TOPIC}/sub1", [1, 8, 0]),
    ],
)
def test_who_waits_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[Any], limits: Any, whose: str, expected: Any
) -> None:
    """Two at most: of requests those that came last are given up, and deliveries are made."""
    monkeypatch.setattr(requests, "HELD_MAX", 2)
    monkeypatch.setattr(deliveries, "HELD_MAX", 2)
    monkeypatch.setattr(reading, "READ_AT_ONCE", 10)
    # What follows much later: until then they are not decided all at once.
    later = request("z", 10, 1, user="zoe") if events[0]["type"] == "request" else delivery(10, topic=OTHER)
    made = plan_of(tmp_path, [*events, later], {}, limits)
    assert outcomes(made, whose, waiting=True)[1] == expected
    assert made.beyond > 0


def test_many_delays_are_told_to_a_thousandth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more than the truth, and the worst as it is."""
    monkeypatch.setattr(delays, "DISTINCT_MAX", 100)
    asked = np.sort(np.random.default_rng(1).integers(1, HELD_MAX_MS, 20_001))
    counted = Delays()
    for part in np.array_split(asked, 7):
        counted.add(np.zeros(len(part), dtype=np.int64), part)
    found = counted.percentiles()[0]
    assert found["max"] == asked[-1]
    for name, exact in (("p50", asked[10_000]), ("p99", asked[19_800])):
        assert exact * 0.999 <= found[name] <= exact


def test_ticks_close_no_round_before_its_time(tmp_path: Path) -> None:
    """The log of a live job has them; brokers hold back as much as they do without."""
    events = [report(n * 1000, broker, {"rg1": {"publishedMsg": 60}}) for n in range(9) for broker in "ab"]
    ticks = [tick(n * 1000) for n in range(9)]
    without = plan_of(tmp_path, events, {}, grouped(40))
    both = sorted([*ticks, *events], key=lambda event: int(event["ts"]) - T0)
    found = plan_of(tmp_path, both, {}, grouped(40))
    row, other = found.waiting_rows["shares", "rg1"], without.waiting_rows["shares", "rg1"]
    assert row.delay_ms == other.delay_ms and row.overshoot == other.overshoot
