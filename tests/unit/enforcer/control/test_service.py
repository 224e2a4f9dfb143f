"""What the admin API takes of what is read of Weir's topics."""

import time
from typing import Any

import pytest
from admin_api_kit import report
from message_kit import Record

from enforcer.control.access.tokens import Tokens
from enforcer.control.service import AdminService
from enforcer.control.settings import AdminSettings
from streaming.contract.topics import Cluster, Topics
from streaming.policy.policy_set import PolicySet


def service() -> AdminService:
    """One that is not started."""
    cluster = Cluster(bootstrap="127.0.0.1:1", topics=Topics(), client={})
    return AdminService(cluster, AdminSettings(), Tokens(), ("127.0.0.1", 0), None, None, 1_000)


async def test_a_report_from_far_ahead_is_none() -> None:
    """As to the job; all that comes until then would be older, and a broker's use stand for an hour."""
    made = service()
    now = time.time_ns() // 1_000_000
    made._take_reports([(report("b1", now + 3_600_000, 9), {}, now), (report("b1", now, 2), {}, now)])
    ((_, row),) = made._parts.usage.rows.items()
    assert (row.reported_ts, row.counts[0]) == (now, 2)
    assert made._parts.metrics.registry.get_sample_value("weir_admin_usage_rows") == 1


async def test_policies_are_made_once_for_all_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100,000 entries each time takes longer than what is read."""
    made, count = service(), 0

    def counted(*given: Any, **named: Any) -> PolicySet:
        nonlocal count
        count += 1
        return PolicySet(*given, **named)

    made.read.set()
    monkeypatch.setattr("enforcer.control.service.PolicySet", counted)
    for _ in range(3):
        made._take_reports([])
    assert count == 1


async def test_an_event_on_another_topic_than_its_own_is_none() -> None:
    """As to the job, which makes dead letters of them: use that nobody decided by was shown as used."""
    made, now = service(), time.time_ns() // 1_000_000
    told: dict[str, dict[str, Any]] = {
        "group_usage": {"broker": "b1", "period_ms": 1_000, "usage": {"rg1": {"publishedMsg": 9}}},
        "request": {"subject": "user=alice", "items": [{"name": "t", "mutations": 1}]},
        "tick": {},
    }
    records = {kind: Record({"type": kind, **fields}, ts=now) for kind, fields in told.items()}
    read = {
        topic: [kind for kind, record in records.items() if tail._parse(record)]  # type: ignore[arg-type]
        for topic, tail in made._tails.items()
    }
    assert read == {
        "weir.decisions": [], "weir.usage": ["group_usage", "tick"], "weir.requests": ["request"]
    }  # fmt: skip
