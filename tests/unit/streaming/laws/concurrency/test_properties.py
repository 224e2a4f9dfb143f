"""Properties of the concurrency law, for any numbers: bounds, and what must never change a decision."""

from math import isfinite
from typing import Any

import pytest
from event_kit import Event, sample
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries
from usage_kit import NOW, Decision, fold, limit_policy, reloaded, replay, timeline_of

from streaming.contract.errors import BadEvent
from streaming.laws.concurrency.table import ConcurrencyTable
from streaming.laws.law import LawState
from streaming.laws.name_hashes import shard_of

ALL = "backpressure.partitions.*"
BIG = 2**63 - 1
ROUND_TRIPS = st.one_of(
    st.sampled_from([1, 99_999, 100_000, 10**9, 2**62, BIG]), st.integers(1, 10**9), st.integers(1, BIG)
)
STARTS = st.one_of(st.sampled_from([-(2**63), -1, 0, BIG]), st.integers(0, 10**11))
INFLIGHT = st.one_of(st.integers(0, 300), st.sampled_from([BIG, 2**31]))
ROOTS = st.one_of(st.integers(1, 50), st.sampled_from(["log10", "3*log10", "0.5*log10", "999999999*log10"]))
SMOOTHING = st.floats(0.01, 1.0)


@st.composite
def limit_settings(draw: st.DrawFn) -> dict[str, Any]:
    """Any entry that the policy check lets pass, with or without a window."""
    low, start, high = sorted(draw(st.lists(st.integers(1, 2000), min_size=3, max_size=3)))
    bounds = {"minLimit": low, "initialLimit": start, "maxLimit": high}
    backoff = draw(st.floats(0.5, 0.99))
    tolerance = draw(st.floats(1.0, 10.0))
    keys: dict[str, dict[str, Any]] = {
        "fixed": {"limit": start},
        "aimd": {**bounds, "backoffRatio": backoff},
        "vegas": {
            "initialLimit": start,
            "maxLimit": high,
            "alpha": draw(ROOTS),
            "beta": draw(ROOTS),
            "threshold": draw(ROOTS),
            "smoothing": draw(SMOOTHING),
            "probeMultiplier": draw(st.sampled_from([1, 30, 2**31 - 1])),
        },
        "gradient": {
            **bounds, "rttTolerance": tolerance, "smoothing": draw(SMOOTHING), "backoffRatio": backoff,
            "probeInterval": draw(st.sampled_from([-1, 1, 7])),
        },
        "gradient2": {
            **bounds, "rttTolerance": tolerance, "smoothing": draw(SMOOTHING),
            "queueSize": draw(st.integers(1, 50)), "longWindow": draw(st.sampled_from([1, 50, 600])),
        },
    }  # fmt: skip
    keys["aimd-plain"] = keys["aimd"]
    algorithm = draw(st.sampled_from(sorted(keys)))
    windowed = draw(st.booleans())
    window = {"windowSize": draw(st.sampled_from([1, 3, 10]))}
    value = {"algorithm": algorithm, algorithm: keys[algorithm], "useWindowed": windowed, "window": window}
    return limit_policy(**value)[ALL]  # type: ignore[no-any-return]


@st.composite
def samples(draw: st.DrawFn, most: int = 60) -> list[Event]:
    """Samples of three partitions in order of time, of any size, their own clocks jumping as they like."""
    events = []
    for number in range(draw(st.integers(1, most))):
        fields: dict[str, Any] = {
            "rtt_ns": draw(ROUND_TRIPS),
            "partition": draw(st.sampled_from(["a", "b", "c"])),
            "did_drop": draw(st.booleans()),
        }
        if draw(st.booleans()):
            fields["start_ns"] = draw(STARTS)
        events.append(sample(str(number), number * 50, 1, draw(INFLIGHT), **fields))
    return events


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


CHANGES = st.lists(
    st.tuples(
        st.integers(0, 3000),
        st.sampled_from([ALL, "backpressure.partitions.a"]),
        st.one_of(st.none(), limit_settings()),
    ),
    max_size=3,
)


@given(limit_settings(), CHANGES, samples(), st.data())
@tries(40)
def test_splitting_sweeping_and_checkpoints_change_nothing(
    value: dict[str, Any], changes: list[Any], events: list[Event], data: st.DataObject
) -> None:
    """Batches cut anywhere, state through bytes and swept between them, the same decisions."""
    timeline = timeline_of({ALL: value}, changes)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=3)))
    table: LawState = ConcurrencyTable()
    found: list[Decision] = []
    for first, last in zip([0, *cuts], [*cuts, len(events)], strict=True):
        if first < last:
            found += fold(table, events[first:last], timeline)
            table = reloaded(table)
            table.sweep(timeline, events[last - 1]["ts"])
    assert found == replay(events, timeline)


@given(limit_settings(), samples(), st.integers(1, 4))
@tries(15)
def test_sharding_changes_nothing(value: dict[str, Any], events: list[Event], shards: int) -> None:
    """Partitions do not know of each other."""
    found: dict[str, Decision] = {}
    for shard in range(shards):
        mine = [e for e in events if shard_of(e["partition"], shards) == shard]
        found |= {d["id"]: d for d in (replay(mine, {ALL: value}) if mine else [])}
    assert [found[str(number)] for number in range(len(events))] == replay(events, {ALL: value})


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
