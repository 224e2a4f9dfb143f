"""Several proxies at once: what they admit above the law, in simulated time over their real code.

The bound and its derivation are in docs/laws.md, "Several proxies".
"""

from math import inf
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from law_kit import T0
from local_world import Place, World
from property_kit import tries

from enforcer.core.membership import ALIVE_EVERY_MS, UNACKNOWLEDGED_MS
from weir.simulate.failures.proxy import LOOK_MS

RATE, BURST = 2.0, 22.0
ROUNDED = 1e-6


def above_at_most(world: World) -> float:
    """The bound of docs/laws.md."""
    places, proxies = world.places, len(world.places)
    most = max(place.count for place in places)
    # One proxy's events, a batch that was just missed, another's reading: seldom of the same place.
    late_ms = max(place.up_ms for place in places) + world.batch_ms + max(place.down_ms for place in places)
    if any(place.cut[0] >= 0 for place in places):
        late_ms += UNACKNOWLEDGED_MS + ALIVE_EVERY_MS + LOOK_MS
    skews = [place.skew_ms for place in places] + [0]
    late_s = (late_ms + max(skews) - min(skews)) / 1000
    old = proxies if max(skews) > 0 else proxies - 1
    return (proxies + 1) * most + old / proxies * (world.burst + world.rate * late_s) + world.rate * late_s


@pytest.mark.parametrize("in_turn", [True, False])
@pytest.mark.parametrize(
    ("proxies", "above"),
    [(1, 1.0), *(pytest.param(n, float(n), marks=pytest.mark.soak) for n in (2, 8)), (3, 3.0)],
)
def test_prompt_proxies_exceed_by_an_item_each(proxies: int, above: float, in_turn: bool) -> None:
    """Clients that ask 400 times a second in all get burst and rate, and one item a proxy at most."""
    place = Place(every_ms=2.5 * proxies, in_turn=in_turn)
    world = World(rate=RATE, burst=BURST, places=[place] * proxies)
    world.run(21_000)
    assert world.above <= above + ROUNDED
    # It is paid off: in the long run the rate is exact.
    assert BURST + RATE * 20 - 1 <= world.admitted <= BURST + RATE * 20 + above


def test_without_parts_each_proxy_admits_a_burst() -> None:
    """What the parts are for: eight proxies that take themselves to be alone."""
    world = World(rate=RATE, burst=BURST, places=[Place(every_ms=2.5)] * 8, parts=False)
    world.run(1_500)
    assert world.above > 7 * BURST


@pytest.mark.parametrize("proxies", [1, 2, 3, 8])
def test_who_stays_within_his_quota_never_waits(proxies: int) -> None:
    """Three quarters of the rate, spread over all proxies, are admitted at once by each."""
    place = Place(every_ms=1000 * proxies / (0.75 * RATE), in_turn=True)
    world = World(rate=RATE, burst=BURST, places=[place] * proxies)
    world.run(120_000)
    assert world.outcomes == {"allow": world.admitted} and world.admitted > 150 and world.asked == 0


@pytest.mark.parametrize("proxies", [1, 2])
def test_the_job_away(proxies: int) -> None:
    """One proxy goes on exactly as the law; of two each has its part, and half the rate."""
    world = World(
        rate=RATE, burst=BURST, places=[Place(every_ms=20, in_turn=True)] * proxies, away=(T0, T0 + 60_000)
    )
    world.run(60_000)
    assert world.above <= proxies + ROUNDED
    assert BURST + RATE * 57 <= world.admitted <= BURST + RATE * 59 + proxies
    world.run(90_000)
    assert world.above <= proxies + 1 + ROUNDED
    assert BURST + RATE * 85 <= world.admitted <= BURST + RATE * 89 + proxies


def any_world(seed: int) -> World:
    """Proxies with delays and clocks of their own that come and go or are cut off; the job may be away."""
    random = Random(seed)
    count, cut_off = random.choice([1, 1, 3, 10]), random.random() < 0.5

    def away() -> tuple[int, int]:
        begin = T0 + random.randint(3_000, 20_000)
        return random.choice([(-1, -1), (-1, -1), (begin, begin + 3_000), (begin, begin + 12_000)])

    def place() -> Place:
        return Place(
            up_ms=random.choice([5, 50, 450]),
            down_ms=random.choice([5, 50, 450]),
            skew_ms=random.choice([0, 0, -800, 800]),
            every_ms=random.choice([20, 60, 400]),
            count=count,
            in_turn=random.random() < 0.5,
            # Who is cut off before he has heard of another takes himself to be alone, and is.
            start=T0 if cut_off else T0 + random.choice([0, 0, random.randint(0, 15_000)]),
            leaves=random.choice([inf, inf, T0 + random.randint(5_000, 25_000)]),
            cut=away() if cut_off else (-1, -1),
        )

    return World(
        rate=random.choice([0.5, 2.0, 10.0]), burst=random.choice([2.0, 22.0, 100.0]),
        places=[place() for _ in range(random.randint(1, 5))], batch_ms=random.choice([50, 200, 1_000]),
        away=away(), seed=seed,
    )


@given(seed=st.integers(0, 10**9))
@settings(tries(60), phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_any_world_stays_within_the_bound(seed: int) -> None:
    """Whatever the delays, the clocks, who comes, goes or is cut off, and when the job is away."""
    world = any_world(seed)
    world.run(30_000)
    assert world.above <= above_at_most(world) + ROUNDED


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(400))
def test_many_worlds_stay_within_the_bound(seed: int) -> None:
    """The same for long."""
    world = any_world(seed)
    world.run(60_000)
    assert world.above <= above_at_most(world) + ROUNDED
