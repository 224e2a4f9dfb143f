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


def long_run_rate(samples: int, item: int, *, sampled: bool) -> float:
    """Mean admitted a second, over the second half, of a client that asks each second until refused."""
    ring, tokens, mutations = np.zeros(samples), FULL, np.array([float(item)])
    admitted = 0
    for second in range(SECONDS):
        roll(ring, max(0, second - 1) * 1000, second * 1000)
        tokens, rejected = refill(tokens, RATE, RATE * samples, 1000), np.zeros(1, dtype=np.bool_)
        while not rejected[0]:
            if sampled:
                charge_samples(ring, RATE, mutations, rejected, STRICT, False)
            else:
                tokens = charge_bucket(tokens, mutations, rejected, STRICT, False)
            admitted += item if second >= SECONDS // 2 and not rejected[0] else 0
    return admitted / (SECONDS // 2)


@pytest.mark.parametrize(
    ("samples", "item", "rate"),
    [(100, 1, 9.91), (100, 5, 10.0), (100, 80, 10.68), (11, 1, 9.25), (11, 5, 10.0), (11, 80, 16.0)],
)
def test_the_draft_lets_through_twice_its_rate(samples: int, item: int, rate: float) -> None:
    """About 2QS / (S + 1), more for big items (docs/protocol_notes.md 1.4)."""
    assert long_run_rate(samples, item, sampled=True) == pytest.approx(rate, abs=0.005)


@pytest.mark.parametrize(("samples", "item"), [(100, 1), (100, 80), (11, 1), (11, 80)])
def test_the_bucket_holds_its_rate(samples: int, item: int) -> None:
    """Whatever the item: 5.00."""
    assert long_run_rate(samples, item, sampled=False) == pytest.approx(RATE, rel=0.01)
