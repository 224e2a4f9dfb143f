"""Metrics as tests ask for them."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry


def sample_of(registry: CollectorRegistry, name: str, labels: Mapping[str, str]) -> float:
    """The value of a series, 0 of one with labels that was never touched; one without is there at once.

    A metric that was lost, or is called otherwise now, fails the test: as 0 it would pass for untouched.
    """
    value = registry.get_sample_value(name, dict(labels))
    if value is not None:
        return value
    known = {metric.name for metric in registry.collect()}
    assert labels and known & {name, name.rpartition("_")[0]}, f"there is no {name}"
    return 0.0
