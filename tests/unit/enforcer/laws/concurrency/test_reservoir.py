"""A bounded sample, and whether it prefers anything."""

import numpy as np
import pytest

from enforcer.laws.concurrency.limiter import Reservoir
from streaming.contract.broker_events import Sample


def sample(number: int, rtt_ns: int = 1, inflight: int = 1) -> Sample:
    """A sample that says its number as its start."""
    return Sample(number, rtt_ns, inflight, False)


def test_few_are_all_kept_in_order() -> None:
    """Where there is room nothing is left out."""
    reservoir = Reservoir(5)
    for number in range(5):
        reservoir.add(sample(number))
    assert [each.start_ns for each in reservoir.take()] == [0, 1, 2, 3, 4]
    assert reservoir.take() == []
    assert (reservoir.sent, reservoir.discarded) == (5, 0)


def test_of_many_so_many_are_kept_in_order_and_the_others_counted() -> None:
    """In the order in which they came, since the law goes by that."""
    reservoir = Reservoir(20, seed=7)
    for number in range(1_000):
        reservoir.add(sample(number))
    starts = [each.start_ns for each in reservoir.take()]
    assert len(starts) == 20
    assert starts == sorted(starts)
    assert (reservoir.sent, reservoir.discarded) == (20, 980)


def test_two_runs_choose_alike_and_two_seeds_do_not() -> None:
    """No randomness but that of a counter."""

    def chosen(seed: int) -> list[int]:
        reservoir = Reservoir(10, seed)
        for number in range(500):
            reservoir.add(sample(number))
        return [each.start_ns for each in reservoir.take()]

    assert chosen(1) == chosen(1) != chosen(2)


def test_each_place_is_chosen_equally_often() -> None:
    """The first, the middle and the last of a linger time: within 5 standard deviations of their chance."""
    rounds, size, count = 4_000, 10, 100
    reservoir = Reservoir(size, seed=3)
    times = [0] * count
    for _ in range(rounds):
        for number in range(count):
            reservoir.add(sample(number))
        for each in reservoir.take():
            times[each.start_ns] += 1
    chance = size / count
    deviation = (rounds * chance * (1 - chance)) ** 0.5
    assert max(abs(found - rounds * chance) for found in times) < 5 * deviation


@pytest.mark.parametrize("shape", ["rising", "bursts", "slow when full"])
def test_means_are_not_moved(shape: str) -> None:
    """The mean round trip and the mean in flight of the chosen are those of all."""
    rounds, size, count = 500, 20, 400
    reservoir = Reservoir(size, seed=11)
    all_rtt: list[int] = []
    all_inflight: list[int] = []
    kept: list[Sample] = []
    for _ in range(rounds):
        for number in range(count):
            inflight = {"rising": number, "bursts": 300 if number % 20 == 0 else 5}.get(
                shape, number % 50
            ) + 1
            rtt = 1_000 * (inflight if shape != "bursts" else 1 + number % 7)
            all_rtt.append(rtt)
            all_inflight.append(inflight)
            reservoir.add(sample(number, rtt, inflight))
        kept += reservoir.take()
    for every, chosen in (
        (all_rtt, [each.rtt_ns for each in kept]),
        (all_inflight, [each.inflight for each in kept]),
    ):
        error = np.std(every) / len(chosen) ** 0.5
        assert abs(np.mean(chosen) - np.mean(every)) < 5 * error
