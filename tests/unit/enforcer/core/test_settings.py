"""Settings of the proxies: bounds that follow from another one."""

import pytest

from enforcer.core.settings import ProxySettings


@pytest.mark.parametrize(("subjects", "with_metrics"), [(1, 1), (29, 2), (10_000, 1_000)])
def test_one_bound_for_all_that_is_known_of_subjects(subjects: int, with_metrics: int) -> None:
    """Never none at all."""
    assert ProxySettings(subjects_max=subjects).metric_subjects == with_metrics
