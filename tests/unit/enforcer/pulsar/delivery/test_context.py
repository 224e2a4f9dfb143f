"""What the consumers of all connections share: how they follow the policies."""

from itertools import count

from pulsar_delivery_kit import World, per_subscription


def test_limits_that_change_all_the_time_are_followed_by_one_run() -> None:
    """A step of the loop has a hundred connections look, though limits change before all of them have."""
    world, waiting, rates = World(), list[int](), count(10)

    class Slow:
        """A connection."""

        def look(self) -> None:
            """It takes a while, and then the next change is there."""
            world.now_ms += 1
            world.put(per_subscription(next(rates)))
            waiting.append(world.waiting)

    for _ in range(300):
        world.desk.follow(Slow().look)
    world.put(per_subscription(1), ms=1_000)
    # The rest of a run, and the next look at the policies.
    assert max(waiting) == 2 and len(waiting) > 600
