"""Standing decisions: repeated before half of their life time, until they say nothing."""

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from event_kit import delivery, sample, tick
from law_kit import T0, Shard, policy

from streaming.contract.decisions import RECORD_BYTES_MAX
from streaming.laws import refresh
from streaming.laws.backlog.table import DECISION as BACKLOG
from streaming.laws.backlog.table import QUIET_MS
from streaming.laws.concurrency.table import DECISION as LIMIT
from streaming.laws.dispatch.table import DECISION as DISPATCH
from streaming.laws.law import DecisionForm
from streaming.laws.refresh import Refresh
from streaming.laws.registry import LAWS

TOPIC = "persistent://acme/orders/t1"


def limit(partition: str, ts: int) -> dict[str, Any]:
    return {"type": "limit", "id": partition, "ts": ts, "partition": partition, "limit": 7, "ttl_ms": 60_000}


def debt(ts: int, paid_ms: int, broker: str = "b1", subscription: str = "s", **more: int) -> dict[str, Any]:
    subject = {"broker": broker, "topic": TOPIC, "subscription": subscription}
    return {"type": "dispatch", "id": "d", "ts": ts, **subject, "ttl_ms": paid_ms, **more}


def held_of(form: DecisionForm, *decisions: dict[str, Any], now: int) -> Refresh:
    """What holds after these decisions."""
    held = Refresh(form, None)
    note(held, form, *decisions, now=now)
    return held


def note(held: Refresh, form: DecisionForm, *decisions: dict[str, Any], now: int) -> None:
    held.note(form.columns([(0, decision) for decision in decisions]), now)


def repeated(held: Refresh, now: int) -> list[dict[str, Any]]:
    """The decisions said again; each counts as of now, under its own key and id."""
    again = held.repeats(now)
    if again is None:
        return []
    decisions = [orjson.loads(value) for value in again.column("value").to_pylist()]
    assert again.column("id").to_pylist() == [decision["id"] for decision in decisions]
    assert again.column("key").to_pylist() == [LAWS.subject_of(decision) for decision in decisions]
    assert again.ts.tolist() == [now] * len(decisions)
    return decisions


def test_a_limit_is_repeated_at_a_quarter_of_its_life_time() -> None:
    """With its id and ts and `repeat`, again and again, and after a restart from the checkpoint too."""
    held = held_of(LIMIT, limit("p", 0), now=0)
    assert repeated(held, 14_999) == []
    held = Refresh(LIMIT, held.to_bytes())
    assert repeated(held, 15_000) == [limit("p", 0) | {"repeat": True}]
    assert repeated(held, 29_999) == []
    assert len(repeated(held, 30_000)) == 1


def test_a_newer_decision_takes_the_place_of_the_older() -> None:
    """One subject, one standing decision; a broker's counters are its own."""
    held = held_of(LIMIT, limit("p", 0), limit("q", 0), now=0)
    note(held, LIMIT, limit("p", 9), now=9)
    assert sorted(again["ts"] for again in repeated(held, 60_000)) == [0, 9]
    held = held_of(DISPATCH, debt(0, 50_000, "b1"), debt(0, 50_000, "b2"), now=0)
    assert len(repeated(held, 30_000)) == 2


@pytest.mark.parametrize("more", [0, 1])
def test_what_no_record_holds_is_not_said_again(more: int) -> None:
    """It is a dead letter; each repeat was one more, of 800 kB and by the record of a tick, for an hour."""
    held, large = held_of(LIMIT, limit("p", 0), now=0), limit("p", 1) | {"x": ""}
    beside = len(orjson.dumps(large | {"repeat": True})) + len("p")
    note(held, LIMIT, large | {"x": "y" * (RECORD_BYTES_MAX - beside + more)}, now=1)
    assert len(held) == 1 - more


def test_spaces_in_names_mix_nobody_up() -> None:
    """Topics and subscriptions of Pulsar may have them; of objects and of columns."""
    named = [(f"{TOPIC} x", "y"), (TOPIC, "x y"), (TOPIC, "x%20y")]
    debts = [debt(0, 90_000) | {"topic": topic, "subscription": name} for topic, name in named]
    assert len(repeated(held_of(DISPATCH, *debts, now=0), 30_000)) == len(named)
    shard = Shard({RATES: rate("subscriptionDispatchRate", 1)}, law="dispatch", replay=False)
    shard.step([delivery(0, 90, 1, 1, topic=topic, subscription=name) for topic, name in named], T0)
    told = shard.step([tick(30_000)], T0)
    assert [(one["topic"], one["subscription"]) for one in told] == named


def test_a_debt_is_repeated_each_half_minute_until_it_is_paid() -> None:
    """However long that takes; after that it says nothing."""
    held = held_of(DISPATCH, debt(1000, 90_000), debt(1000, 30_000, "b2"), now=1000)
    assert len(held) == 1, "what is paid before its first repeat is not kept"
    assert repeated(held, 30_999) == []
    assert repeated(held, 31_000) == [debt(1000, 90_000) | {"repeat": True}]
    assert repeated(held, 60_999) == []
    assert len(repeated(held, 90_999)) == 1
    assert repeated(held, 91_000) == []
    assert len(held) == 0


RATES = "namespaces.acme/orders"


def rate(level: str, msgs: int) -> dict[str, Any]:
    return {level: {"dispatchThrottlingRateInMsg": msgs}}


def test_a_debt_is_repeated_as_long_as_a_lower_rate_takes_to_pay_it() -> None:
    """Its decision says 40 s, of which the change makes 400: who started then delivered a period too much."""
    shard = Shard({RATES: rate("subscriptionDispatchRate", 10)}, law="dispatch", replay=False)
    changed = policy(1000, RATES, rate("subscriptionDispatchRate", 1))
    (decision,) = shard.step([delivery(0, 400), changed], T0)
    assert decision["ttl_ms"] == 40_000
    times = 30_000, 60_000, 89_999, 90_000, 390_000, 420_000
    assert [len(shard.step([tick(at_ms)], T0)) for at_ms in times] == [1, 1, 0, 1, 1, 0]


@pytest.mark.parametrize("others", [0, 1])
def test_a_counter_that_others_move_keeps_no_older_decision_up(others: int) -> None:
    """It is told by theirs: where somebody always delivers, what was paid long ago was repeated for ever."""
    shard = Shard({RATES: rate("dispatchRate", 10)}, law="dispatch", replay=False)
    shard.step([delivery(0, 400), policy(1000, RATES, rate("dispatchRate", 1))], T0)
    shard.step([*[delivery(20_000, 1, subscription="other")] * others, tick(30_000)], T0)
    said = [decision["subscription"] for decision in shard.step([tick(60_000)], T0)]
    assert said == (["other"] if others else ["sub1"])


def test_a_debt_lasts_from_when_it_was_applied() -> None:
    """That of a late delivery begins later than its own time."""
    held = held_of(DISPATCH, debt(1000, 40_000, applied_ts=21_000), now=21_000)
    assert len(repeated(held, 60_999)) == 1
    assert repeated(held, 61_000) == []


def test_repeats_are_in_the_order_of_the_decisions() -> None:
    """Two subscriptions tell of one topic's counter: the later decision must stay the later one."""
    first, second = debt(0, 90_000, subscription="s1"), debt(1, 90_000, subscription="s2")
    held = held_of(DISPATCH, first, second, debt(2, 90_000, subscription="s1"), now=2)
    assert [again["ts"] for again in repeated(held, 30_002)] == [1, 2]


def test_a_backlog_that_nobody_reports_is_forgotten() -> None:
    """An hour after its last report."""
    report = {"type": "backlog", "id": "k", "ts": 0, "topic": TOPIC, "ttl_ms": 60_000}
    held = held_of(BACKLOG, report, now=0)
    assert len(repeated(held, QUIET_MS - 1)) == 1
    assert repeated(held, QUIET_MS) == []


def test_what_its_law_says_does_not_stand_leaves_when_it_is_due() -> None:
    """The others are said again, whenever they were written."""
    held = held_of(LIMIT, limit("a", 0), limit("b", 0), now=0)
    note(held, LIMIT, limit("c", 1), limit("d", 1), now=1)
    asked: list[str] = []

    def stand(subjects: pa.Array, over: Any) -> Any:
        assert not over.any()
        asked.extend(subjects.to_pylist())
        return np.array([name not in "ac" for name in subjects.to_pylist()])

    assert held.repeats(14_999, stand) is None and asked == []
    again = held.repeats(15_000, stand)
    assert again is not None and again.column("key").to_pylist() == ["b"]
    again = held.repeats(30_001, stand)
    assert again is not None and again.column("key").to_pylist() == ["b", "d"]
    assert asked == ["a", "b", "b", "c", "d"] and len(held) == 2


def test_the_live_step_repeats_no_limit_whose_policy_is_gone() -> None:
    """Nor does one that comes back bring the limit of before."""
    path, aimd = "backpressure.partitions.*", {"algorithm": "aimd", "useWindowed": False}
    shard = Shard({path: aimd}, law="concurrency", replay=False)
    assert len(shard.step([sample("l", 0, 1, 80, partition="p")], T0)) == 1
    for at_ms, value in ((1000, None), (2000, aimd)):
        for event in (policy(at_ms, path, value), tick(at_ms), tick(at_ms + 20_000)):
            assert shard.step([event], T0) == []
    assert not shard.dead_letters


@pytest.mark.parametrize(
    ("bound", "most"), [("MAX_STANDING", 3), ("STANDING_BYTES", 3 * len(orjson.dumps(limit("p0", 0))))]
)
def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch, bound: str, most: int) -> None:
    """Beyond the bound those written longest ago leave: their life time simply ends."""
    monkeypatch.setattr(refresh, bound, most)
    held = Refresh(LIMIT, None)
    for number in range(5):
        note(held, LIMIT, limit(f"p{number}", number), now=number)
    assert sorted(again["partition"] for again in repeated(held, 60_000)) == ["p2", "p3", "p4"]


def test_the_live_step_repeats_on_ticks_and_a_replay_never_does() -> None:
    """A tick moves time for a shard in which nothing else happens."""
    told, path = sample("l", 0, 1, 1, partition="p"), "backpressure.partitions.*"
    policies = {path: {"algorithm": "fixed", "fixed": {"limit": 5}, "useWindowed": False}}
    shard = Shard(policies, law="concurrency", replay=False)
    assert len(shard.step([told], T0)) == 1
    assert shard.step([tick(10_000)], T0) == []
    (again,) = shard.step([tick(20_000)], T0)
    assert again["repeat"] is True
    assert len(Shard(policies, law="concurrency").step([told, tick(90_000)])) == 1
