"""What the proxy tells Prometheus, within bounds."""

from enforcer.core.metrics import Metrics


def test_subject_metrics_are_bounded() -> None:
    """The subject decided upon least recently loses its series."""
    metrics = Metrics(2)
    for subject in ("a", "b", "a", "c"):
        metrics.decided(subject, 1.0, None, 0)
    found = {
        sample.labels["subject"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "weir_proxy_subject_tokens"
    }
    assert found == {"a", "c"}
