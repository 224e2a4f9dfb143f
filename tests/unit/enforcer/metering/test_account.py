"""Buckets and accounts: what a proxy may use of a group, what it reports, what a share changes."""

import doctest
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enforcer.core.settings import ExpiredShare
from enforcer.metering import bucket as bucket_module
from enforcer.metering.account import DISPATCH, PUBLISH, Account, ShareRules, State
from enforcer.metering.bucket import LONGEST_WAIT_MS, Bucket
from streaming.policy.groups import GroupLimits

MSGS = (300.0, None, None, None)


def account(
    rates: tuple[float | None, ...] = MSGS, shadow: bool = False, **rules: float | ExpiredShare
) -> Account:
    """An account at time 0."""
    return Account("rg1", GroupLimits(rates=rates, shadow=shadow), ShareRules(**rules), 0.0)  # type: ignore[arg-type]


class Waiting:
    """A connection that waits (account.Waiter)."""

    def __init__(self) -> None:
        self.told: list[tuple[int, float]] = []

    def hasten(self, account: Account, dimension: int, factor: float) -> None:
        self.told.append((dimension, factor))


def test_worked_examples() -> None:
    """Those in the docstring of the bucket."""
    results = doctest.testmod(bucket_module)
    assert results.attempted and not results.failed


@given(
    st.lists(st.tuples(st.floats(0, 5_000), st.integers(0, 500)), min_size=1, max_size=40),
    st.floats(0.5, 1e4),
    st.floats(0.01, 5),
)
def test_never_above_rate_and_burst(steps: list[tuple[float, int]], rate: float, burst_s: float) -> None:
    """A client that waits as told gets at most the burst, the rate times the time, and one request."""
    bucket = Bucket(rate, burst_s, 0.0)
    now_ms, passed, largest = 0.0, 0, 0
    for pause_ms, count in steps:
        now_ms += pause_ms
        now_ms += bucket.charge(count, now_ms)
        passed, largest = passed + count, max(largest, count)
        assert passed <= rate * burst_s + rate * now_ms / 1000 + 1e-6 * (1 + passed)
        assert bucket.debt <= largest + 1e-9


@given(st.lists(st.tuples(st.floats(1, 900), st.integers(1, 99)), max_size=30), st.floats(1, 500))
def test_time_in_debt_is_the_time_waited(steps: list[tuple[float, int]], rate: float) -> None:
    """What is reported as throttled is what clients were told to wait."""
    bucket = Bucket(rate, 0.1, 0.0)
    now_ms = waited_ms = 0.0
    for pause_ms, count in steps:
        wait_ms = bucket.charge(count, now_ms)
        waited_ms += wait_ms
        now_ms += wait_ms + pause_ms
    bucket.settle(now_ms)
    assert bucket.debt_ms == pytest.approx(waited_ms, abs=1e-3)


def test_balance_and_debt_are_kept_when_the_rate_changes() -> None:
    """A debt is repaid at the new rate; a balance is cut to the new burst, not filled up."""
    bucket = Bucket(100.0, 1.0, 0.0)
    assert bucket.charge(150, 0.0) == 500.0
    bucket.set_rate(10.0, 0.0)
    assert (bucket.tokens, bucket.wait_ms(0.0)) == (-50.0, 5_000.0)
    bucket.set_rate(1_000.0, 50_000.0)
    assert bucket.tokens == 10.0
    bucket.set_rate(5.0, 50_000.0)
    assert bucket.tokens == 5.0


def test_no_limit_and_next_to_none() -> None:
    """Without a limit nothing waits; a rate next to 0 waits as long as a response can say."""
    assert Bucket(inf, 1.0, 0.0).charge(1e9, 5.0) == 0.0
    assert Bucket(1e-280, 1.0, 0.0).charge(1, 5.0) == LONGEST_WAIT_MS


def test_joining_active_removed() -> None:
    """5 % of the limit without a share, then the share, then 5 % again."""
    one = account()
    assert (one.state, one.rate(PUBLISH)) == (State.JOINING, 15.0)
    one.take_share({"publishRateInMsgs": 100.0}, 1, 3_000, 0.0)
    assert (one.state, one.rate(PUBLISH)) == (State.ACTIVE, 100.0)
    one.take_share(None, 2, 3_000, 0.0)
    assert (one.state, one.rate(PUBLISH)) == (State.JOINING, 15.0)
    # A job that was killed writes some decisions again.
    one.take_share({"publishRateInMsgs": 100.0}, 1, 3_000, 0.0)
    assert one.state is State.JOINING


def test_a_dimension_without_share_is_joining() -> None:
    """A share for messages says nothing of bytes that were not used yet."""
    one = account((300.0, 1000.0, None, None))
    one.take_share({"publishRateInMsgs": 100.0}, 1, 3_000, 0.0)
    assert (one.rate(0), one.rate(1), one.rate(2)) == (100.0, 50.0, None)


@pytest.mark.parametrize(
    ("rule", "rate"),
    [
        (ExpiredShare.KEEP, 100.0),
        (ExpiredShare.SAFE_FRACTION, 50.0),
        (ExpiredShare.OPEN, inf),
        (ExpiredShare.CLOSED, 1e-280),
    ],
)
def test_an_expired_share(rule: ExpiredShare, rate: float) -> None:
    """Each rule, from the end of the life time to the next share."""
    one = account(expired=rule)
    one.take_share({"publishRateInMsgs": 100.0}, 1, 3_000, 0.0)
    assert not one.expire(2_999) and one.rate(0) == 100.0
    assert one.expire(3_000) and not one.expire(3_001)
    assert (one.state, one.rate(0)) == (State.EXPIRED, rate)
    # A repeated share has its old time of decision and begins a new life.
    one.take_share({"publishRateInMsgs": 100.0}, 1, 3_000, 4_000)
    assert one.rate(0) == 100.0 and not one.expire(6_999)


def test_the_stricter_dimension_counts() -> None:
    """Messages or bytes, whichever is longer in debt."""
    one = account((300.0, 10_000.0, None, None), joining_fraction=1.0, burst_s=0.001)
    wait = one.charge(PUBLISH, 30, 100, 0.0)
    assert (wait.dimension, round(wait.ms)) == (0, 99)
    wait = one.charge(PUBLISH, 0, 10_000, 0.0)
    assert (wait.dimension, round(wait.ms)) == (1, 1009)
    assert one.charge(DISPATCH, 1000, 10**9, 0.0).ms == 0


def test_a_share_above_a_limit_that_was_cut() -> None:
    """The limit counts at once; a removed one frees those who wait."""
    one, waiting = account(), Waiting()
    one.take_share({"publishRateInMsgs": 200.0}, 1, 3_000, 0.0)
    one.waiting.add(waiting)
    one.set_limits(GroupLimits(rates=(150.0, None, None, None), shadow=False), 0.0)
    assert one.rate(0) == 150.0 and not waiting.told
    one.set_limits(GroupLimits(rates=(None, None, None, None), shadow=False), 0.0)
    assert one.buckets[0] is None and waiting.told == [(0, 0.0)]


def test_those_who_wait_hear_of_a_larger_share() -> None:
    """Ten times the rate: a tenth of the wait is left. A little more changes nothing."""
    one, waiting = account(), Waiting()
    one.waiting.add(waiting)
    one.take_share({"publishRateInMsgs": 150.0}, 1, 3_000, 0.0)
    assert waiting.told[-1] == (0, 0.1)
    one.take_share({"publishRateInMsgs": 160.0}, 2, 3_000, 0.0)
    assert waiting.told == [(0, 0.1)]


def test_shadow_is_counted_only() -> None:
    """Nobody waits, the time that would have been waited is reported, and no debt piles up."""
    one = account(shadow=True)
    for second in range(10):
        assert one.charge(PUBLISH, 300, 1, second * 1000.0).ms == 0
    use = one.period(10_000.0)
    assert use.counts[0] == pytest.approx(3_000, abs=15)
    assert use.throttled_ms[0] == pytest.approx(10_000, abs=1)
    bucket = one.buckets[0]
    assert bucket is not None and bucket.debt <= 15.0


def test_debt_is_reported_as_it_is_waited_off() -> None:
    """300 at once at 100 a second look like 100 a second for some seconds, and add up to 300."""
    one = account(burst_s=0.001)
    one.take_share({"publishRateInMsgs": 100.0}, 1, 3_000, 0.0)
    one.charge(PUBLISH, 300, 3_000, 0.0)
    uses = [one.period(second * 1000.0) for second in range(1, 6)]
    assert [use.counts[0] for use in uses] == [100, 100, 100, 0, 0]
    assert [use.throttled_ms[0] for use in uses] == [1000, 1000, 1000, 0, 0]
    # What is not limited is reported as it passed.
    assert [use.counts[1] for use in uses] == [3_000, 0, 0, 0, 0]


def test_a_slow_share_is_not_silence() -> None:
    """At a message in ten seconds a proxy that is throttled reports a message, and is not taken for idle."""
    one = account(burst_s=0.001)
    one.take_share({"publishRateInMsgs": 0.1}, 1, 3_000, 0.0)
    one.charge(PUBLISH, 2, 0, 0.0)
    counts = [one.period(second * 1000.0).counts[0] for second in range(1, 10)]
    assert counts == [1] * 9


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 200)), max_size=60))
def test_reports_add_up(steps: list[tuple[int, int]]) -> None:
    """Over time as much is reported as has passed, whatever the sizes."""
    one = account()
    now_ms = total = reported = 0
    for pause_ms, count in steps:
        now_ms += pause_ms
        one.charge(PUBLISH, count, 0, float(now_ms))
        total += count
        reported += one.period(float(now_ms)).counts[0]
    reported += one.period(now_ms + 1e9).counts[0]
    # Each report of a throttled period says at least 1.
    assert total - 1 <= reported <= total + len(steps) + 1
