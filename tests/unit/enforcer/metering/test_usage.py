"""When a proxy reports which group, and how its records are cut."""

import doctest
import logging
from typing import Any

import pytest
from meter_kit import EPOCH_MS, POLICIES, TOPIC, Desk

from enforcer.core.feeds import shares
from enforcer.kafka.protocol.traffic import Passed
from enforcer.metering import usage
from enforcer.metering.account import PUBLISH
from enforcer.metering.usage import ROUNDS_MAX
from streaming.contract.usage_events import GroupUsage
from streaming.laws.registry import LAWS

FREE: dict[str, Any] = {**POLICIES, "resourcegroups.rg1": {"publishRateInMsgs": 100_000}}


def publish(desk: Desk, records: int, size: int = 0, topic: str = TOPIC) -> None:
    """Records pass."""
    desk.meter.charge([Passed(topic.encode(), records, size)], PUBLISH, False, None)


def rounds(desk: Desk, *counts: int) -> list[list[int]]:
    """Rounds of a second with so many records each; what was reported in each."""
    told = []
    for count in counts:
        publish(desk, count)
        desk.now_ms += 1_000
        desk.events.clear()
        desk.reports.report()
        told.append([event["usage"]["rg1"]["publishedMsg"] for event in desk.events])
    return told


def test_worked_examples() -> None:
    """Those in the docstrings."""
    for module in (usage, shares):
        results = doctest.testmod(module)
        assert results.attempted and not results.failed


def test_a_report_is_an_event_of_the_contract() -> None:
    """The job's own parser reads it back."""
    desk = Desk(POLICIES)
    publish(desk, 10, 1_000)
    desk.now_ms = 1_000.0
    desk.reports.report()
    (event,) = desk.events
    assert event == {
        "type": "group_usage", "id": f"p1-usage-{EPOCH_MS}-1", "broker": "p1", "period_ms": 1000,
        "usage": {
            "rg1": {
                "publishedMsg": 10, "publishedBytes": 1000, "dispatchedMsg": 0, "dispatchedBytes": 0,
                "throttledMs": {"publishRateInMsgs": 167},
            }
        },
    }  # fmt: skip
    read = LAWS.parse(usage.orjson.dumps(event), default_id="x", default_ts=1)
    assert isinstance(read, GroupUsage) and read.usage[0][1].throttled_ms[0] == 167


def test_about_the_same_use_is_reported_every_third_round() -> None:
    """A change of less than 10 % waits, but not for ever."""
    desk = Desk(FREE)
    assert ROUNDS_MAX == 3
    assert rounds(desk, 100, 105, 95, 100, 109, 100) == [[100], [], [], [100], [], []]


def test_a_change_is_reported_at_once() -> None:
    """10 % up or down, to something and to nothing."""
    desk = Desk(FREE)
    assert rounds(desk, 0, 100, 110, 99, 0) == [[], [100], [110], [99], [0]]


def test_silence_is_said_twice() -> None:
    """At once and once more in case that was lost; then the group costs nothing any more."""
    desk = Desk(FREE)
    told = rounds(desk, 100, *[0] * 10, 100)
    assert told == [[100], [0], [], [], [0], [], [], [], [], [], [], [100]]


def test_throttled_groups_are_reported_each_round() -> None:
    """Whatever the change."""
    desk = Desk(POLICIES)
    publish(desk, 200)
    told = rounds(desk, 0, 0, 0, 0)
    assert [len(one) for one in told] == [1] * 4


def test_a_new_share_is_answered_by_a_report() -> None:
    """In the next round; a share that is only repeated is not."""
    desk = Desk(FREE)
    rounds(desk, 100)
    desk.share(publishRateInMsgs=500.0)
    assert rounds(desk, 100) == [[100]]
    desk.share(publishRateInMsgs=500.0)
    assert rounds(desk, 100) == [[]]
    desk.share(publishRateInMsgs=510.0)
    assert rounds(desk, 100) == [[100]]


def test_records_are_cut() -> None:
    """Many groups make several records, each within the bound, with every group in one of them."""
    count = 300
    policies: dict[str, Any] = {}
    for number in range(count):
        policies[f"resourcegroups.group-{number}"] = {"publishRateInMsgs": 1}
        policies[f"namespaces.t/n{number}"] = {"resourcegroup": f"group-{number}"}
    desk = Desk(policies, usage_record_bytes=4_096)
    for number in range(count):
        publish(desk, 1, topic=f"t.n{number}.x")
    desk.now_ms = 1_000.0
    desk.reports.report()
    assert len(desk.events) > 1
    assert all(len(usage.orjson.dumps(event)) <= 4_096 for event in desk.events)
    named = [group for event in desk.events for group in event["usage"]]
    assert sorted(named) == sorted(f"group-{number}" for number in range(count))
    assert len({event["id"] for event in desk.events}) == len(desk.events)


def test_what_could_not_be_sent_is_told_again() -> None:
    """A full buffer loses a round, not the group."""
    desk = Desk(FREE)
    desk.full = True
    assert rounds(desk, 100) == [[]]
    desk.full = False
    assert rounds(desk, 100) == [[100]]


def test_a_group_that_is_held_back_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Once, with the limit that does it; again only after a quiet minute."""
    caplog.set_level(logging.INFO)
    desk = Desk(POLICIES)
    rounds(desk, 100, 100, 100)
    assert [record.getMessage() for record in caplog.records] == [
        "group rg1 is held back: publishRateInMsgs, of which this proxy may use 15 per second (joining)"
    ]
    desk.share(publishRateInMsgs=300.0)
    rounds(desk, *[0] * 70)
    rounds(desk, 1_000)
    assert len(caplog.records) == 2


def test_a_proxy_that_stops_says_so() -> None:
    """Its share is free at once; groups that are silent anyway are not named."""
    desk = Desk(FREE)
    rounds(desk, 100)
    desk.events.clear()
    desk.now_ms += 400
    desk.reports.farewell()
    assert [event["usage"]["rg1"]["publishedMsg"] for event in desk.events] == [0]
    desk.reports.farewell()
    assert len(desk.events) == 1
