"""Metrics as tests ask for them."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry


def sample_of(registry: CollectorRegistry, name: str, labels: Mapping[str, str]) -> float:
    """The value of a series, 0 of one with labels that was never touched; one without is there at once."""
    value = registry.get_sample_value(name, dict(labels))
    assert value is not None or labels, f"there is no {name}"
    return value or 0.0
