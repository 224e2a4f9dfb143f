"""A rate for what is not charged."""

from functools import partial

import mutation_kit

from enforcer.laws.mutation.waiting import Allowance

quota = partial(mutation_kit.quota, rate=2.0, burst=20.0)


def test_the_burst_is_the_quotas_and_the_rate_a_multiple() -> None:
    """25 of a burst of 20 leave a debt of 5, 250 ms at 10 times 2 a second; it is not made larger."""
    now = 0.0
    free = Allowance(10, 1, 100, lambda: now)
    assert free.take(quota(), 25) == 0
    assert free.take(quota(), 1_000) == free.wait_ms(quota()) == 250
    assert free.take(quota("user=b"), 1) == 0
    now = 250.0
    assert free.take(quota(), 1) == 0
    free.charge(quota(), 10)
    assert free.wait_ms(quota()) > 0
    # Another quota, another balance.
    assert free.wait_ms(quota(rate=3.0)) == 0


def test_balances_are_bounded() -> None:
    """The one used longest ago goes first."""
    free = Allowance(10, 1, 2, lambda: 0.0)
    for subject in ("a", "b", "c"):
        free.charge(quota(subject), 1_000)
    assert len(free._buckets) == 2
    assert free.wait_ms(quota("c")) > 0 and free.wait_ms(quota("a")) == 0


def test_dry_runs_have_rate_and_burst_of_their_factor() -> None:
    """1,000 times 20 at once, then 1,000 times 2 a second; refusals beside them as before."""
    now = 0.0
    dry_runs, refusals = (Allowance(*each, 100, lambda: now) for each in ((1_000, 1_000), (10, 1)))
    assert dry_runs.take(quota(), 20_002) == 0
    assert dry_runs.take(quota(), 1) == 1
    assert refusals.take(quota(), 25) == 0
    assert refusals.take(quota(), 1) == 250
    now = 1.0
    assert dry_runs.take(quota(), 1) == 0
