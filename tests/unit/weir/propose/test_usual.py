"""What is usual: medians, peaks, what is left out, and how much a bucket must hold."""

from collections.abc import Sequence

import numpy as np
import pytest

from streaming.columns.byte_strings import Integers
from weir.propose.demand import HOUR_MS, MINUTE_MS, Demand
from weir.propose.usual import DAY_MS, PEERS_MIN, Usual, apart, hour_of, percentile


def demand_of(*subjects: Sequence[float], every_ms: int = HOUR_MS) -> Demand:
    """Subjects that ask for so much every hour."""
    rows = sorted(
        (number * every_ms, whose, amount)
        for whose, amounts in enumerate(subjects) for number, amount in enumerate(amounts) if amount
    )  # fmt: skip
    at, whose, amount = (np.array(column) for column in zip(*rows, strict=True))
    return Demand([f"s{n}" for n in range(len(subjects))], whose, whose, at, amount.astype(np.float64))


def far_of(*subjects: Sequence[float]) -> list[int]:
    """Who has hours that are left out."""
    return sorted(Usual.of(demand_of(*subjects), np.add).far)


def test_an_hour_far_beyond_ones_own_median_is_left_out() -> None:
    """Ten times is usual, eleven are not; what is left makes the peak."""
    assert far_of([4] * 20 + [40]) == []
    usual = Usual.of(demand_of([4] * 20 + [44]), np.add)
    assert usual.far == {0: (11.0, 20 * HOUR_MS)}
    assert usual.peak.tolist() == [4.0] and len(usual.demand.at) == 20


def test_a_subject_that_does_nothing_but_run_away_has_no_usual() -> None:
    """Its own median is 0, so that the others say what is usual; its peak is none."""
    crowd = [[5] * 24] * (PEERS_MIN + 1)
    usual = Usual.of(demand_of(*crowd, [0] * 12 + [500, 600]), np.add)
    assert {number: far.times for number, far in usual.far.items()} == {PEERS_MIN + 1: 120.0}
    assert usual.peak.tolist() == [5.0] * (PEERS_MIN + 1) + [0.0]


def test_a_short_burst_within_what_others_ask_for_is_usual() -> None:
    """Whoever works one hour a day is no runaway for that."""
    assert far_of(*([[5] * 24] * (PEERS_MIN + 1)), [0] * 12 + [50]) == []


def test_too_few_others_say_nothing() -> None:
    """A large one beside a small one is nobody's runaway."""
    assert far_of([1] * 24, [0] * 20 + [1000] * 4) == []


def test_one_runaway_of_several_does_not_hide_behind_another() -> None:
    """A tenth of the others may run away."""
    crowd = [[5] * 24] * 20
    assert far_of(*crowd, [0] * 10 + [900], [0] * 20 + [900]) == [20, 21]


def test_a_job_of_every_night_is_usual_from_the_third_day_on() -> None:
    """Its days' worst hours say so; on one day of three it is no habit."""
    crowd = [[5] * 72] * (PEERS_MIN + 1)
    night = [0] * 2 + [500] + [0] * 21
    assert far_of(*crowd, night * 3) == []
    assert far_of(*crowd, [*night, *([0] * 48)]) == [PEERS_MIN + 1]


def test_refunds_are_taken_off() -> None:
    """An hour of nothing but what is given back is no hour."""
    usual = Usual.of(demand_of([8, 9, -3]), np.add)
    assert usual.value.tolist() == [8.0, 9.0]


def test_levels_are_not_added_up() -> None:
    """The greatest of a window."""
    usual = Usual.of(demand_of([3, 5, 4], every_ms=1000), np.maximum, MINUTE_MS)
    assert usual.value.tolist() == [5.0]


def test_a_counter_for_each_broker_is_looked_at_by_itself() -> None:
    """The busiest broker says what a limit at each of them must be."""
    both = demand_of([2], [3])._replace(whose=np.array([0, 0]), part=np.array([0, 1]))
    assert Usual.of(both, np.add).value.tolist() == [3.0]


def walked(at: Integers, amount: Integers, rate: float) -> float:
    """How much a bucket must hold, event by event."""
    level, worst, last = 0.0, 0.0, int(at[0])
    for now, some in zip(at.tolist(), amount.tolist(), strict=True):
        level = max(0.0, level - rate * (now - last) / 1000.0)
        level, last = max(0.0, level + some), now
        worst = max(worst, level)
    return worst


@pytest.mark.parametrize("seed", range(20))
def test_the_burst_is_what_a_bucket_must_hold(seed: int) -> None:
    """As walked by hand, refunds too."""
    random = np.random.default_rng(seed)
    at = np.sort(random.integers(0, 600_000, 80))
    amount = random.integers(-5, 12, 80)
    whose = np.zeros(80, dtype=np.int64)
    demand = Demand(["s"], whose, whose, at, amount.astype(np.float64))
    rate = float(random.uniform(0.1, 2.0))
    assert Usual.of(demand, np.add).burst([0], rate) == pytest.approx(walked(at, amount, rate))


def test_seen_says_who_and_when() -> None:
    """Percentiles by nearest rank, of windows in which somebody asked."""
    usual = Usual.of(demand_of([1, 2, 0, 3], [9]), np.add)
    hour_ms = usual.window_ms
    assert usual.seen([0])[:4] == (2.0, 3.0, 3.0, "s0")
    assert usual.seen([0, 1]) == (2.0, 9.0, 9.0, "s1", 0) and hour_ms == 8 * MINUTE_MS


@pytest.mark.parametrize(
    ("span_ms", "hour_ms"),
    [(0, MINUTE_MS), (HOUR_MS, 3 * MINUTE_MS), (DAY_MS - 1, HOUR_MS), (30 * DAY_MS, HOUR_MS),
     (2**62, HOUR_MS)],
)  # fmt: skip
def test_short_logs_have_short_hours(span_ms: int, hour_ms: int) -> None:
    """About 24 of them, of a minute at least."""
    assert hour_of(np.array([0, span_ms])) == hour_ms
    assert hour_of(np.empty(0, dtype=np.int64)) == HOUR_MS


def test_percentiles_of_many() -> None:
    """Those without a value have 0."""
    whose, value = np.array([2, 0, 2, 2]), np.array([5.0, 1.0, 7.0, 6.0])
    assert percentile(whose, value, 50, 4).tolist() == [1.0, 0.0, 6.0, 0.0]


def test_no_more_than_so_many_are_apart() -> None:
    """The greatest; equal ones stay together, with the others."""
    peak = np.array([1.0] * 60 + [10.0, 20.0, 30.0, 30.0])
    assert np.flatnonzero(apart(peak, 50)).tolist() == [60, 61, 62, 63]
    assert np.flatnonzero(apart(peak, 3)).tolist() == [61, 62, 63]
    assert not apart(peak, 1).any() and not apart(np.zeros(3), 1).any()
