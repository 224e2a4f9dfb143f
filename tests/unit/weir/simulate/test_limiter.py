"""The law as the simulation runs it."""

import numpy as np
import pytest

from streaming.laws.concurrency.algorithms import STATE
from streaming.laws.concurrency.law import start, take
from weir.simulate.draws import Draws
from weir.simulate.figures import Contender, contenders
from weir.simulate.run import Limiter


@pytest.mark.parametrize(
    "tried", list(contenders()), ids=lambda tried: f"{tried.settings.algorithm}-{tried.windowed}"
)
def test_mappings_and_records_are_the_same_to_the_law(tried: Contender) -> None:
    """After each of 600 samples, fast and slow ones, the limit is the one of the law's own records."""
    settings, state, draws = tried.settings, np.zeros(1, dtype=STATE), Draws(3, 0)
    start(state[0], settings.row[0])
    limiter = Limiter(settings)
    assert limiter.limit == int(state[0]["estimate"])
    for number in range(600):
        rtt_ns = 1 + round(draws.exponential(number) * (10**7 if number < 300 else 3 * 10**8))
        inflight = 1 + int(draws.uniform(10_000 + number) * 40)
        began_ns = 10**12 + number * 50_000_000
        before = limiter.limit
        changed = limiter.take(began_ns, rtt_ns, inflight)
        take(state[0], settings.row[0], began_ns, rtt_ns, inflight, False)
        assert limiter.limit == int(state[0]["estimate"])
        assert changed == (limiter.limit != before)
