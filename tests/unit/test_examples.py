"""The examples in conf/examples show the numbers of docs/contract.md 3."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from streaming.policy.files import load_policies
from streaming.policy.policy_set import PolicySet
from streaming.policy.topics import BacklogKind, backlog_quota, check_interval_s
from streaming.replay import ReplayResult, replay_local

EXAMPLES = Path(__file__).resolve().parents[2] / "conf" / "examples"
FILES = ("backlog", "concurrency", "dispatch", "mutation", "shares")


def replayed(*names: str) -> ReplayResult:
    """Decided by the local engine under the policies beside them."""
    return replay_local(str(EXAMPLES / "policies.yaml"), [str(EXAMPLES / f"{name}.jsonl") for name in names])


def decided(name: str) -> dict[str, dict[str, Any]]:
    """Decisions of one file, by id."""
    return {decision["id"]: decision for decision in map(orjson.loads, replayed(name).decisions)}


def test_mutations_average_5_6_and_wait_12_seconds() -> None:
    """KIP-599's draft: 500 allowed in a burst, 560 taken, so 12 s; afterwards both are let in again."""
    decisions = decided("mutation")
    assert decisions["m1"]["rate"] == pytest.approx(5.6)
    assert decisions["m4"]["tokens"] == -60
    waits = [decisions[f"m{number}"]["throttle_time_ms"] for number in range(1, 7)]
    assert waits == [0, 12_000, 0, 0, 12_000, 0]


def test_shares_use_what_is_left_and_move_half_way() -> None:
    """PIP-82: 10/50/30 of 100, and 80/20 that becomes fair."""
    rounds: dict[tuple[str, int], list[float]] = {}
    for decision in decided("shares").values():
        shares = rounds.setdefault((decision["group"], decision["round"] % 10), [])
        shares.append(decision["limits"]["publishRateInMsgs"])
    assert rounds == {
        ("residual", 0): pytest.approx([11.11, 55.56, 33.33], abs=0.005), ("stealing", 0): [80, 20],
        ("stealing", 1): [65, 35], ("stealing", 2): pytest.approx([57.5, 42.5]),
    }


def test_over_delivery_is_paid_off_by_the_next_periods() -> None:
    """Pulsar's dispatch throttling: after 11 of 10 there are 9; after 30 nothing, nothing, then 10."""
    decisions = decided("dispatch")
    left = [decisions[f"d{number}"]["available"]["msgs"] for number in range(1, 7)]
    assert left == [0, 9, 0, 0, 0, 10]


def test_a_limit_falls_while_requests_are_slow() -> None:
    """Zeebe's AIMD: one up when fast, a tenth down when slow, held while more is in flight than the limit."""
    limits = [decision["limit"] for decision in decided("concurrency").values()]
    assert limits == [101, 90, 81, 72, 64, 64, 57, 58]


def test_the_oldest_subscription_its_age_and_what_must_go() -> None:
    """PIP-323: the slow one holds 103,900 bytes; ledger 1 goes; too old a backlog holds producers."""
    decisions = decided("backlog")
    first = decisions["k1"]
    assert (first["oldestBacklogMessageSubscriptionName"], first["oldestBacklogMessageAgeSeconds"]) == (
        "slow",
        100,
    )
    assert first["evict"] == [{"subscription": "slow", "ledger": 1, "entry": 99, "entries": 100}]
    assert (decisions["k2"]["backlogSize"], decisions["k2"]["exceeded"]) == (300, [])
    assert decisions["k3"]["actions"] == [{"quota_type": "time", "policy": "producer_request_hold"}]


def test_backlog_quotas_have_a_topic_of_each_policy() -> None:
    """Those that are named are carried out, all others are only reported, and nobody waits a minute."""
    policies = PolicySet(load_policies(str(EXAMPLES / "backlog_quotas.yaml")))
    named = {name: f"persistent://public/default/{name}" for name in ("invoices", "sensors", "clicks")}
    quotas = {name: backlog_quota(policies, topic, BacklogKind.SIZE) for name, topic in named.items()}
    assert {name: quota.policy for name, quota in quotas.items()} == {
        "invoices": "producer_request_hold",
        "sensors": "producer_exception",
        "clicks": "consumer_backlog_eviction",
    }
    assert all(quota.actions for quota in quotas.values())
    assert [name for name, quota in quotas.items() if quota.allow_delete_records] == ["clicks"]
    for kind in BacklogKind:
        other = backlog_quota(policies, "persistent://public/default/other", kind)
        assert other.limit > 0 and not other.actions
    assert check_interval_s(policies) == 5


def test_all_together_decide_the_same() -> None:
    """Their ids are different and no file disturbs another; every line has ts and id and is valid."""
    together = replayed(*FILES)
    assert together.dead_letters == []
    assert sorted(together.decisions) == sorted(line for name in FILES for line in replayed(name).decisions)
    events = [
        orjson.loads(line)
        for name in FILES
        for line in (EXAMPLES / f"{name}.jsonl").read_bytes().splitlines()
    ]
    assert all(type(event["ts"]) is int and event["id"] for event in events)
    assert len({event["id"] for event in events}) == len(events)
