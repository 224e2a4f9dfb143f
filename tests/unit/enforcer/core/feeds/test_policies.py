"""Policies in: checked one by one, in force from their time on, folded when they are many."""

from typing import Any

import orjson
import pytest
from mutation_kit import Desk

from enforcer.core.feeds.policies import KEEP_MS, Policies, parse_policy
from streaming.contract.events import PolicyChange

NOW_TS = 1_795_166_668_000
DAY_MS = 86_400_000


@pytest.mark.parametrize(
    "event",
    [
        {"type": "request", "items": []},
        {"type": "policy", "path": "quotas[user=a]", "value": {"controller_mutation_rate": 0}},
        {"type": "policy", "path": "nonsense", "value": {}},
        {"type": "policy", "path": "nonsense", "value": None, "version": 5_000},
        {"type": "policy", "path": "quotas[user=a]", "value": {"controler_mutation_rate": 5}},
    ],
)
def test_a_bad_policy_is_not_used(event: dict[str, Any]) -> None:
    """A record that is no valid policy is skipped: it must not take the good ones along."""
    assert parse_policy(orjson.dumps(event), "weir.policies-0-1", 5) is None
    assert parse_policy(None, "weir.policies-0-1", 5) is None


def rate_of(user: str, rate: int, ts: int) -> PolicyChange:
    """A change of one user's quota."""
    value = {"controller_mutation_rate": rate}
    return PolicyChange(id="x", ts=ts, at=ts, path=f"quotas[user={user}]", value=value, version=None)


def test_policies_take_effect_in_time() -> None:
    """A change is in force from its effective time on, and its time is told."""
    told: list[int] = []
    policies = Policies(lambda: 100)
    policies.follow(told.append, lambda _upto: None)
    event = {
        "type": "policy", "ts": 100, "effective_ts": 100, "version": 9,
        "path": "quotas[user=a]", "value": {"controller_mutation_rate": 5},
    }  # fmt: skip
    change = parse_policy(orjson.dumps(event), "weir.policies-0-1", 5)
    assert change is not None
    policies.apply([change])
    assert told == [100]
    assert policies.at(99).mutation_quota("a", "") is None
    quota = policies.at(100).mutation_quota("a", "")
    assert quota is not None and quota.rate == 5 and policies.at(100).version == 9
    assert policies.at(100).mutation_quota_of_subject("user=a") == quota


def test_many_changes_are_folded() -> None:
    """Old changes leave memory, and what is in force stays exact."""
    policies = Policies(lambda: 200_000_000)
    for number in range(1, 200):
        event = {"type": "policy", "ts": number * 1_000_000, "path": "quotas[user=a]"}
        event["value"] = {"controller_mutation_rate": number}
        change = parse_policy(orjson.dumps(event), "x", None)
        assert change is not None
        policies.apply([change])
    newest = policies.at(200_000_000).mutation_quota("a", "")
    assert newest is not None and newest.rate == 199
    assert len(policies.timeline.changes(-1, 200_000_000)) < 100


def test_who_goes_by_policies_is_told_before_they_are_forgotten() -> None:
    """Then all that were in force are still there; and of each change."""
    changed: list[int] = []
    policies = Policies(lambda: NOW_TS + KEEP_MS)
    known: list[tuple[int, int]] = []
    policies.follow(
        changed.append, lambda upto: known.append((upto, len(policies.timeline.changes(-1, upto))))
    )
    policies.apply([rate_of("b", number, NOW_TS - 100 + number) for number in range(100)])
    assert known == [(NOW_TS, 100)]
    assert changed == [NOW_TS - 100 + number for number in range(100)]
    desk = Desk()
    assert desk.coordinator.local_decisions.sweep in [told for _, told in desk.context.policies._followers]


def test_a_change_dated_ahead_waits_for_its_time() -> None:
    """Also when it is read with many others, as at a start, and one of them is dated later still."""
    policies = Policies(lambda: NOW_TS)
    past = [rate_of("b", number, NOW_TS - 100 + number) for number in range(100)]
    ahead = [rate_of("a", 7, NOW_TS + DAY_MS), rate_of("c", 8, NOW_TS + DAY_MS + KEEP_MS)]
    policies.apply([*past, *ahead])
    assert policies.at(NOW_TS + DAY_MS - 1).mutation_quota("a", "") is None
    tomorrow = policies.at(NOW_TS + DAY_MS).mutation_quota("a", "")
    now = policies.at(NOW_TS).mutation_quota("b", "")
    assert tomorrow is not None and tomorrow.rate == 7
    assert now is not None and now.rate == 99
    late = policies.at(NOW_TS - 50).mutation_quota("b", "")
    assert late is not None and late.rate == 50


def test_nothing_is_forgotten_by_our_own_clock() -> None:
    """At a start it may be ahead of the brokers', whose nobody knows yet: what is dated ahead would be in
    force at once, and stay so.
    """
    now_ms, dated = NOW_TS + DAY_MS, False
    policies = Policies(lambda: now_ms, dated=lambda: dated)
    past = [rate_of("b", number, NOW_TS - 100 + number) for number in range(100)]
    policies.apply([*past, rate_of("a", 7, NOW_TS + DAY_MS // 2)])
    now_ms, dated = NOW_TS + KEEP_MS, True
    assert policies.at(now_ms).mutation_quota("a", "") is None
    policies.apply([rate_of("b", 100, now_ms)])
    assert len(policies.timeline.changes(-1, now_ms + DAY_MS)) == 2
    assert policies.at(now_ms).mutation_quota("a", "") is None
