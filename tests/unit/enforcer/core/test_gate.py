"""The gate: what happens to a request, as a table."""

import pytest

from enforcer.core.gate import Action, Verdict, judge
from streaming.policy.policy_set import MutationQuota


def quota(shadow: bool = False) -> MutationQuota:
    """Some quota."""
    return MutationQuota(
        subject="user=a", path="quotas[user=a]", level=3, rate=1.0, burst=11.0,
        algorithm="token_bucket", shadow=shadow,
    )  # fmt: skip


STRICT, PERMISSIVE = {"strict": True}, {"strict": False}
PROBING_STRICT, PROBING = {"strict": True, "probing": True}, {"strict": False, "probing": True}


@pytest.mark.parametrize(
    ("request_", "in_force", "not_before", "expected"),
    [
        (STRICT, None, None, Verdict(action=Action.FORWARD)),
        (STRICT, None, 9_000.0, Verdict(action=Action.FORWARD)),
        (STRICT, quota(shadow=True), 9_000.0, Verdict(action=Action.FORWARD)),
        (STRICT, quota(), None, Verdict(action=Action.ASK)),
        (PERMISSIVE, quota(), None, Verdict(action=Action.ASK)),
        (STRICT, quota(), 1_000.0, Verdict(action=Action.ASK)),
        (STRICT, quota(), 1_000.1, Verdict(action=Action.REFUSE, wait_ms=1)),
        (STRICT, quota(), 2_500.0, Verdict(action=Action.REFUSE, wait_ms=1_500)),
        (PROBING_STRICT, quota(), 2_500.0, Verdict(action=Action.REFUSE, wait_ms=1_500)),
        (PERMISSIVE, quota(), 2_500.0, Verdict(action=Action.HOLD, wait_ms=1_500)),
        (PROBING, quota(), 2_500.0, Verdict(action=Action.ASK)),
    ],
)
def test_verdicts(
    request_: dict[str, bool], in_force: MutationQuota | None, not_before: float | None, expected: Verdict
) -> None:
    """Forward without a quota, ask with one, refuse or hold while the subject must wait."""
    assert judge(in_force, not_before, 1_000.0, **request_) == expected
