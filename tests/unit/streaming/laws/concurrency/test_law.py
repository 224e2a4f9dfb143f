"""The concurrency law on the numbers of docs/contract.md 3.4 and docs/protocol_notes.md 5."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from event_kit import sample
from usage_kit import limit_policy, replay

BASE_MS = 10.0
NO_PROBE = 2_147_483_647
ROOTS = {"alpha": "3*log10", "beta": "6*log10"}


def limits_of(algorithm: str, rtts_ms: Iterable[float], keys: dict[str, Any], **fields: Any) -> list[int]:
    """The limit after each sample, without a window."""
    policies = limit_policy(algorithm=algorithm, useWindowed=False, **{algorithm: keys})
    events = [sample(str(i), i, rtt, **fields) for i, rtt in enumerate(rtts_ms)]
    return [decision["limit"] for decision in replay(events, policies)]


def count_until(found: list[int], reached: Callable[[int], bool]) -> int:
    """Samples up to the first limit that satisfies `reached`."""
    return next(number for number, limit in enumerate(found, start=1) if reached(limit))


def test_fixed_never_moves() -> None:
    """Zeebe's fixed limit, default 20."""
    assert limits_of("fixed", [1, 1000, 5], {}) == [20, 20, 20]
    assert limits_of("fixed", [1, 1000], {"limit": 7}, did_drop=True) == [7, 7]


@pytest.mark.parametrize("algorithm", ["aimd", "aimd-plain"])
def test_aimd_as_the_seed_says(algorithm: str) -> None:
    """Shorter than requestTimeout: 1 more; longer: reduced by the ratio; exactly as long is not longer."""
    assert limits_of(algorithm, [14, 200, 200.000001], {}, inflight=60) == [101, 102, 91]
    assert limits_of(algorithm, [14, 14], {}, inflight=49) == [100, 100]
    assert limits_of(algorithm, [14, 14], {}, inflight=50) == [101, 101]


def test_aimd_holds_where_plain_aimd_punishes_twice() -> None:
    """Zeebe 8.2+: more in flight than the limit allows were admitted before it fell."""
    assert limits_of("aimd", [300, 300], {}, inflight=100) == [90, 90]
    assert limits_of("aimd-plain", [300, 300], {}, inflight=100) == [90, 81]


@pytest.mark.parametrize(("low", "samples"), [(10, 19), (1, 27)])
def test_aimd_falls_from_100_in_so_many_bad_samples(low: int, samples: int) -> None:
    """From 100: 10 after 19 bad samples, 1 after 27 (docs/protocol_notes.md 5.2)."""
    found = limits_of("aimd-plain", [300] * 40, {"minLimit": low})
    assert count_until(found, lambda limit: limit <= low) == samples
    assert found[-1] == low


@pytest.mark.parametrize(
    ("factor", "zeebe", "library"),
    [(1.02, 106, 256), (1.05, 42, 42), (1.10, 22, 22), (1.20, 20, 20), (1.5, 17, 17), (2.0, 12, 12)],
)
def test_vegas_settles_where_it_was_measured(factor: float, zeebe: int, library: int) -> None:
    """The numbers of docs/protocol_notes.md 5.2, with Zeebe's functions and the library's."""
    rtts = [BASE_MS, *[BASE_MS * factor] * 400]
    keys = {"probeMultiplier": NO_PROBE}
    assert limits_of("vegas", rtts, keys)[-1] == zeebe
    assert limits_of("vegas", rtts, keys | ROOTS)[-1] == library


def test_vegas_probes_when_jitter_times_multiplier_times_limit_have_passed() -> None:
    """0.75 x 30 x 20 = 450 samples: the 450th makes even a greater time the base, then the queue is empty."""
    found = limits_of("vegas", [BASE_MS, *[BASE_MS * 1.2] * 451], {})
    assert found[448:] == [20, 20, 26, 32]


def test_gradient_is_as_fast_as_it_was_measured() -> None:
    """20 -> 1000 in 58 calm samples, 1000 -> 10 in 60 at a hundredfold time."""
    keys = {"probeInterval": -1}
    found = limits_of("gradient", [BASE_MS] * 58 + [100 * BASE_MS] * 60, keys)
    assert count_until(found, lambda limit: limit == 1000) == 58
    assert count_until(found[58:], lambda limit: limit == 10) == 60


def test_gradient_collapses_at_a_probe() -> None:
    """1000 -> 31 and 20 -> 10; the countdown starts and restarts at exactly probeInterval."""
    high = {"initialLimit": 1000, "probeInterval": 3}
    assert limits_of("gradient", [BASE_MS] * 5, high)[:4] == [1000, 1000, 1000, 31]
    assert limits_of("gradient", [BASE_MS] * 9, {"probeInterval": 3}, inflight=0) == [20] * 3 + [10] * 6
    assert limits_of("gradient", [BASE_MS] * 1001, {})[-2:] == [1000, 31]


def test_gradient_takes_its_new_base_from_the_sample_after_the_probe() -> None:
    """The probing sample itself is forgotten (docs/protocol_notes.md 5.2)."""
    rtts = [1.0, 1.0, 1.0, 40.0]
    assert limits_of("gradient", rtts, {"probeInterval": 2}) == [24, 28, 10, 14]


def test_gradient2_is_as_fast_as_it_was_measured() -> None:
    """20 -> 100 in 100 calm samples, then 10 after 33 at ten times the time."""
    found = limits_of("gradient2", [BASE_MS] * 100 + [10 * BASE_MS] * 120, {})
    assert found[99] in (99, 100)  # 0.2 x 4 a hundred times, in doubles
    assert found[98] < 100
    overload = found[100:]
    assert count_until(overload, lambda limit: limit == 10) == 33
    assert overload[-1] > 10, "a long overload becomes the new normal"


def test_gradient2_ignores_drops() -> None:
    """A dropped sample counts as any other, as in the library."""
    assert limits_of("gradient2", [BASE_MS] * 3, {}, did_drop=True) == limits_of(
        "gradient2", [BASE_MS] * 3, {}
    )


def test_a_smaller_maximum_than_gradients_floor_is_kept() -> None:
    """Here we differ from the library, whose floor of 4 beats maxLimit."""
    keys = {"minLimit": 1, "initialLimit": 2, "maxLimit": 2, "probeInterval": 2}
    assert limits_of("gradient", [BASE_MS] * 7, keys) == [2] * 7


def windowed(rtts_ms: list[float], gap_ms: int, **keys: Any) -> list[int]:
    """The limit after each sample of a windowed AIMD whose requests end `gap_ms` apart."""
    policies = limit_policy(algorithm="aimd", **keys)
    events = [sample(str(i), i * gap_ms, rtt, 55) for i, rtt in enumerate(rtts_ms)]
    return [decision["limit"] for decision in replay(events, policies)]


def test_a_window_moves_the_limit_once_a_second() -> None:
    """The first sample closes a window of its own; then each window closes at a sample beyond its second."""
    found = windowed([14] * 34, 100)
    assert [found[i] for i in (0, 10, 11, 21, 22, 33)] == [100, 100, 101, 101, 102, 103]


def test_a_window_of_fewer_samples_is_thrown_away() -> None:
    """Below about nine requests a second the limit never moves (docs/protocol_notes.md 5.3)."""
    assert set(windowed([14] * 60, 125)) == {100}


def test_a_fast_sample_does_not_count() -> None:
    """Less than minRttThreshold: dropped completely, drop flag and in-flight too."""
    assert set(windowed([0.099999] * 40, 100)) == {100}
    assert windowed([0.1] * 40, 100)[-1] > 100


def test_a_window_lasts_twice_its_shortest_time_within_its_bounds() -> None:
    """minWindow 1 s, maxWindow 3 s, times of 1.2 s: 2.4 s."""
    found = windowed(
        [1200] * 60, 100, window={"minWindow": "1s", "maxWindow": "3s"}, aimd={"requestTimeout": "2s"}
    )
    assert [i for i in range(1, 60) if found[i] != found[i - 1]] == [25, 50]


def test_a_negative_clock_never_closes_a_window() -> None:
    """As in the library, whose windows begin at 0 (docs/protocol_notes.md 5.3)."""
    policies = limit_policy()
    events = [sample(str(i), i * 100, 14, 55, start_ns=-(10**15) + i * 10**8) for i in range(100)]
    assert {decision["limit"] for decision in replay(events, policies)} == {100}


def test_requests_that_end_out_of_order_are_fine() -> None:
    """start_ns may go back; an older end does not close a window."""
    policies = limit_policy(useWindowed=True)
    starts = [0, 10**9, 5 * 10**8, 2 * 10**9]
    events = [sample(str(i), i, 14, 55, start_ns=start + 1) for i, start in enumerate(starts)]
    assert {decision["limit"] for decision in replay(events, policies)} == {100}
