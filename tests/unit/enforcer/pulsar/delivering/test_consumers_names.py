"""Consumers whose topic is written in unusual ways: no way to write it passes a limit by."""

import pytest
from delivering_kit import TOPIC, ModelLink, World, per_subscription


@pytest.mark.parametrize("name", [TOPIC, TOPIC.replace("p", "P", 1), "acme/orders/t1"])
def test_a_rate_holds_however_the_topic_is_written(name: str) -> None:
    """Brokers take all of these for one topic."""
    world = World(per_subscription(10))
    link = ModelLink(world)
    link.subscribe(1, topic=name)
    link.publish(1, 100)
    world.run(5_000)
    assert 50 <= len(link.got[1]) <= 51
