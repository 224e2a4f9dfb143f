"""Settings of the proxies: bounds that follow from another one."""

import pytest

from enforcer.core.settings import ProxySettings


@pytest.mark.parametrize(
    ("subjects", "with_metrics", "rows"), [(1, 1, 5), (29, 2, 145), (10_000, 1_000, 50_000)]
)
def test_one_bound_for_all_that_is_known_of_subjects(subjects: int, with_metrics: int, rows: int) -> None:
    """Never none at all, and a row for a broker, a topic and a subscription."""
    settings = ProxySettings(subjects_max=subjects)
    assert (settings.metric_subjects, settings.dispatch_rows) == (with_metrics, rows)
