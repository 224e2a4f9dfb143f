"""Which limit is in force: the policy's first, the job's, our own while the job is away."""

import pytest
from concurrency_kit import AIMD, MS, decided

from enforcer.laws.concurrency.in_force import LimitInForce
from streaming.contract.broker_events import Sample


def samples(count: int, rtt_ms: int, inflight: int) -> list[Sample]:
    """So many alike."""
    return [Sample(number * MS, rtt_ms * MS, inflight, False) for number in range(count)]


def test_before_any_decision_it_is_the_policys() -> None:
    """The algorithm's initialLimit, and of `fixed` its limit."""
    assert LimitInForce(AIMD).limit == 40
    assert LimitInForce({"algorithm": "fixed", "fixed": {"limit": 7}}).limit == 7


def test_the_newest_decision_is_in_force() -> None:
    """One of before is passed over, however old; each is counted by what it did."""
    limit, now_ts = LimitInForce(AIMD), 1_795_166_668_000
    for limited, age_ms in ((50, 1_000), (60, 0), (50, 1_000), (2, 3 * 86_400_000), (60, 0)):
        limit.take(decided(limited, now_ts - age_ms), 0.0)
    assert (limit.limit, dict(limit.changes)) == (60, {"increase": 2, "held": 1})
    limit.take(decided(30, now_ts + 1), 0.0)
    assert (limit.limit, limit.changes["decrease"]) == (30, 1)


@pytest.fixture
def limit() -> LimitInForce:
    """One that adapts."""
    return LimitInForce(AIMD)


def test_a_decision_of_other_policies_is_passed_over(limit: LimitInForce) -> None:
    """It was made under an algorithm that is not in force; and a limit of nothing is one.

    Somebody must be able to find out that the broker is well again.
    """
    limit.take(decided(50, algorithm="vegas"), 0.0)
    assert limit.limit == 40
    limit.take(decided(0), 0.0)
    assert limit.limit == 1


def test_other_settings_begin_anew_and_equal_ones_do_not(limit: LimitInForce) -> None:
    """As in the job."""
    limit.take(decided(50), 0.0)
    limit.set_entry({**AIMD, "vegas": {"alpha": 9}})
    assert limit.limit == 50
    limit.set_entry({**AIMD, "aimd": {"initialLimit": 41}})
    assert limit.limit == 41


def test_a_limit_of_other_settings_does_not_come_back() -> None:
    """Said again, or decided just before the change; not even when the settings are as before."""
    limit, small = LimitInForce(AIMD), {**AIMD, "aimd": {"maxLimit": 50, "initialLimit": 20}}
    limit.take(decided(900, 1_000), 0.0)
    limit.set_entry(small, 3_000)
    for ts in (1_000, 2_999):
        limit.take(decided(900, ts), 1.0)
    assert limit.limit == 20
    limit.take(decided(21, 3_000), 2.0)
    limit.set_entry(AIMD)
    limit.take(decided(21, 3_000), 3.0)
    assert limit.limit == 40
    limit.take(decided(41, 3_001), 4.0)
    assert limit.limit == 41


def test_a_silent_job_is_away_after_a_while_and_the_law_goes_on_here(limit: LimitInForce) -> None:
    """From the last limit that was decided, by the law's own steps, until a decision comes."""
    limit.take(decided(50), 0.0)
    limit.feed(samples(3, 10, 40), 100.0)
    assert not limit.look(5_099.0)
    assert limit.limit == 50
    assert limit.look(5_100.0)
    assert limit.local
    limit.feed(samples(2, 10, 40), 5_200.0)
    assert limit.limit == 52
    limit.feed(samples(1, 300, 40), 5_200.0)
    assert limit.limit == 46
    limit.take(decided(48, 9_000), 6_000.0)
    assert (limit.local, limit.limit) == (False, 48)


def test_a_job_that_is_heard_is_not_away(limit: LimitInForce) -> None:
    """It says nothing of a limit that does not change."""
    limit.feed(samples(3, 10, 40), 0.0)
    limit.heard(4_000.0)
    assert not limit.look(6_000.0)
    limit.feed(samples(3, 10, 40), 6_000.0)
    assert not limit.look(10_999.0)
    assert limit.look(11_000.0)


def test_a_job_that_is_heard_again_has_the_limit_again(limit: LimitInForce) -> None:
    """The one that it decided last, which it would have changed if that were another one by now."""
    limit.take(decided(50), 0.0)
    limit.feed(samples(1, 10, 40), 0.0)
    assert limit.look(5_000.0)
    limit.feed(samples(5, 10, 40), 5_000.0)
    assert limit.limit == 55
    assert limit.unheard_ms(5_500.0) == 5_500.0
    limit.heard(600_000.0)
    assert (limit.local, limit.limit) == (False, 50)
    # It stands for its life time again.
    assert not limit.look(659_999.0)
    assert limit.look(660_000.0)


def test_without_traffic_a_job_is_away_only_when_its_limit_has_ended(limit: LimitInForce) -> None:
    """Nothing was asked, so nothing is missing, but a limit stands for its life time."""
    assert not limit.look(10_000_000.0)
    limit.take(decided(50, ttl_ms=60_000), 0.0)
    assert not limit.look(59_999.0)
    assert limit.look(60_000.0)
    assert limit.limit == 50
