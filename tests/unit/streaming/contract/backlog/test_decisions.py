"""Decisions on backlogs as they are read: of the law's own ones every field, of bad ones the reason."""

from typing import Any

import orjson
import pytest
from event_kit import EVICT, T0, TOPIC, backlog, ledger, quotas, subscription
from pack_kit import packed
from usage_kit import replay

from streaming.columns.packed import unpack
from streaming.contract.backlog import decisions as backlog_decisions
from streaming.contract.backlog.decisions import TTL_MS, BacklogDecision, EvictionPlan, backlog_decision
from streaming.contract.errors import BadEvent
from streaming.contract.fields import TS_MAX_MS

BOTH = {"namespaces.acme/orders": quotas(1000, 60)}
REPORT = backlog(
    [ledger(1, 10, 900, 100_000), ledger(2, 3, 300)], subscription("slow", 1, -1, 200_000)
) | {"id": "k1"}  # fmt: skip
NOTHING = REPORT | {"id": "k2", "subscriptions": []}
READ = BacklogDecision(
    id="k1", ts=T0, topic=TOPIC, size=1200.0, limit_size=1000, limit_time=60, age=100, oldest="slow",
    exceeded=(("size", EVICT), ("time", EVICT)),
    evict=(
        EvictionPlan(subscription="slow", ledger=1, entry=9, entries=10),
        EvictionPlan(subscription="slow", before_publish_time=T0 - 60_000),
    ),
    ttl_ms=60_000, repeated=False,
)  # fmt: skip


def test_the_laws_decisions_are_read_whole() -> None:
    """Both quotas exceeded, both planned; nobody has a backlog: no name, no age."""
    whole, nothing = (backlog_decision(decision) for decision in replay([REPORT, NOTHING], BOTH))
    assert whole == READ
    assert [line.quota_type for line in whole.evict] == ["size", "time"]
    assert (nothing.oldest, nothing.age, nothing.exceeded, nothing.evict) == (None, -1, (), ())


def test_packed_ones_mean_the_same() -> None:
    """Lines of both kinds in one list have each other's fields there, as nulls."""
    (value,) = packed(replay([REPORT], BOTH))
    _, rows = unpack(value)
    assert backlog_decision(rows.to_pylist()[0]) == READ


def test_what_may_be_left_out() -> None:
    """Limits that are none, plans that are empty; a clock ahead makes an age below zero."""
    least = {"id": "k", "ts": 1, "topic": TOPIC, "backlogSize": 0}
    read = backlog_decision(least)
    assert (read.limit_size, read.limit_time, read.age, read.oldest) == (-1, -1, -1, None)
    assert (read.exceeded, read.evict, read.ttl_ms, read.repeated) == ((), (), TTL_MS, False)
    assert backlog_decision(least | {"oldestBacklogMessageAgeSeconds": -7}).age == -7
    assert backlog_decision(least | {"repeat": True}).repeated


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"id": None}, "id: missing; text was expected"),
        ({"ts": TS_MAX_MS + 1}, f"ts: {TS_MAX_MS + 1} is out of range; 0 to {TS_MAX_MS} was expected"),
        ({"topic": 7}, "topic: 7; text was expected"),
        ({"backlogSize": -1}, "backlogSize: -1 is out of range; 0.0 or more was expected"),
        ({"backlogSize": "1"}, 'backlogSize: "1"; a number was expected'),
        ({"backlogQuotaLimitSize": -2}, "backlogQuotaLimitSize: -2 is out of range"),
        ({"backlogQuotaLimitTime": 1.5}, "backlogQuotaLimitTime: 1.5; an integer was expected"),
        ({"oldestBacklogMessageSubscriptionName": 3}, "oldestBacklogMessageSubscriptionName: 3; text"),
        ({"actions": "hold"}, 'actions: "hold"; a list of objects was expected'),
        ({"actions": [["size", EVICT]]}, "a list of objects was expected"),
        ({"actions": [{"quota_type": "size"}]}, "policy: missing; text was expected"),
        ({"evict": [{"ledger": 1, "entry": 2, "entries": 3}]}, "subscription: missing; text was expected"),
        ({"evict": [{"subscription": "s"}]}, "ledger: missing; an integer was expected"),
        (
            {"evict": [{"subscription": "s", "ledger": 1, "entry": -2, "entries": 3}]},
            "entry: -2 is out of range",
        ),
        (
            {"evict": [{"subscription": "s", "before_publish_time": 1.0}]},
            "before_publish_time: 1.0; an integer was expected",
        ),
        ({"ttl_ms": -1}, "ttl_ms: -1 is out of range"),
        ({"repeat": 1}, "repeat: 1; true or false was expected"),
    ],
)
def test_what_is_no_decision_is_refused(more: dict[str, Any], reason: str) -> None:
    """Anybody can write to the topic; None takes a field away."""
    (decision,) = replay([REPORT], BOTH)
    fields = {key: value for key, value in (decision | more).items() if value is not None}
    with pytest.raises(BadEvent) as refused:
        backlog_decision(orjson.loads(orjson.dumps(fields)))
    assert reason in refused.value.reason


def test_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forged one with millions of lines costs no more than to be seen."""
    monkeypatch.setattr(backlog_decisions, "LISTED_MAX", 1)
    (decision,) = replay([REPORT], BOTH)
    with pytest.raises(BadEvent, match="actions: 2 objects; at most 1 were expected"):
        backlog_decision(decision)
