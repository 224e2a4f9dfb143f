"""Consumers whose topic is written in unusual ways: no way to write it passes a limit by."""

import pytest
from pulsar_delivery_kit import TOPIC, ModelLink, World, per_subscription, reading


@pytest.mark.parametrize("name", [TOPIC, TOPIC.replace("p", "P", 1), "acme/orders/t1"])
def test_a_rate_holds_however_the_topic_is_written(name: str) -> None:
    """Brokers take all of these for one topic."""
    _, link = reading(per_subscription(10), topic=name)
    link.publish(1, 100, ms=5_000)
    assert 50 <= len(link.got[1]) <= 51


def test_a_name_of_the_old_form_counts_for_its_tenant() -> None:
    """No rate can be for it, which is counted."""
    world = World(
        {
            "resourcegroups.rg1": {"dispatchRateInMsgs": 10},
            "tenants.acme": {"resourcegroup": "rg1"},
            **per_subscription(1),
        }
    )
    account = world.meter.of_group("rg1")
    assert account is not None
    account.set_part(1.0, 0.0)
    link = ModelLink(world)
    link.subscribe(1, topic="persistent://acme/use/orders/t1")
    assert world.count("exempt_total", why="name") == 1
    link.publish(1, 100, ms=5_000)
    assert 50 <= account.used[2] == len(link.got[1]) <= 61
    assert world.events == []
