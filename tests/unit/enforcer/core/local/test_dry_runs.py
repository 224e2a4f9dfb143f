"""Dry runs cost nothing, up to a thousand times the quota."""

from local_kit import quota_of

from enforcer.core.local.dry_runs import DryRuns
from streaming.policy.timeline import PolicyTimeline

T0 = 1_795_166_700_000
TIMELINE = PolicyTimeline(
    {"quotas[user=<default>]": {"controller_mutation_rate": 2, "controller_mutation_burst": 22}}
)


def test_a_multiple_of_the_quota() -> None:
    """Burst and rate, so many times; one without mutations counts for one."""
    dry_runs, quota = DryRuns(10, 5), quota_of(TIMELINE, T0)
    assert sum(dry_runs.admits(quota, 0, T0) for _ in range(1_000)) == 221
    assert sum(dry_runs.admits(quota, 5, T0 + 1_000) for _ in range(1_000)) == 4


def test_so_many_subjects() -> None:
    """The one that was quiet longest begins afresh."""
    dry_runs = DryRuns(1, 5)
    for number in range(6):
        assert dry_runs.admits(quota_of(TIMELINE, T0, f"user=u{number}"), 100, T0)
    assert len(dry_runs) == 5
    assert not dry_runs.admits(quota_of(TIMELINE, T0, "user=u1"), 1, T0)
    assert dry_runs.admits(quota_of(TIMELINE, T0, "user=u0"), 1, T0)
