"""Properties of the concurrency law, for any numbers: bounds, and what must never change a decision."""

from math import isfinite
from typing import Any

import pytest
from broker_histories import ALL, limit_settings, samples
from event_kit import Event, sample
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries
from usage_kit import NOW, fold, limit_policy, replay, timeline_of

from streaming.contract.errors import BadEvent
from streaming.laws.concurrency.table import ConcurrencyTable
from streaming.laws.law import LawState


@given(limit_settings(), samples())
@tries(50)
def test_a_limit_stays_within_its_bounds(value: dict[str, Any], events: list[Event]) -> None:
    """Whatever the numbers; Vegas has no minimum but 1."""
    keys = value[value["algorithm"]]
    low = keys.get("minLimit", keys.get("limit", 1))
    high = keys.get("maxLimit", keys.get("limit"))
    decisions = replay(events, {ALL: value})
    assert len(decisions) == len(events)
    for decision in decisions:
        assert low <= decision["limit"] <= high
        assert isfinite(decision["estimated_limit"])
        assert decision["limit"] == int(decision["estimated_limit"])


@given(limit_settings(), samples(), st.integers(0, 60))
@tries(40)
def test_live_says_of_each_batch_what_a_replay_says_last(
    value: dict[str, Any], events: list[Event], cut: int
) -> None:
    """And nothing of partitions whose limit it has said: knowing the last said is knowing the limit."""
    timeline = timeline_of({ALL: value})
    replayed = {decision["id"]: decision for decision in replay(events, timeline)}
    table: LawState = ConcurrencyTable()
    said: dict[str, int] = {}
    for batch in (events[:cut], events[cut:]):
        newest = {event["partition"]: event["id"] for event in batch}
        for decision in fold(table, batch, timeline, NOW) if batch else []:
            assert decision == replayed[decision["id"]]
            assert newest[decision["partition"]] == decision["id"]
            assert said.get(decision["partition"]) != decision["limit"]
            said[decision["partition"]] = decision["limit"]
        for partition, name in newest.items():
            assert said[partition] == replayed[name]["limit"]


@pytest.mark.parametrize("rtt_ms", [0, -5])
def test_a_clock_that_went_back_never_reaches_the_law(rtt_ms: int) -> None:
    """Its event is no event, so the limit stays (the reasons are tested with the events)."""
    with pytest.raises(BadEvent, match="the clock went back"):
        replay([sample("x", 0, rtt_ms)], limit_policy())
