"""The backlog law on the numbers of docs/contract.md 3.5 and docs/protocol_notes.md 4.6."""

from typing import Any

import pytest
from event_kit import EVICT, T0, TOPIC, Event, backlog, quotas, subscription
from usage_kit import NOW, Decision, fold, reloaded, replay, timeline_of
from usage_kit import judged as judged_by

from streaming.contract.broker_events import Ledger, Subscription
from streaming.laws.backlog import table as backlog_table
from streaming.laws.backlog.law import Log
from streaming.laws.backlog.table import BacklogTable

HOLD = "producer_request_hold"
CLOSED = {"id": 1, "entries": 100, "size": 103_600, "closeTime": T0 - 100_000}
OPEN = {"id": 2, "entries": 3, "size": 300, "closeTime": None}
Json = dict[str, Any]


SLOW = subscription("slow", 1, -1, 200_000)


def report(*subscriptions: Json, ledgers: list[Json] | None = None, **more: Any) -> Event:
    """The contract's report with other subscriptions."""
    return backlog([CLOSED, OPEN] if ledgers is None else ledgers, *subscriptions, **more)


def judged(event: Event, size: int | None = None, seconds: int | None = None, **broker: Any) -> Decision:
    """The decision on a report whose topic has these quotas, under these settings of the broker."""
    return judged_by(event, {f"topics.{TOPIC}": quotas(size, seconds), "broker": broker})


@pytest.mark.parametrize(
    "subscriptions",
    [
        [],
        [subscription("done", 2, 2)],
        [subscription("beyond", 2, 7)],
        [subscription("reader", 1, -1, 200_000, durable=False)],
    ],
)
def test_no_backlog(subscriptions: list[Json]) -> None:
    """Nobody durable has anything left: size 0, age -1, no name."""
    decision = judged(report(*subscriptions), 0, 1)
    assert decision["backlogSize"] == 0
    assert decision["oldestBacklogMessageAgeSeconds"] == -1
    assert decision["oldestBacklogMessageSubscriptionName"] is None
    assert (decision["exceeded"], decision["actions"], decision["evict"]) == ([], [], [])


def test_the_oldest_is_the_smallest_position_and_then_the_first_name() -> None:
    """Positions as written: the end of a ledger is before the beginning of the next; readers do not count."""
    others = [subscription("z", 1, 5), subscription("reader", 1, -1, durable=False), subscription("b", 1, 5)]
    assert judged(report(*others))["oldestBacklogMessageSubscriptionName"] == "b"
    ends = [subscription("a", 2, -1), subscription("b", 1, 99)]
    assert judged(report(*ends))["oldestBacklogMessageSubscriptionName"] == "b"


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize(
    ("position", "size", "plan"),
    [
        ((2, -1), 1000, {"a": 10}), ((2, 50), 1000, {"a": 10}), ((1, 9), 1000, {"a": 10}),
        ((0, 50), 2000, {"a": 20}), ((4, -1), 0, {}), ((4, 3), 0, {}),
    ],
)  # fmt: skip
def test_a_position_in_a_ledger_that_is_not_listed_acknowledges_those_before_it(
    position: tuple[int, int], size: int, plan: dict[str, int], precise: bool
) -> None:
    """Wherever it was among those listed: nothing of the ledgers after it is read."""
    ledgers = [{"id": 1, "entries": 10, "size": 1000, "closeTime": T0 - 60_000},
               {"id": 3, "entries": 10, "size": 1000, "closeTime": None}]  # fmt: skip
    event = report(subscription("a", *position), ledgers=ledgers)
    decision = judged(event, 0, preciseBacklogSize=precise)
    assert (decision["backlogSize"], evicted(decision)) == (size, plan)


def test_positions_are_compared_as_written() -> None:
    """All three begin to read the same ledger, but one of them is in an older one."""
    ledgers = [CLOSED, OPEN | {"id": 4}]
    ends = [subscription("a", 4, -1), subscription("b", 2, 7), subscription("c", 3, -1)]
    assert judged(report(*ends, ledgers=ledgers))["oldestBacklogMessageSubscriptionName"] == "b"


@pytest.mark.parametrize(
    ("position", "imprecise", "precise"),
    [((1, -1), 103_900, 103_900), ((1, 49), 103_900, 52_100), ((1, 98), 103_900, 1_336), ((1, 99), 300, 300),
     ((2, -1), 300, 300), ((2, 0), 300, 200)],
)  # fmt: skip
def test_the_size_of_a_backlog(position: tuple[int, int], imprecise: float, precise: float) -> None:
    """Whole ledgers from the oldest unacknowledged entry on; precisely, less what is acknowledged of it."""
    event = report(subscription("a", *position))
    assert judged(event)["backlogSize"] == imprecise
    assert judged(event, preciseBacklogSize=True)["backlogSize"] == precise


def test_the_age_of_a_backlog() -> None:
    """Since its ledger was closed, unknown while open; precisely, since it was published; whole seconds."""
    assert judged(report(SLOW))["oldestBacklogMessageAgeSeconds"] == 100
    assert judged(report(SLOW, at_ms=999))["oldestBacklogMessageAgeSeconds"] == 100
    assert judged(report(subscription("a", 2, 0, 50_000)))["oldestBacklogMessageAgeSeconds"] == -1
    precise = {"preciseTimeBasedBacklogQuotaCheck": True}
    assert judged(report(subscription("a", 2, 0, 50_999)), **precise)["oldestBacklogMessageAgeSeconds"] == 50
    assert judged(report(subscription("a", 2, 0)), **precise)["oldestBacklogMessageAgeSeconds"] == -1


def test_the_seeds_half_hour() -> None:
    """Written 30 minutes ago: its age is 30 minutes, and so is the topic's (PIP-323, "Backlog")."""
    event = report(subscription("a", 1, -1, 1_800_000))
    decision = judged(event, seconds=1799, preciseTimeBasedBacklogQuotaCheck=True)
    assert decision["oldestBacklogMessageAgeSeconds"] == 1800
    assert decision["exceeded"] == ["message_age"]


def test_a_limit_that_is_met_is_not_exceeded() -> None:
    """Greater only; a size limit of 0 is a limit, a time limit of 0 is none."""
    assert judged(report(SLOW), 103_900, 100)["exceeded"] == []
    assert judged(report(SLOW), 103_899, 99)["exceeded"] == ["destination_storage", "message_age"]
    assert judged(report(SLOW), 0, 0)["exceeded"] == ["destination_storage"]


def test_both_quotas_are_checked_and_act_by_themselves() -> None:
    """Pulsar skips the time once the size is exceeded; we do not."""
    policies = {
        f"topics.{TOPIC}": quotas(100_000, None, HOLD),
        "namespaces.acme/orders": quotas(None, 60, EVICT),
    }
    (decision,) = replay([report(SLOW, subscription("b", 2, 1, 60_000))], policies)
    assert decision["actions"] == [
        {"quota_type": "size", "policy": HOLD},
        {"quota_type": "time", "policy": EVICT},
    ]
    assert decision["evict"] == [{"subscription": "slow", "before_publish_time": T0 - 60_000}]


def test_time_evicts_every_durable_subscription_that_is_too_old() -> None:
    """As sent, backlog or not; exactly at the limit is not older; lines by name."""
    others = [
        subscription("reader", 1, -1, 999_000, durable=False),
        subscription("exact", 1, 5, 60_000),
        subscription("done", 2, 2, 60_001),
        subscription("unknown", 1, 5),
    ]
    decision = judged(report(SLOW, *others), None, 60)
    before = T0 - 60_000
    assert decision["evict"] == [
        {"subscription": "done", "before_publish_time": before},
        {"subscription": "slow", "before_publish_time": before},
    ]


def hundred(*remaining: tuple[str, int], size: int) -> Event:
    """One ledger of the facts' traces, and subscriptions with so many entries left."""
    entries = max(left for _, left in remaining)
    ledgers = [{"id": 1, "entries": entries, "size": entries * size, "closeTime": None}]
    found = [subscription(name, 1, entries - left - 1) for name, left in remaining]
    return report(*found, ledgers=ledgers)


def evicted(decision: Decision) -> dict[str, int]:
    """Entries to acknowledge by subscription."""
    return {line["subscription"]: line["entries"] for line in decision["evict"]}


def test_trace_g_under_our_rule() -> None:
    """100 entries of 1,036 B, limit 50,000: Pulsar left 44 of each; 48 x 1,036 = 49,728 hold."""
    event = hundred(("slow", 100), ("mid", 80), ("fast", 10), size=1036)
    assert evicted(judged(event, 50_000, preciseBacklogSize=True)) == {"slow": 52, "mid": 32}


def test_trace_h_under_our_rule() -> None:
    """1,024 B entries, limit 409,600: Pulsar goes down to 360 of each, its 90 %; 400 hold."""
    event = hundred(("a", 1000), ("b", 400), ("c", 390), size=1024)
    assert evicted(judged(event, 409_600, preciseBacklogSize=True)) == {"a": 600}
    assert evicted(judged(event, 368_640, preciseBacklogSize=True)) == {"a": 640, "b": 40, "c": 30}


def test_trace_i_under_our_rule() -> None:
    """20 x 1,024 B, limit 10,240: Pulsar evicts 11, one less holds."""
    assert evicted(judged(hundred(("a", 20), size=1024), 10_240, preciseBacklogSize=True)) == {"a": 10}


def test_imprecise_eviction_takes_whole_ledgers_the_open_one_too() -> None:
    """Acknowledged to the end of its ledger, until the size is within the limit."""
    event = report(SLOW, subscription("mid", 1, 50), subscription("fast", 2, 0))
    assert evicted(judged(event, 103_899)) == {"slow": 100, "mid": 49}
    assert evicted(judged(event, 299)) == {"slow": 103, "mid": 52, "fast": 2}
    assert {(line["ledger"], line["entry"]) for line in judged(event, 299)["evict"]} == {(2, 2)}


def test_ledgers_without_entries_are_stepped_over() -> None:
    """The final position is an entry that exists."""
    empty = [{"id": number, "entries": 0, "size": 0, "closeTime": T0} for number in (3, 4)]
    ledgers = [CLOSED, *empty, OPEN | {"id": 5}]
    decision = judged(report(SLOW, ledgers=ledgers), 300)
    assert decision["evict"] == [{"subscription": "slow", "ledger": 1, "entry": 99, "entries": 100}]
    precise = judged(report(subscription("a", 3, -1), ledgers=ledgers), 250, preciseBacklogSize=True)
    assert precise["evict"] == [{"subscription": "a", "ledger": 5, "entry": 0, "entries": 1}]


class CountedLedgers(list[Ledger]):
    """Ledgers, and how often one was looked at."""

    looks = 0

    def __getitem__(self, place: Any) -> Any:
        self.looks += 1
        return super().__getitem__(place)


def test_ledgers_without_entries_are_stepped_over_at_once() -> None:
    """Who may report could keep the job busy for minutes by thousands of them, and of subscriptions."""
    ledgers = CountedLedgers(Ledger(id=n, entries=n // 999, size=0, close_time=None) for n in range(1000))
    log = Log(ledgers, precise=True)
    before = Subscription(name="s", ledger=-1, entry=-1, durable=True, oldest_publish_time=None)
    assert {log.place(before) for _ in range(1000)} == {(999, 0)}
    assert ledgers.looks <= 2_000


def test_policies_are_those_of_the_report_s_time() -> None:
    """A change counts from its ts on; a straggler goes by the policies of its topic's newest time."""
    timeline = timeline_of({}, [(5, f"topics.{TOPIC}", quotas(7))])
    found = replay([report(SLOW, at_ms=at) for at in (4, 5, 6)], timeline)
    assert [decision["backlogQuotaLimitSize"] for decision in found] == [-1, 7, 7]
    table = BacklogTable()
    fold(table, [report(SLOW, at_ms=6)], timeline, NOW)
    (late,) = fold(reloaded(table), [report(SLOW, at_ms=1)], timeline, NOW)
    assert (late["backlogQuotaLimitSize"], late["ts"], late["applied_ts"]) == (7, T0 + 1, T0 + 6)
    assert not any("applied_ts" in decision for decision in found)
    (again,) = replay([report(SLOW, at_ms=1) | {"applied_ts": T0 + 6}], timeline)
    assert again == late


def test_a_table_forgets_old_topics_and_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those last reported before the horizon leave; beyond MAX_TOPICS the oldest first, ties by name."""
    monkeypatch.setattr(backlog_table, "MAX_TOPICS", 2)
    timeline, table = timeline_of({}), BacklogTable()
    names = {name: f"persistent://acme/orders/{name}" for name in "dcba"}
    reports = [report(at_ms=9 if name == "d" else 1, topic=topic) for name, topic in names.items()]
    fold(table, reports, timeline)
    assert len(table) == 4, "a replay has its whole input in hand"
    fold(table, reports, timeline, NOW)
    assert sorted(table.names.to_pylist()) == [names["c"], names["d"]]
    fold(table, [report(at_ms=10, topic=names["a"])], timeline, NOW)
    assert sorted(table.names.to_pylist()) == [names["a"], names["d"]]
    table.sweep(timeline, T0 + 10)
    assert table.names.to_pylist() == [names["a"]]
