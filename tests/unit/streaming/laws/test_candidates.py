"""Policies that are only tried: decided by beside those in force, and known apart."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import mode_kit
import orjson
import pytest
from law_kit import T0, policy, quota, records_of, request

from streaming.columns.outputs import Outputs
from streaming.laws.law import CandidatePolicies, StepContext
from streaming.laws.mutation.table import MutationTable
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


def test_what_proxies_refused_by_themselves_is_asked_of_it() -> None:
    """They had told the subject to wait by the policies in force; under any others it stayed refused."""
    events = [request("a", 0, 5), *(request(name, 10, 10, answered="not_before") for name in "bc")]
    _, outputs = step("mutation", 0, None, records_of(events), tried(STRICTER))
    assert [one["outcome"] for one in said(outputs)] == ["allow", "allow", "reject"]
    _, outputs = step("mutation", 0, None, records_of(events), LIVE)
    assert [orjson.loads(value)["outcome"] for value in outputs.value] == ["allow", "reject", "reject"]


def test_what_cannot_be_used_others_tell_of() -> None:
    """A candidate writes no dead letter."""
    _, outputs = step("mutation", 0, None, records_of([{"type": "nothing"}]), tried(STRICTER))
    assert len(outputs) == 1 and said(outputs) == []


def test_a_mistake_in_a_law_costs_a_candidate_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which nothing is written; it goes on with what it knew, by its own policies."""
    lenient = replace(tried(STRICTER), fail_fast=False)
    body, _ = step("mutation", 0, None, records_of([asked("a", 10, 20)]), lenient)
    events = [policy(15, "quotas[user=alice]", quota(500)), asked("b", 20, 1)]
    with monkeypatch.context() as broken:
        broken.setattr(MutationTable, "fold", lambda *_: 1 / 0)
        after, outputs = step("mutation", 0, body, records_of(events), lenient)
    assert said(outputs) == [] and after == body
    _, outputs = step("mutation", 0, after, records_of([asked("c", 30, 1)]), lenient)
    assert [(one["outcome"], one["limit"]) for one in said(outputs)] == [("reject", 1.0)]


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
