"""A plan of a log that comes some at a time: the same as of all at once, and never much in memory."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_kit import TOPIC, delivery, report, tick
from law_kit import T0, policy, refund, request
from mixed_log import OTHER, TODAY, TOMORROW, mixed
from plan_kit import dispatched, file_of, grouped, outcomes, plan_of, planned, policies_of, quotas_of

from streaming.log import reading, stretches
from weir.plan import delays
from weir.plan.delays import Delays
from weir.plan.run import plan
from weir.plan.shown.page import page
from weir.plan.shown.summary import summary
from weir.plan.waiting import deliveries, requests
from weir.plan.waiting.queues import HELD_MAX_MS


def told(folder: Path, *log: str, today: Any = TODAY, tomorrow: Any = TOMORROW) -> tuple[Any, list[bytes]]:
    """What comes of a log: the summary, and the decisions under its own policies."""
    own, other = policies_of(folder, "a.yaml", **today), policies_of(folder, "b.yaml", **tomorrow)
    with plan(own, log, [other, own], totals=True) as made:
        return summary(made.plans, made.proven), list(made.replayed.decisions)


@pytest.mark.parametrize("count", [300, pytest.param(1200, marks=pytest.mark.soak)])
def test_a_plan_in_stretches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """However the log is cut, and whether it is in order: who waits goes on in the next stretch."""
    events = mixed(count, seed=29)
    log = file_of(tmp_path, "log.jsonl", *events)
    whole = told(tmp_path, log)
    random.Random(30).shuffle(events)
    # Of one time they come in the order of the file.
    disorder = file_of(tmp_path, "disorder.jsonl", *events)
    other = told(tmp_path, disorder)
    cut(monkeypatch, 20_000, sampled=8)
    assert told(tmp_path, log) == whole
    assert told(tmp_path, disorder) == other


def rated(rate: int) -> Any:
    """So many messages a second to each subscription of acme/orders, as the value of its entry."""
    return dispatched(rate)["namespaces"]["acme/orders"]


def test_changes_of_dispatch_rates_in_stretches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the log is cut between them: who waits looks again at each, and when a stretch begins."""
    events = [policy(500 * n + 7, "namespaces.acme/orders", rated((5, 40)[n % 2])) for n in range(20)]
    events += [delivery(at, 2 + at % 3, subscription=f"s{at % 7}") for at in range(0, 10_000, 50)]
    log = file_of(tmp_path, "log.jsonl", *sorted(events, key=lambda event: event["ts"]))
    whole = told(tmp_path, log)
    cut(monkeypatch)
    assert told(tmp_path, log) == whole


def test_a_change_costs_those_alone_whose_time_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was open was looked through at each: changes times deliveries."""
    deliver, looked = deliveries._deliver, list[int]()

    def noted(since: int, upto: int, reader: Any, *rest: Any) -> None:
        looked.append(len(reader))
        deliver(since, upto, reader, *rest)

    monkeypatch.setattr(deliveries, "_deliver", noted)
    changes = [policy(1000 * n, "namespaces.acme/orders", rated(40)) for n in range(50)]
    given = [delivery(1000 * n + 1, msgs=1) for n in range(50)]
    plan_of(tmp_path, sorted(changes + given, key=lambda event: event["ts"]), dispatched(40), {})
    # Once on either side, and once more where a stretch of the log ends.
    assert 100 <= sum(looked) <= 150


def shared(rate: int, seconds: int = 5) -> Any:
    """So many messages a second for the group rg1, shared out each time so many seconds are over."""
    return grouped(rate) | {"broker": {"resourceUsagePublishIntervalInSecs": seconds}}


def cut(monkeypatch: pytest.MonkeyPatch, size: int = 300, sampled: int = 1) -> None:
    """Have a stretch be a few events."""
    monkeypatch.setattr(reading, "READ_AT_ONCE", size)
    monkeypatch.setattr(stretches, "READ_AT_ONCE", size)
    monkeypatch.setattr(stretches, "SAMPLED", sampled)


def test_a_round_of_reports_that_is_cut(tmp_path: Path) -> None:
    """Reports that wait for the end of their round stay apart from those that follow."""
    events = [
        report(second * 1000 + 500, "aabb"[second % 5], {"rg1": {"publishedMsg": 40 + 5 * second}})
        for second in range(60) if second % 5 < 4
    ]  # fmt: skip
    parts = [(n + begin, n + end) for n in range(0, 48, 4) for begin, end in ((0, 1), (1, 3), (3, 4))]
    files = [file_of(tmp_path, f"{begin}.jsonl", *events[begin:end]) for begin, end in parts]
    whole = told(tmp_path, file_of(tmp_path, "log.jsonl", *events), today=shared(60), tomorrow={})
    assert told(tmp_path, *files, today=shared(60), tomorrow={}) == whole


def test_policies_of_the_very_end_of_a_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They judge it, though a stretch ends there."""
    events = list[Any]()
    for at in range(0, 20_000, 500):
        if at and at % 5000 == 0:
            limit = {"publishRateInMsgs": 20 if at % 10_000 else 200}
            events.append(policy(at, "resourcegroups.rg1", limit))
        events += [report(at, broker, {"rg1": {"publishedMsg": 60}}, period_ms=500) for broker in "ab"]
    # Not in order, so read by time.
    files = [file_of(tmp_path, f"{n}.jsonl", *events[n::2]) for n in range(2)]
    whole = told(tmp_path, *files, today=shared(60), tomorrow={})
    cut(monkeypatch)
    assert told(tmp_path, *files, today=shared(60), tomorrow={}) == whole


def test_shares_that_either_side_tells_in_another_stretch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are laid beside each other all the same."""
    draw, events = random.Random(1), list[Any]()
    for number in range(200):
        at = number * 700
        if number % 10 == 9:
            seconds = {"resourceUsagePublishIntervalInSecs": draw.choice([3, 5, 7])}
            events.append(policy(at, "broker", seconds))
        events.append(report(at, draw.choice("ab"), {"rg1": {"publishedMsg": draw.randint(0, 300)}}))
    log = file_of(tmp_path, "log.jsonl", *events)
    whole = told(tmp_path, log, today=shared(60), tomorrow=shared(30))
    cut(monkeypatch)
    assert told(tmp_path, log, today=shared(60), tomorrow=shared(30)) == whole


def test_who_is_not_due_yet_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many come at one time: none is given up or made early."""
    monkeypatch.setattr(requests, "HELD_MAX", 2)
    monkeypatch.setattr(deliveries, "HELD_MAX", 2)
    cut(monkeypatch)
    asked = [request(f"r{n}", 0, 1, user=f"u{n}") for n in range(9)]
    given = [delivery(0, msgs=1, subscription=f"s{n}") for n in range(9)]
    assert planned(tmp_path, asked + given, {}, dispatched(10)).plans[0].beyond == 0


def test_refunds_that_wait_are_not_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given back counts for nobody."""
    monkeypatch.setattr(requests, "HELD_MAX", 2)
    cut(monkeypatch)
    asked = [request("a", 0, 11), request("b", 1, 11), *(refund(n, 0, 1, name=f"f{n}") for n in range(2, 9))]
    later = [request(f"z{n}", 100 + n, 1, user="zoe") for n in range(9)]
    assert plan_of(tmp_path, asked + later, {}, quotas_of(alice=0.1)).beyond == 0


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
    asked = events[0]["type"] == "request"
    later = [request(f"z{at}", at, 1, user="zoe") if asked else delivery(at, topic=OTHER) for at in (10, 11)]
    found = planned(tmp_path, [*events, *later], {}, limits)
    (made,) = found.plans
    assert outcomes(made, whose, waiting=True)[1] == expected
    assert summary([made], None)["clients_that_wait"]["beyond"] == made.beyond > 0
    assert f"Too many waited at once: {made.beyond} " in "".join(page(found).itertext())


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
