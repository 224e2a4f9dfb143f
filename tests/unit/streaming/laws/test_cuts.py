"""However a log is cut into batches and shards, each law of usage decides the same."""

from collections.abc import Sequence

import broker_histories
import dispatch_policies
import orjson
import pytest
import shares_kit
from event_kit import T0, Event
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries
from usage_kit import decisions_of, fold, in_order, reloaded

from streaming.laws.law import Decision, LawState
from streaming.laws.registry import LAWS
from streaming.laws.routing import routes
from streaming.policy.timeline import PolicyTimeline

HISTORIES = {
    "shares": shares_kit.histories(),
    "dispatch": dispatch_policies.histories(),
    "concurrency": broker_histories.sampled(),
    "backlog": broker_histories.reported(),
}
IN_ORDER = ("concurrency", "backlog")
"""What these decide comes in the same order, too."""


def decided(
    table: LawState, events: Sequence[Event], timeline: PolicyTimeline, *, end: bool = False
) -> list[Decision]:
    """What a table decides; rounds, in which reports come late, close at the end."""
    if type(table) is not LAWS.by_name["shares"].table:
        return fold(table, events, timeline)
    batch = shares_kit.batch(events, timeline, end=end)
    return [decision for _, decision in decisions_of(table.fold(batch))]


@pytest.mark.parametrize("law", HISTORIES)
@tries(80)
@given(st.data())
def test_batches_cut_anywhere_decide_as_one(law: str, data: st.DataObject) -> None:
    """With the state written, read and swept in between, and policies forgotten."""
    events, timeline = data.draw(HISTORIES[law])
    table, found, start = LAWS.by_name[law].table.from_columns({}), list[Decision](), 0
    known = PolicyTimeline.from_json(*timeline.to_json())
    while start < len(events):
        stop = start + data.draw(st.integers(1, 8))
        found += decided(table, events[start:stop], known)
        table = reloaded(table)
        if data.draw(st.booleans()):
            # As far back as the oldest late report of the rest, since what was swept is gone for that one.
            horizon = min((event["ts"] for event in events[stop:]), default=T0)
            table.sweep(known, horizon)
            known.forget_before(table.policies_from(horizon))
            table = reloaded(table)
        start = stop
    found += decided(table, [], known, end=True)
    whole = decided(LAWS.by_name[law].table.from_columns({}), events, timeline, end=True)
    same = list if law in IN_ORDER else in_order
    assert same(found) == same(whole)


@pytest.mark.parametrize("law", HISTORIES)
@tries(60)
@given(st.data(), st.integers(1, 4))
def test_shards_need_not_know_of_each_other(law: str, data: st.DataObject, shards: int) -> None:
    """Each decides what is its own of the log; a report of many groups is cut up."""
    events, timeline = data.draw(HISTORIES[law])
    own: list[list[Event]] = [[] for _ in range(shards)]
    for event in events:
        value = orjson.dumps(event)
        for route in routes(value, default_id="", default_ts=None, shards=shards, timeline=None):
            if route.law == law:
                own[route.shard].append(orjson.loads(route.value))
    made = LAWS.by_name[law].table.from_columns
    found = [decision for some in own for decision in decided(made({}), some, timeline, end=True)]
    assert in_order(found) == in_order(decided(made({}), events, timeline, end=True))
