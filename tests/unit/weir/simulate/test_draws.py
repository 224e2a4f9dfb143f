"""Draws by counter."""

from statistics import fmean, pstdev

from weir.simulate.draws import _STEP, ARRIVALS, WORK, Draws, mixed


def test_the_same_number_of_the_same_stream_is_the_same() -> None:
    """In whatever order they are asked for; these values are for ever, since pictures hang on them."""
    forth = [Draws(1, WORK).uniform(number) for number in range(5)]
    back = [Draws(1, WORK).uniform(number) for number in reversed(range(5))]
    assert forth == back[::-1]
    assert [Draws(1, ARRIVALS).uniform(number) for number in (0, 1)] == [
        0.2558852031320078,
        0.08832385701148338,
    ]


def test_the_mixing_is_that_of_splitmix64() -> None:
    """Its published first answer for the seed 1234567."""
    assert mixed(1234567 + _STEP) == 6457827717110365317


def test_seeds_and_streams_are_apart() -> None:
    """No two give the same."""
    firsts = {Draws(seed, stream).uniform(0) for seed in range(100) for stream in range(4)}
    assert len(firsts) == 400


def test_draws_are_spread_as_they_should_be() -> None:
    """Mean and deviation of both distributions, within what 20,000 draws allow."""
    draws = Draws(7, WORK)
    even = [draws.uniform(number) for number in range(20_000)]
    assert min(even) >= 0 and max(even) < 1 and abs(fmean(even) - 0.5) < 0.01
    long = [draws.exponential(number) for number in range(20_000)]
    assert min(long) >= 0 and abs(fmean(long) - 1) < 0.03 and abs(pstdev(long) - 1) < 0.05
