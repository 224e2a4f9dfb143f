"""Requests: what happens to them, as a table, and what their clients are told."""

from each_kit import each
from mutation_kit import decision, quota

from enforcer.laws.mutation.request import Action, NotBefore, Verdict, explain
from streaming.policy.policy_set import MutationQuota

STRICT, PERMISSIVE = {"strict": True}, {"strict": False}
PROBING_STRICT, PROBING = {"strict": True, "probing": True}, {"strict": False, "probing": True}


@each(
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
    waits = NotBefore(2, lambda: 1_000.0)
    if not_before is not None:
        waits.postpone("user=a", not_before, in_force)
    assert waits.judge(in_force, local=False, **{"probing": False, **request_}) == expected


def test_a_rejection_is_explained() -> None:
    """Which quota, from which entry, where the balance is as far as that is known, and when to retry."""
    begin = "The quota on partition mutations"
    named = f"{begin} of user=a (quotas[user=a]) is exceeded: 1 per second, burst 11;"
    assert explain(None, None, 1.2) == f"{begin} is exceeded; retry after 2 ms."
    assert explain(quota(), None, 5) == f"{named} retry after 5 ms."
    assert explain(quota(), None, 5, "p1-7").endswith(" retry after 5 ms. Why: weir explain --id p1-7")
    by_bucket = decision(tokens=-3.25)
    assert explain(quota(), by_bucket, 5) == f"{named} balance -3.2; retry after 5 ms."
    by_windows = decision(tokens=None, rate=1.5)
    assert explain(quota(), by_windows, 5) == f"{named} present rate 1.50 per second; retry after 5 ms."
