"""Buckets and accounts: what a proxy may use of a group, what it reports, what a share changes."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from meter_kit import Waiting

from enforcer.core.account import DISPATCH, PUBLISH, SHARE_BURST_S, Account, State
from enforcer.core.bucket import LONGEST_WAIT_MS, Bucket
from enforcer.core.lines import Lines
from enforcer.core.settings import ExpiredShare, ProxySettings
from streaming.policy.groups import GroupLimits

MSGS = (300.0, None, None, None)
NO_BOUND_S = 10**15


def account(
    rates: tuple[float | None, ...] = MSGS, shadow: bool = False, part: float = 0.05,
    burst_s: float = SHARE_BURST_S, **rules: int | ExpiredShare,
) -> Account:  # fmt: skip
    """An account at time 0."""
    limits = GroupLimits(rates=rates, shadow=shadow)
    settings = ProxySettings(**{"debt_max_s": NO_BOUND_S, **rules})
    return Account("rg1", limits, settings, Lines(lambda: 0.0), 0.0, part, burst_s)


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
        (ExpiredShare.KEEP, 100.0), (ExpiredShare.SAFE_FRACTION, 50.0), (ExpiredShare.OPEN, inf),
        (ExpiredShare.CLOSED, 1e-280),
    ],
)
def test_an_expired_share(rule: ExpiredShare, rate: float) -> None:
    """Each rule, from the end of the life time to the next share."""
    one = account(expired_share=rule)
    one.take_share({"publishRateInMsgs": 100.0}, 1, 3_000, 0.0)
    assert not one.expire(2_999) and one.rate(0) == 100.0
    assert one.expire(3_000) and not one.expire(3_001)
    assert (one.state, one.rate(0)) == (State.EXPIRED, rate)
    # A repeated share has its old time of decision and begins a new life.
    one.take_share({"publishRateInMsgs": 100.0}, 1, 3_000, 4_000)
    assert one.rate(0) == 100.0 and not one.expire(6_999)


def test_the_stricter_dimension_counts() -> None:
    """Messages or bytes, whichever is longer in debt."""
    one = account((300.0, 10_000.0, None, None), part=1.0, burst_s=0.001)
    wait = one.charge(PUBLISH, 30, 100, 0.0)
    assert wait is not None and (wait.dimension, round(wait.ms)) == (0, 99)
    wait = one.charge(PUBLISH, 0, 10_000, 0.0)
    assert wait is not None and (wait.dimension, round(wait.ms)) == (1, 1009)
    assert one.charge(DISPATCH, 1000, 10**9, 0.0) is None


def test_a_share_above_a_limit_that_was_cut() -> None:
    """Its part of the limit counts at once; a removed one frees those who wait."""
    one, waiting = account(), Waiting()
    one.take_share({"publishRateInMsgs": 200.0}, 1, 3_000, 0.0)
    one.lines.join(one.counters[:1], waiting.claim)
    one.set_limits(GroupLimits(rates=(150.0, None, None, None), shadow=False), 0.0)
    assert one.rate(0) == 100.0
    before = waiting.woken
    one.set_limits(GroupLimits(rates=(None, None, None, None), shadow=False), 0.0)
    assert one.buckets[0] is None and waiting.woken > before


@pytest.mark.parametrize("expired", [False, True])
def test_a_lowered_limit_is_felt_by_all_who_have_shares(expired: bool) -> None:
    """Together they have no more than it, before the next round too; raised again they have what they had."""
    shares = (10.0, 90.0, 200.0)
    all_of_them = [account() for _ in shares]
    for one, share in zip(all_of_them, shares, strict=True):
        one.take_share({"publishRateInMsgs": share}, 1, 3_000, 0.0)
        assert not expired or one.expire(3_000)
    for limit, together in ((150.0, 150.0), (3.0, 3.0), (150.0, 150.0), (300.0, 300.0), (3_000.0, 300.0)):
        for one in all_of_them:
            one.set_limits(GroupLimits(rates=(limit, None, None, None), shadow=False), 0.0)
        rates = [one.rate(0) for one in all_of_them]
        part = together / 300.0 * (0.5 if expired else 1.0)
        assert rates == pytest.approx([part * share for share in shares])
    # The next round is shared out of the limit of then.
    all_of_them[0].take_share({"publishRateInMsgs": 2_500.0}, 2, 3_000, 4_000.0)
    assert all_of_them[0].rate(0) == 2_500.0


def test_a_share_of_a_limit_of_before() -> None:
    """It comes after the change, or is said again after it."""
    one, former = account(), GroupLimits(rates=MSGS, shadow=False)
    one.set_limits(GroupLimits(rates=(30.0, None, None, None), shadow=False), 0.0)
    one.take_share({"publishRateInMsgs": 100.0}, 1, 3_000, 0.0, former)
    assert one.rate(0) == 10.0
    one.take_share({"publishRateInMsgs": 100.0}, 1, 3_000, 1_000.0)
    assert one.rate(0) == 10.0
    one.take_share({"publishRateInMsgs": 20.0}, 2, 3_000, 1_000.0)
    assert one.rate(0) == 20.0


def test_who_waits_in_front_hears_of_a_larger_share() -> None:
    """It looks again, and finds a tenth of the wait left; who stands behind has its turn after it."""
    one, first, second = account(burst_s=0.001), Waiting(), Waiting()
    one.charge(PUBLISH, 150, 0, 0.0)
    one.lines.join(one.counters[:1], first.claim)
    one.lines.join(one.counters[:1], second.claim)
    before = one.debt(PUBLISH, 0.0)
    one.take_share({"publishRateInMsgs": 150.0}, 1, 3_000, 0.0)
    after = one.debt(PUBLISH, 0.0)
    assert first.woken and not second.woken
    assert before is not None and after is not None and after.ms == pytest.approx(before.ms / 10, rel=0.01)


def test_a_debt_has_a_limit() -> None:
    """Of the limit, whatever the share; what is above it is forgiven, counted, and reported by nobody."""
    one = account(burst_s=0.001, debt_max_s=2)
    wait = one.charge(PUBLISH, 10_000, 0, 0.0)
    assert wait is not None and wait.ms == pytest.approx(2 * 300 / 15 * 1000)
    assert wait.forgiven[0] == pytest.approx(10_000 - 600, abs=1) and wait.forgiven[1] == 0
    bucket = one.buckets[0]
    assert bucket is not None and bucket.forgiven == wait.forgiven[0]
    one.take_share({"publishRateInMsgs": 300.0}, 1, 3_000, 0.0)
    assert one.period(1_000.0).counts[0] == 300 and one.period(9_000.0).counts[0] == 300


def test_whether_all_of_a_charge_would_be_paid() -> None:
    """Within the largest debt, in both dimensions."""
    one = account((300.0, 3_000.0, None, None), part=1.0, burst_s=0.001, debt_max_s=2)
    one.charge(PUBLISH, 300, 0, 0.0)
    assert one.can_owe(PUBLISH, 299, 5_999, 0.0)
    assert not one.can_owe(PUBLISH, 302, 0, 0.0) and not one.can_owe(PUBLISH, 0, 6_010, 0.0)
    assert one.can_owe(PUBLISH, 400, 0, 1_000.0) and one.can_owe(DISPATCH, 10**9, 10**9, 0.0)


def test_a_refund_leaves_nothing_behind() -> None:
    """Neither debt nor use, whoever waits looks again, and a genuine debt stays."""
    one, waiting = account(part=1.0, burst_s=0.001), Waiting()
    one.charge(PUBLISH, 150, 10, 0.0)
    one.charge(PUBLISH, 9_000, 90, 0.0)
    one.lines.join(one.counters[:1], waiting.claim)
    one.refund(PUBLISH, 9_000, 90)
    debt = one.debt(PUBLISH, 0.0)
    assert waiting.woken == 1 and debt is not None and debt.ms == pytest.approx(499, abs=1)
    assert one.period(1_000.0).counts[:2] == (150, 10) and one.idle
    assert one.used[:2] == [9_150, 100] and one.refunded[:2] == [9_000, 90]


def test_what_was_forgiven_is_not_refunded_too() -> None:
    """Or a lie that is refused would wipe out what is owed for true."""
    one = account(part=1.0, burst_s=0.001, debt_max_s=2)
    one.charge(PUBLISH, 300, 0, 0.0)
    lie = one.charge(PUBLISH, 10**9, 0, 0.0)
    assert lie is not None
    one.refund(PUBLISH, 10**9, 0, *lie.forgiven)
    debt = one.debt(PUBLISH, 0.0)
    assert debt is not None and debt.ms == pytest.approx(999, abs=2)


@pytest.mark.parametrize("reported_between", [False, True])
def test_what_was_forgiven_and_refused_hides_no_use(reported_between: bool) -> None:
    """Or a lie would make a proxy that is busy look idle to the job; the metric stays a counter."""
    one = account((100.0, None, None, None), part=1.0, debt_max_s=2)
    bucket = one.buckets[0]
    assert bucket is not None
    lie = one.charge(PUBLISH, 100_000, 0, 0.0)
    assert lie is not None and lie.forgiven[0] > 99_000
    forgiven = bucket.forgiven
    counts = [one.period(0.0).counts[0]] if reported_between else []
    one.refund(PUBLISH, 100_000, 0, *lie.forgiven)
    counts.append(one.period(1_000.0).counts[0])
    for second in range(2, 5):
        one.charge(PUBLISH, 40, 0, second * 1_000.0)
        counts.append(one.period(second * 1_000.0).counts[0])
    # What was told of it before the refusal, the stock, is taken off what follows.
    assert counts == ([50, 0, 0, 30, 40] if reported_between else [0, 40, 40, 40])
    assert bucket.forgiven == forgiven


def test_a_balance_as_time() -> None:
    """The tighter of the two dimensions, without end where nothing is limited."""
    one = account((300.0, 3_000.0, None, None), part=1.0, burst_s=1.0)
    one.charge(PUBLISH, 30, 1_500, 0.0)
    assert one.balance_ms(PUBLISH, 0.0) == pytest.approx(500) and one.balance_ms(DISPATCH, 0.0) == inf
    assert one.cost_ms(PUBLISH, 30, 1_500) == pytest.approx(500) and one.cost_ms(DISPATCH, 1, 1) == 0


def test_shadow_is_counted_only() -> None:
    """Nobody waits, the time that would have been waited is reported, and no debt piles up."""
    one = account(shadow=True)
    for second in range(10):
        assert one.charge(PUBLISH, 300, 1, second * 1000.0) is None
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


def test_a_debt_whose_limit_is_lifted_is_reported() -> None:
    """It has passed: bills count it; and the account may rest."""
    one = account((100.0, None, None, None), part=1.0, burst_s=0.001)
    one.charge(PUBLISH, 300, 0, 0.0)
    assert one.period(1_000.0).counts[0] == 100
    for _ in range(2):
        one.set_limits(GroupLimits(rates=(None, 1.0, None, None), shadow=False), 1_500.0)
        one.set_part(0.5, 1_500.0)
    assert one.period(2_000.0).counts[0] == 200 and one.idle


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


@pytest.mark.parametrize("age_ms", [1, 5_000, 7 * 86_400_000])
def test_an_older_share_is_passed_over_however_old(age_ms: int) -> None:
    """Of some batches ago by a job that was killed, of a week by one that begins anew; `removed` too."""
    one, now_ts = account(), 1_795_166_668_000
    one.take_share({"publishRateInMsgs": 100.0}, now_ts, 3_000, 0.0)
    one.take_share({"publishRateInMsgs": 200.0}, now_ts - age_ms, 3_000, 0.0)
    one.take_share(None, now_ts - age_ms, 3_000, 0.0)
    assert (one.rate(0), one.state) == (100.0, State.ACTIVE)
    one.take_share({"publishRateInMsgs": 50.0}, now_ts + 1, 3_000, 0.0)
    assert one.rate(0) == 50.0
