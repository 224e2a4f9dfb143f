"""When a proxy reports which group, how its records are cut, and that packed ones say the same as JSON."""

import logging
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from meter_kit import EPOCH_MS, POLICIES, Desk, many_groups, publish
from property_kit import tries

from enforcer.core.account import PUBLISH, Use
from enforcer.laws.shares import usage
from enforcer.laws.shares.usage import ROUNDS_MAX, _entry, packed_reports
from streaming.columns.json_rows import objects
from streaming.columns.packed import unpack
from streaming.contract.fields import INT64_MAX
from streaming.contract.usage_events import GroupUsage
from streaming.laws.registry import LAWS
from streaming.policy.policy_set import PolicySet


def rounds(desk: Desk, *counts: int) -> list[list[int]]:
    """Rounds of a second with so many records each; what was reported in each."""
    told = []
    for count in counts:
        publish(desk, count)
        desk.events.clear()
        desk.report()
        told.append([event["usage"]["rg1"]["publishedMsg"] for event in desk.events])
    return told


def test_a_report_is_an_event_of_the_contract() -> None:
    """The job's own parser reads it back."""
    desk = Desk(POLICIES)
    publish(desk, 10, 1_000)
    desk.report()
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
    read = LAWS.parse(orjson.dumps(event), default_id="x", default_ts=1)
    assert isinstance(read, GroupUsage) and read.usage[0][1].throttled_ms[0] == 167


@pytest.fixture
def desk() -> Desk:
    """Its groups have no limit."""
    return Desk({**POLICIES, "resourcegroups.rg1": {"publishRateInMsgs": 100_000}})


def test_about_the_same_use_is_reported_every_third_round(desk: Desk) -> None:
    """A change of less than 10 % waits, but not for ever."""
    assert ROUNDS_MAX == 3
    assert rounds(desk, 100, 105, 95, 100, 109, 100) == [[100], [], [], [100], [], []]


def test_a_change_is_reported_at_once(desk: Desk) -> None:
    """10 % up or down, to something and to nothing."""
    assert rounds(desk, 0, 100, 110, 99, 0) == [[], [100], [110], [99], [0]]


def test_silence_is_said_twice(desk: Desk) -> None:
    """At once and once more in case that was lost; then the group costs nothing any more."""
    told = rounds(desk, 100, *[0] * 10, 100)
    assert told == [[100], [0], [], [], [0], [], [], [], [], [], [], [100]]


def test_throttled_groups_are_reported_each_round() -> None:
    """Whatever the change."""
    desk = Desk(POLICIES)
    publish(desk, 200)
    told = rounds(desk, 0, 0, 0, 0)
    assert [len(one) for one in told] == [1] * 4


def test_a_new_share_is_answered_by_a_report(desk: Desk) -> None:
    """In the next round; a share that is only repeated is not."""
    rounds(desk, 100)
    desk.share(publishRateInMsgs=500.0)
    assert rounds(desk, 100) == [[100]]
    desk.share(publishRateInMsgs=500.0)
    assert rounds(desk, 100) == [[]]
    desk.share(publishRateInMsgs=510.0)
    assert rounds(desk, 100) == [[100]]


def test_a_report_that_is_too_large_for_one_record_is_packed() -> None:
    """Of few groups with the longest names, as of quotas of client ids: no record is too large for Kafka."""
    names = ["n" * 40_000 + str(number) for number in range(15)]
    groups = {f"resourcegroups.{name}": {"publishRateInMsgs": 1} for name in names}
    tied = {f"namespaces.t/n{place}": {"resourcegroup": name} for place, name in enumerate(names)}
    desk = Desk(groups | tied)
    pass_a_round(desk, len(names))
    assert len(desk.packs) == 1
    assert [list(event["usage"]) for event in desk.events] == [names]


def test_what_could_not_be_sent_is_told_again(desk: Desk) -> None:
    """A full buffer loses a round, not the group."""
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


def test_of_many_that_are_held_back_the_log_names_some(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client with a name for each connection would fill the disk by it."""
    monkeypatch.setattr(usage, "_SHOWN", 2)
    caplog.set_level(logging.INFO)
    desk = Desk(many_groups(5, rate=10))
    for _ in range(2):
        for number in range(5):
            publish(desk, 1_000, topic=f"t.n{number}.x")
        desk.report()
    said = [record.getMessage() for record in caplog.records]
    assert [line[:15] for line in said] == ["group g0 is hel", "group g1 is hel", "3 more groups a"]


def told_use(desk: Desk) -> dict[str, int]:
    """Messages by group, of all reports since the last call."""
    told: dict[str, int] = {}
    for event in desk.events:
        for group, entry in event["usage"].items():
            told[group] = told.get(group, 0) + entry["publishedMsg"]
    desk.events.clear()
    return told


def test_a_group_that_makes_room_is_reported() -> None:
    """Once a round, however often it left and came back; then its silence is said: its share is free."""
    desk = Desk(many_groups(4), subjects_max=2)
    for _ in range(2):
        for number in range(4):
            publish(desk, 10 + number, topic=f"t.n{number}.x")
    assert len(desk.meter.accounts) <= 2 and desk.meter.unmetered == 0
    desk.report()
    assert len(desk.events) == 1
    assert told_use(desk) == {"g0": 20, "g1": 22, "g2": 24, "g3": 26}
    desk.report()
    assert told_use(desk) == {"g0": 0, "g1": 0, "g2": 0, "g3": 0}
    assert desk.reports._told.keys() <= desk.meter.accounts.keys()


def test_what_was_used_before_a_policy_went_is_reported() -> None:
    """And what was owed, since bills have it; then silence."""
    desk = Desk(many_groups(1, rate=1_000))
    publish(desk, 500, topic="t.n0.x")
    desk.meter.set_policies(PolicySet({}))
    assert not desk.meter.accounts
    for used in ({"g0": 500}, {"g0": 0}, {}):
        desk.report()
        assert told_use(desk) == used


def test_time_in_debt_of_a_group_that_made_room_is_reported() -> None:
    """All of the round's, as if it had stayed."""
    desk = Desk(many_groups(2, rate=1_000), subjects_max=1)
    for _ in range(2):
        publish(desk, 35, topic="t.n0.x")  # 50 a second, 25 in stock
        desk.now_ms += 200
        desk.meter.accounts["g0"].charge(PUBLISH, 0, 0, desk.now_ms)
        publish(desk, 1, topic="t.n1.x")
        desk.now_ms += 300
    desk.reports.report()
    usage = desk.events[0]["usage"]
    assert usage["g0"]["publishedMsg"] == 70 and usage["g1"]["publishedMsg"] == 2
    assert usage["g0"]["throttledMs"] == {"publishRateInMsgs": 400}


def test_use_that_is_kept_for_the_report_is_bounded() -> None:
    """At the bound no account makes room until the report; what finds none is counted, nothing is lost."""
    count, subjects_max = 50, 4
    desk = Desk(many_groups(count), subjects_max=subjects_max)
    for number in range(count):
        publish(desk, 1, topic=f"t.n{number}.x")
    assert len(desk.meter.accounts) == len(desk.meter._left[False]) == subjects_max
    desk.report()
    assert sum(told_use(desk).values()) + desk.meter.unmetered == count and not desk.meter._left[False]
    publish(desk, 1, topic="t.n0.x")
    assert desk.meter.unmetered == count - 2 * subjects_max


def reportable(desk: Desk) -> int:
    """Messages that a report could tell now, of all groups."""
    uses = [account.period(desk.now_ms) for account in desk.meter.accounts.values()]
    return sum(use.counts[PUBLISH] for use in [*uses, *desk.meter.take_left().values()])


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 90), st.sampled_from([0, 7, 400])), max_size=80))
def test_all_use_is_reported_or_counted(steps: list[tuple[int, int, int]]) -> None:
    """Whatever order groups come in, with debts that are waited off later; a throttled one may say 1 more."""
    desk = Desk(many_groups(8, rate=1_000), subjects_max=3)
    passed = told = 0
    for number, (group, records, pause_ms) in enumerate(steps):
        before = desk.meter.unmetered
        publish(desk, records, topic=f"t.n{group}.x")
        passed += records if desk.meter.unmetered == before else 0
        desk.now_ms += pause_ms
        if number % 9 == 8:
            told += reportable(desk)
    desk.now_ms += 10**7
    told += reportable(desk)
    assert passed <= told <= passed + len(steps)


def test_a_proxy_that_stops_says_so(desk: Desk) -> None:
    """Its share is free at once; groups that are silent anyway are not named."""
    rounds(desk, 100)
    desk.events.clear()
    desk.now_ms += 400
    desk.reports.farewell()
    assert [event["usage"]["rg1"]["publishedMsg"] for event in desk.events] == [0]
    desk.reports.farewell()
    assert len(desk.events) == 1


HEAD: dict[str, Any] = {"id": "p1-usage-1", "broker": "p1", "period_ms": 60_000}
COUNTS = st.sampled_from([0, 1, 255, 256, 70_000, 5_000_000_000, INT64_MAX])
USES = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=6),
    st.builds(Use, st.tuples(*[COUNTS] * 4), st.tuples(*[st.none() | COUNTS] * 4)),
    min_size=1, max_size=30,
)  # fmt: skip


def reports(values: list[bytes]) -> list[dict[str, Any]]:
    """What packed records say."""
    return [orjson.loads(row) for value in values for row in objects(*unpack(value)).to_pylist()]


@given(USES, st.sampled_from([1, 3_000, 900_000]))
@tries(200)
def test_packed_as_json(uses: dict[str, Use], most: int) -> None:
    """Byte for byte but for the id of a part; cut, all groups are there once and in order."""
    found = list(packed_reports(HEAD, uses, most))
    told = reports([value for _, value in found])
    assert [list(report["usage"]) for report in told] == [list(groups) for groups, _ in found]
    assert len({report["id"] for report in told}) == len(told)
    assert all(len(value) <= most or len(groups) == 1 for groups, value in found)
    together = {group: entry for report in told for group, entry in report["usage"].items()}
    as_json = {"type": "group_usage", **HEAD, "usage": {group: _entry(use) for group, use in uses.items()}}
    whole = {**told[0], "id": HEAD["id"], "usage": together}
    assert orjson.dumps(whole) == orjson.dumps(as_json)


def pass_a_round(desk: Desk, groups: int) -> None:
    """So many groups are used, and reported."""
    for number in range(groups):
        publish(desk, 1 + number, 10, f"t.n{number}.x")
    desk.report()


def test_many_groups_are_packed_few_are_not() -> None:
    """From bounds.PACK_MIN on; what was dropped is told again in the next round."""
    few, many = Desk(many_groups(15)), Desk(many_groups(16))
    pass_a_round(few, 15)
    for many.full in (True, False):
        pass_a_round(many, 16)
    assert (len(few.packs), len(many.packs)) == (0, 1)
    for desk, count in ((few, 15), (many, 16)):
        (event,) = desk.events
        assert list(event["usage"]) == [f"g{number}" for number in range(count)]
        assert {name: use["publishedMsg"] for name, use in event["usage"].items()} == {
            f"g{number}": number + 1 for number in range(count)
        }
    assert many.reports.reported["g3"] == 1
