"""The mutation law on the numbers of docs/contract.md 3.1 and docs/protocol_notes.md 1."""

from typing import Any

import pytest
from law_kit import T0, Shard, decide, policy, quota, refund, request

ALICE = "quotas[user=alice]"
EVERYBODY = "quotas[user=<default>]"
BUCKET = {ALICE: quota(5, 500)}
SAMPLED = {ALICE: quota(5, 500, algorithm="sampled_rate")}


def test_exactly_the_burst() -> None:
    """500 of 500: balance 0 admits the next; the draft's mean 5 is not below 5 (facts 2, row 2)."""
    assert decide(BUCKET, request("a", 0, 500, 1))["a"]["outcome"] == "allow"
    draft = decide(SAMPLED, request("a", 0, 500, 1))["a"]
    assert (draft["rejected"], draft["throttle_time_ms"]) == (["a-1"], 1)


def test_kafkas_permissive_series() -> None:
    """Rate 10, ten samples: 90, 90, 90 -> 0, 8000, 17000 ms; 12000 after 5 s (facts 3)."""
    events = [request(str(n), 0, 90, strict=False) for n in range(3)]
    seen = decide({ALICE: quota(10, 100)}, *events, request("3", 5000, 0, strict=False))
    assert [seen[str(n)]["throttle_time_ms"] for n in range(4)] == [0, 8000, 17_000, 12_000]


def test_kafkas_strict_series() -> None:
    """Rate 10, ten samples: 90, 90 accepted, the third rejected 8000 ms, 5 s later 3000 (facts 3)."""
    events = [request(str(n), 0, 90) for n in range(3)]
    seen = decide({ALICE: quota(10, 100)}, *events, request("3", 5000, 90))
    assert [seen[str(n)]["throttle_time_ms"] for n in range(4)] == [0, 0, 8000, 3000]


def test_a_dry_run_costs_nothing_and_all_its_items_get_one_answer() -> None:
    """validate_only is checked against the balance as it stands."""
    seen = decide({ALICE: quota(1)}, request("a", 0, 20, 20, validate_only=True), request("b", 0, 12, 1))
    assert (seen["a"]["outcome"], seen["a"]["tokens"], seen["a"]["mutations"]) == ("allow", 11.0, 0)
    assert seen["b"]["rejected"] == ["b-1"]
    seen = decide({ALICE: quota(1)}, request("a", 0, 12), request("b", 0, 1, 1, validate_only=True))
    assert seen["b"]["rejected"] == ["b-0", "b-1"]


def test_a_refund_gives_back_up_to_the_burst() -> None:
    """What the cluster refused is not paid for, and a bucket never holds more than its burst."""
    seen = decide(
        {ALICE: quota(1)}, request("a", 0, 20), refund(0, 0, 20), refund(0, 0, 50), request("b", 0, 1)
    )
    assert seen["b"]["tokens"] == 10.0


def test_a_refund_of_the_draft_empties_the_windows_still_kept() -> None:
    """The original's spread goes, never below 0."""
    seen = decide(SAMPLED, request("a", 0, 500), refund(10_000, 0, 500), request("b", 10_000, 0))
    assert seen["b"]["rate"] == pytest.approx(0.0)


def test_refused_by_the_proxy_itself_is_counted_not_charged() -> None:
    """`answered: not_before`: rejected, with the time left, at no cost."""
    seen = decide({ALICE: quota(1)}, request("a", 0, 12), request("b", 500, 5, answered="not_before"))
    assert (seen["b"]["outcome"], seen["b"]["rejected"], seen["b"]["tokens"]) == ("reject", ["b-0"], -0.5)
    assert (seen["b"]["throttle_time_ms"], seen["b"]["mutations"]) == (500, 0)
    assert seen["b"]["answered"] == "not_before"


@pytest.mark.parametrize("policies", [{ALICE: quota(1)}, SAMPLED])
def test_a_refusal_never_says_0(policies: dict[str, Any]) -> None:
    """Also one by the proxy itself of a subject that has a balance by now."""
    seen = decide(policies, request("a", 0, 5, answered="not_before"))
    assert (seen["a"]["outcome"], seen["a"]["throttle_time_ms"]) == ("reject", 1)


@pytest.mark.parametrize(
    ("on_late", "outcome", "tokens"), [("allow", "throttle", -40.0), ("reject", "reject", -1.0)]
)
def test_a_request_decided_after_its_deadline(on_late: str, outcome: str, tokens: float) -> None:
    """Answered without us: with allow it is charged and never rejected, with reject it is not charged."""
    shard = Shard({ALICE: quota(1)}, replay=False)
    shard.step([request("a", 0, 12)], processed_ts=T0 + 10)
    late = request("b", 0, 39, deadline_ms=2000, on_late=on_late, subject="user=alice")
    (decision,) = shard.step([late], processed_ts=T0 + 2001)
    assert (decision["outcome"], decision["tokens"], decision["late"]) == (outcome, tokens, True)
    assert decision["rejected"] == ([] if on_late == "allow" else ["b-0"])


def test_at_its_deadline_a_request_is_not_late() -> None:
    """Later than ts + deadline_ms, strictly."""
    shard = Shard({ALICE: quota(1)})
    (decision,) = shard.step([request("a", 0, 1, deadline_ms=2000)], processed_ts=T0 + 2000)
    assert "late" not in decision


@pytest.mark.parametrize(
    ("asked_ms", "processed_ms", "late"),
    [(-1500, 500, False), (-1500, 501, True), (-2000, 0, False), (-2001, 0, True), (9, 2000, False)],
)
def test_the_deadline_counts_from_when_the_proxy_asked(asked_ms: int, processed_ms: int, late: bool) -> None:
    """By its own word, if that was before; what came too late for that is late in a replay as well."""
    event = request("a", 0, 1, deadline_ms=2000, on_late="reject", asked_ts=T0 + asked_ms)
    (decision,) = Shard({ALICE: quota(1)}, replay=False).step([event], processed_ts=T0 + processed_ms)
    assert (decision.get("late", False), decision["mutations"]) == (late, 0 if late else 1)
    assert decide({ALICE: quota(1)}, event)["a"].get("late", False) == (asked_ms < -2000)


def test_a_user_quota_is_shared_and_a_default_one_is_not() -> None:
    """One bucket for all client-ids of a user; a bucket for each user under the default (facts 1.6)."""
    events = [
        request("a", 0, 11, client_id="x"), request("b", 0, 1, client_id="y"),
        request("c", 0, 11, user="bob"), request("d", 0, 1),
    ]  # fmt: skip
    seen = decide({EVERYBODY: quota(1)}, *events)
    assert [seen[name]["tokens"] for name in "abcd"] == [0.0, -1.0, 0.0, -1.0]


def test_a_changed_rate_changes_the_wait_from_the_next_decision_on() -> None:
    """Kafka's swap: balance about -39 at rate 1; at rate 10 the wait is a tenth (facts 1.2)."""
    events = [request("a", 0, 50), request("b", 100, 1), policy(200, ALICE, quota(10)), request("c", 200, 1)]
    seen = decide({ALICE: quota(1)}, *events)
    assert seen["b"]["throttle_time_ms"] == 38_900
    assert (seen["c"]["throttle_time_ms"], seen["c"]["limit"]) == (3790, 10.0)
    assert (seen["b"]["policy_version"], seen["c"]["policy_version"]) == (1, 2)


def test_a_policy_comes_before_events_of_its_own_time_wherever_it_stands() -> None:
    """Policies first at equal ts (docs/contract.md 1)."""
    seen = decide({}, request("a", 0, 12), request("b", 0, 1), policy(0, ALICE, quota(1)))
    assert (seen["a"]["limit"], seen["b"]["outcome"]) == (1.0, "reject")


def test_a_full_bucket_stays_full_when_its_burst_grows() -> None:
    """Else a subject that had left the table would hold more than one that had not (design section 3)."""
    grown = policy(60_000, ALICE, quota(1, 100))
    seen = decide({ALICE: quota(1, 10)}, request("a", 0, 10), grown, request("b", 60_001, 0))
    assert seen["b"]["tokens"] == 100.0
    early = policy(5_000, ALICE, quota(1, 100))
    seen = decide({ALICE: quota(1, 10)}, request("a", 0, 10), early, request("b", 5_001, 0))
    assert seen["b"]["tokens"] == pytest.approx(5.001)


def test_a_quota_removed_and_set_again_starts_full() -> None:
    """Removing a quota makes the entity unlimited at once; debts do not come back (facts 1.2)."""
    events = [
        request("a", 0, 50), policy(1000, ALICE, None), request("b", 1500, 7), policy(2000, ALICE, quota(1)),
        request("c", 2000, 1),
    ]  # fmt: skip
    seen = decide({ALICE: quota(1)}, *events)
    assert (seen["b"]["subject"], seen["c"]["tokens"]) == ("", 10.0)


def test_windows_survive_a_change_of_the_sampled_burst() -> None:
    """More or fewer samples: what was charged in the windows that remain stays charged."""
    longer = policy(1000, ALICE, quota(5, 1000, algorithm="sampled_rate"))
    seen = decide(SAMPLED, request("a", 0, 400), longer, request("b", 1000, 0))
    assert seen["b"]["rate"] == pytest.approx(400 / 200)


def test_the_plain_rate_stands_beside_the_balance() -> None:
    """Charged mutations over 11 windows of one second, as Kafka shows them."""
    seen = decide(BUCKET, request("a", 0, 55), request("b", 10_999, 11), request("c", 11_000, 0))
    assert [seen[name]["rate"] for name in "abc"] == [5.0, 6.0, 1.0]


def test_time_never_goes_back_for_a_subject() -> None:
    """An event older than the last batch is taken at the subject's newest time, and keeps its own ts."""
    shard = Shard({ALICE: quota(1)})
    shard.step([request("a", 10_000, 11)])
    (decision,) = shard.step([request("b", 4_000, 1)])
    assert (decision["tokens"], decision["ts"]) == (-1.0, T0 + 4_000)


def test_that_a_proxy_lives_decides_nothing() -> None:
    """Nor is it a dead letter."""
    shard = Shard(BUCKET)
    assert shard.step([{"type": "alive", "id": "a", "ts": T0, "proxy": "p1"}]) == []
    assert shard.dead_letters == []


def test_a_wait_beyond_64_bits_is_cut() -> None:
    """A debt of ages at a rate near zero."""
    decision = decide({ALICE: quota(1e-9)}, request("a", 0, 2**63 - 1, 1))["a"]
    assert decision["throttle_time_ms"] == 2**63 - 1
