"""The rounds of the law of shares against the same told broker by broker: the same bytes."""

from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from event_kit import T0, Event, report, tick
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries
from rounds_kit import Rounds
from shares_kit import batch, histories
from usage_kit import entry_of, reloaded

from streaming.laws.law import Decision, DecisionForm
from streaming.laws.refresh import Refresh
from streaming.laws.shares import table as shares_table
from streaming.laws.shares.columns import Told
from streaming.laws.shares.table import SharesTable
from streaming.policy.timeline import PolicyTimeline
from streaming.state.body import Body, encode

Written = list[tuple[int, bytes, str, str, int]]
STANDING = DecisionForm(type="share", subject=("group", "broker"), standing=("group", "broker"))


class Model(Rounds):
    """The reference, with what stands of its decisions, as a shard repeats them."""

    def __init__(self) -> None:
        super().__init__()
        self.standing = Refresh(STANDING, None)

    def repeats(self, decided: Sequence[tuple[int, Decision]], now: int) -> list[bytes]:
        """What stands and must be said again at `now`, of those that still have shares."""
        self.standing.note(STANDING.columns(decided), now)
        told = {
            f"{group.name}/{broker}"
            for group in self.groups.values()
            for broker, member in group.members.items()
            if member.told
        }
        again = self.standing.repeats(now)
        if again is None:
            return []
        pairs = zip(again.column("key").to_pylist(), again.column("value").to_pylist(), strict=True)
        return sorted(value for subject, value in pairs if subject in told)


def written(table: SharesTable, events: Sequence[Event], timeline: PolicyTimeline, *, end: bool) -> Written:
    """(source, value, key, id, ts) of what a table decides, in its order."""
    decided = table.fold(batch(events, timeline, end=end))
    columns = (decided.column(name).to_pylist() for name in ("source", "value", "key", "id", "ts"))
    return list(zip(*columns, strict=True))


def body(table: SharesTable) -> bytes:
    """The state as it is carried."""
    return encode(Body(columns=table.columns(), notes={}))


@tries(60)
@given(histories(), st.data(), st.booleans())
def test_the_rounds_decide_what_the_reference_decides(
    history: tuple[list[Event], PolicyTimeline], data: st.DataObject, end: bool
) -> None:
    """Decisions, their order, what they answer, stale reports and repeats, batch by batch."""
    events, timeline = history
    table, model, start, newest = SharesTable(), Model(), 0, T0
    while start < len(events) or start == 0:
        stop = start + data.draw(st.integers(1, 12))
        ends = end and stop >= len(events)
        entries = [entry_of(event, source) for source, event in enumerate(events[start:stop])]
        expected = model.fold(entries, timeline, end=ends)
        rows = [
            (source, orjson.dumps(d), f"{d['group']}/{d['broker']}", d["id"], d["ts"])
            for source, d in expected
        ]
        assert written(table, events[start:stop], timeline, end=ends) == rows
        assert table.stale_reports == model.stale_reports
        newest = max([newest, *(entry.event.at for entry in entries)])
        again = table.repeats(newest, timeline)
        values = [] if again is None else again.column("value").to_pylist()
        assert sorted(values) == model.repeats(expected, newest)
        if again is not None:
            assert again.column("id").to_pylist() == [orjson.loads(value)["id"] for value in values]
        stale = table.stale_reports
        table = reloaded(table)
        table.stale_reports = stale
        start = stop


@tries(40)
@given(histories(), st.data())
def test_the_state_does_not_depend_on_the_cut(
    history: tuple[list[Event], PolicyTimeline], data: st.DataObject
) -> None:
    """Byte for byte; names that nobody has any more are gone."""
    events, timeline = history
    whole, table, start = SharesTable(), SharesTable(), 0
    whole.fold(batch(events, timeline, end=False))
    while start < len(events):
        stop = start + data.draw(st.integers(1, 8))
        table.fold(batch(events[start:stop], timeline, end=False))
        table = reloaded(table)
        start = stop
    assert body(table) == body(whole)


def test_room_for_decisions_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that closes many rounds of a large group; brokers leave in each, at last all of them."""
    walk, rooms = shares_table.walk, list[int]()

    def watched(*args: Any) -> None:
        walk(*args)
        (told,) = (each for each in args if isinstance(each, Told))
        assert told.filled[0] <= len(told.group) and told.filled[1] <= len(told.why)
        rooms.append(len(told.group))

    monkeypatch.setattr(shares_table, "walk", watched)
    timeline = PolicyTimeline({"resourcegroups.rg1": {"publishRateInMsgs": 5}})
    events = [
        report(number * 60_000, f"b{broker}", {"rg1": {"publishedMsg": broker * (number < min(broker, 19))}})
        for number in range(20)
        for broker in range(30)
    ]
    decided = written(SharesTable(), events, timeline, end=True)
    assert rooms[-1] > rooms[1]
    entries = [entry_of(event, source) for source, event in enumerate(events)]
    expected = Model().fold(entries, timeline, end=True)
    assert [value for _, value, *_ in decided] == [orjson.dumps(decision) for _, decision in expected]


def test_names_of_any_kind_are_written_as_orjson_writes_them() -> None:
    """Quotes, controls, other scripts; keys and ids are the names themselves."""
    name, broker = 'a"b\\c\n\u00e9\u4e2d', "b\t\U0001f600"
    timeline = PolicyTimeline({f"resourcegroups.{name}": {"publishRateInMsgs": 5}})
    event = report(0, broker, {name: {"publishedMsg": 1}})
    ((_, value, key, id, _),) = written(SharesTable(), [event], timeline, end=True)
    decision = orjson.loads(value)
    assert value == orjson.dumps(decision)
    assert (decision["group"], decision["broker"], decision["id"]) == (name, broker, id)
    assert key == f"{name}/{broker}" and id.startswith(f"{key}@")


def test_a_tick_that_changes_nothing_keeps_the_columns() -> None:
    """So that they need not be written again."""
    timeline = PolicyTimeline({"resourcegroups.rg1": {"publishRateInMsgs": 5}})
    table = SharesTable()
    event = report(0, "b", {"rg1": {"publishedMsg": 1}})
    table.fold(batch([event], timeline, end=False))
    before = table.columns()
    table.fold(batch([tick(1)], timeline, end=False))
    assert table.repeats(T0 + 1, timeline) is None
    assert table.columns() is before


def test_a_group_that_is_not_known_any_more_is_not_said_again() -> None:
    """Nobody has shares of it: its last ones end with their life time."""
    timeline = PolicyTimeline({"resourcegroups.rg1": {"publishRateInMsgs": 5}})
    table = SharesTable()
    event = report(0, "b", {"rg1": {"publishedMsg": 1}})
    table.fold(batch([event, tick(60_000)], timeline, end=False))
    assert table.repeats(T0 + 60_000, timeline) is None
    again = table.repeats(T0 + 120_000, timeline)
    assert again is not None and again.column("key").to_pylist() == ["rg1/b"]
    timeline.apply("resourcegroups.rg1", None, T0 + 130_000)
    table.fold(batch([tick(200_000)], timeline, end=False))
    assert table.repeats(T0 + 10**9, timeline) is None
