"""Whom SENDs are charged to, and numbers of namespaces, within bounds."""

from clock_kit import Waiter
from prometheus_client import CollectorRegistry
from publish_kit import TEN, World

from enforcer.pulsar.publish.pending_sends import Window
from enforcer.pulsar.publish.room import PublishMetrics, Room


def test_a_namespace_counts_for_its_tenant() -> None:
    """Old names have the cluster in it, and long ones are names too: who makes one stays in his group."""
    world = World({**TEN, "tenants.old": {"resourcegroup": "ten"}})
    assert world.desk.of_namespace("acme/limited") is world.meter.accounts["ten"]
    assert world.desk.of_namespace("old/cluster/namespace") is world.meter.accounts["ten"]
    assert world.desk.of_namespace("acme/free") is None
    assert world.desk.of_namespace("old/" + "x" * 4_000) is world.meter.accounts["ten"]


def test_namespaces_have_so_many_series() -> None:
    """The others count together."""
    metrics = PublishMetrics(CollectorRegistry(), Room(1, 1), 2)
    for namespace in ("a", "b", "c", "a", "d"):
        metrics.limit(namespace)
    samples = (one for family in metrics.collect() for one in family.samples)
    said = {one.labels["namespace"]: one.value for one in samples if one.labels}
    assert said == {"a": 2, "b": 1, "": 2}


def test_a_full_window_opens_for_all_when_half_is_answered() -> None:
    """Who comes in between stands behind those who wait."""
    window, one, other = Window(4), Waiter(), Waiter()
    for _ in range(4):
        assert window.admits(one)
        window.sent()
    assert not window.admits(one)
    window.finished()
    assert not window.admits(other)
    assert (one.woken, other.woken) == (0, 0)
    window.finished()
    assert (one.woken, other.woken) == (1, 1)
    assert window.admits(other)
    window.leave(one)
    window.finished(2)
    assert (window.count, one.woken) == (0, 1)
