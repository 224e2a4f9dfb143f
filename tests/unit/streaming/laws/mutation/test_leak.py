"""The draft's leak, measured: the table in the docstring of streaming/laws/mutation/law.py."""

import numpy as np
import pytest

from streaming.columns.compiled import machine
from streaming.laws.mutation import law, rates
from streaming.laws.mutation.law import STRICT
from streaming.laws.mutation.rates import FULL

charge_bucket, charge_samples = machine(law.charge_bucket), machine(law.charge_samples)
refill, roll = machine(rates.refill), machine(rates.roll)

RATE = 5.0
SECONDS = 4000


def long_run_rate_of_samples(samples: int, item: int) -> float:
    """Mean admitted a second, over the second half, of a client that asks each second until refused."""
    ring, mutations, rejected = np.zeros(samples), np.array([float(item)]), np.zeros(1, dtype=np.bool_)
    admitted = 0
    for second in range(SECONDS):
        roll(ring, max(0, second - 1) * 1000, second * 1000)
        while True:
            charge_samples(ring, RATE, mutations, rejected, STRICT, False)
            if rejected[0]:
                break
            admitted += item if second >= SECONDS // 2 else 0
    return admitted / (SECONDS // 2)


def long_run_rate_of_bucket(samples: int, item: int) -> float:
    """The same client against the token bucket."""
    tokens, mutations, rejected = FULL, np.array([float(item)]), np.zeros(1, dtype=np.bool_)
    admitted = 0
    for second in range(SECONDS):
        tokens = refill(tokens, RATE, RATE * samples, 1000)
        while True:
            tokens = charge_bucket(tokens, mutations, rejected, STRICT, False)
            if rejected[0]:
                break
            admitted += item if second >= SECONDS // 2 else 0
    return admitted / (SECONDS // 2)


@pytest.mark.parametrize(
    ("samples", "item", "rate"),
    [(100, 1, 9.91), (100, 5, 10.0), (100, 80, 10.68), (11, 1, 9.25), (11, 5, 10.0), (11, 80, 16.0)],
)
def test_the_draft_lets_through_twice_its_rate(samples: int, item: int, rate: float) -> None:
    """About 2QS / (S + 1), more for big items (docs/protocol_notes.md 1.4)."""
    assert long_run_rate_of_samples(samples, item) == pytest.approx(rate, abs=0.005)


@pytest.mark.parametrize(("samples", "item"), [(100, 1), (100, 80), (11, 1), (11, 80)])
def test_the_bucket_holds_its_rate(samples: int, item: int) -> None:
    """Whatever the item: 5.00."""
    assert long_run_rate_of_bucket(samples, item) == pytest.approx(RATE, rel=0.01)
