"""Policies that are only tried: decided by beside those in force, and known apart."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import mode_kit
import orjson
from law_kit import T0, policy, quota, records_of, request

from streaming.columns.outputs import Outputs
from streaming.laws.law import CandidatePolicies, StepContext
from streaming.laws.registry import LAWS
from streaming.laws.shard import step
from streaming.policy.files import load_policies

STRICTER = {"quotas[user=alice]": quota(1, 10)}
LIVE = StepContext(processed_ts=T0, fail_fast=True)


def tried(entries: dict[str, Any], digest: bytes = b"1") -> StepContext:
    """The context of a candidate."""
    return LIVE.tried(CandidatePolicies(name="stricter", entries=entries, digest=digest))


def said(outputs: Outputs) -> list[dict[str, Any]]:
    """Decisions by a candidate."""
    return [orjson.loads(value) for value in outputs.tried("stricter").value]


def asked(name: str, at_ms: int, *mutations: int) -> dict[str, Any]:
    """A request that is stamped by other policies, and decided by them."""
    decided = {"outcome": "allow", "rejected": [], "throttle_time_ms": 0, "tokens": 1.0}
    own = {"subject": "user=alice,client-id=c", "client_id": "c", "strict": True}
    return request(name, at_ms, *mutations, decided=decided, **own)


def test_all_is_decided_anew_by_its_own_policies_alone() -> None:
    """Whatever the event is stamped with, whatever was decided, and whatever changes in force."""
    events = [policy(0, "quotas[user=alice]", quota(500)), asked("a", 10, 20), asked("b", 20, 1)]
    body, first = step("mutation", 0, None, records_of(events), tried(STRICTER))
    # What it knows goes on with the next batch.
    body, second = step("mutation", 0, body, records_of([asked("c", 30, 1)]), tried(STRICTER))
    decided = [*said(first), *said(second)]
    assert [one["outcome"] for one in decided] == ["allow", "reject", "reject"]
    by = {(one["subject"], one["limit"], one["policy_version"]) for one in decided}
    assert by == {("user=alice", 1.0, 1)}
    assert {one["candidate"] for one in decided} == {"stricter"} and not any("law" in one for one in decided)
    # Other policies under that name know nothing of it.
    _, anew = step("mutation", 0, body, records_of([asked("d", 40, 1)]), tried(STRICTER, b"2"))
    assert [(one["outcome"], one["tokens"]) for one in said(anew)] == [("allow", 9.0)]


def test_what_cannot_be_used_others_tell_of() -> None:
    """A candidate writes no dead letter, and a mistake in a law costs it a batch."""
    rubbish = records_of([{"type": "nothing"}, {**asked("a", 1, 1), "items": 7}])
    _, outputs = step("mutation", 0, None, rubbish, replace(tried(STRICTER), fail_fast=False))
    assert said(outputs) == []


def test_every_law_is_tried(tmp_path: Path) -> None:
    """And nothing is said again."""
    file = tmp_path / "policies.yaml"
    file.write_text(mode_kit.POLICIES)
    entries = load_policies(str(file))
    events = [event for event in mode_kit.events() if event["type"] != "policy"]
    events.append({"type": "tick", "ts": T0 + 60_000})
    context = replace(tried(entries), processed_ts=T0 + 60_000)
    for law in LAWS.by_name.values():
        own = [event for event in events if event["type"] in (*law.readers, "tick")]
        _, outputs = step(law.name, 0, None, records_of(own), context)
        assert {one["candidate"] for one in said(outputs)} == {"stricter"}, law.name
        assert not any(one.get("repeat") for one in said(outputs))
