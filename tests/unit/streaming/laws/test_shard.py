"""What a shard makes of a batch in which the code of a law, or around it, fails: dead letters."""

from base64 import b64decode
from typing import Any

import orjson
import pytest
from blob_store_kit import MemoryBlobStore
from law_kit import T0, policy, quota, request

from streaming.columns.records import Records
from streaming.contract.errors import StateError
from streaming.laws.law import StepContext
from streaming.laws.shard import step

Event = dict[str, Any]
TOPIC = "persistent://t/n/x"
PATH = {"mutation": "quotas[user=alice]", "shares": "resourcegroups.g", "backlog": "namespaces.t/n"}
OLD = {
    "mutation": quota(1, 10),
    "shares": {"publishRateInMsgs": 100},
    "backlog": {"backlogQuotaMap": {"destination_storage": {"limitSize": 1, "policy": "producer_exception"}}},
}
NEW = {
    "mutation": quota(1, 1000),
    "shares": {"publishRateInMsgs": 7},
    "backlog": {"backlogQuotaMap": {"destination_storage": {"limitSize": 5, "policy": "producer_exception"}}},
}
RUBBISH = {"type": "rubbish"}


def event(law: str, at_ms: int) -> Event:
    """An event of a law; of resource groups each closes the round of the one before."""
    if law == "mutation":
        return request(f"m{at_ms}", at_ms, 5, subject="user=alice")
    if law == "backlog":
        own = {"name": "s", "ledger": 1, "entry": -1, "durable": True}
        ledgers = [{"id": 1, "entries": 1, "size": 9, "closeTime": None}]
        told = {"topic": TOPIC, "ledgers": ledgers, "subscriptions": [own]}
        return {"type": "backlog", "id": f"k{at_ms}", "ts": T0 + at_ms, **told}
    usage = {"g": {"publishedMsg": 50}}
    return {"type": "group_usage", "ts": T0 + at_ms, "broker": "b", "period_ms": 1000, "usage": usage}


class Live:
    """One shard of the live job."""

    def __init__(self, law: str, *, fail_fast: bool = False) -> None:
        self.law, self.offset = law, 0
        self.body: bytes | None = None
        self.context = StepContext(
            initial={PATH[law]: OLD[law]}, processed_ts=T0, fail_fast=fail_fast, blobs=MemoryBlobStore()
        )

    def step(self, *events: Event) -> tuple[list[Event], dict[int, Event]]:
        """Decisions of one batch, and its dead letters by place in it; each record as it came."""
        count = len(events)
        first, self.offset = self.offset, self.offset + count
        values = [orjson.dumps(each) for each in events]
        records = Records(
            topic=["t"] * count, partition=[0] * count, offset=list(range(first, self.offset)),
            ts=[T0] * count, value=values, broadcast=[each["type"] in ("policy", "tick") for each in events],
        )  # fmt: skip
        self.body, outputs = step(self.law, 0, self.body, records, self.context)
        decided, buried = [], {}
        for sink, value in zip(outputs.sink, map(orjson.loads, outputs.value), strict=True):
            if sink == "decisions":
                decided.append(value)
            else:
                place = value["offset"] - first
                assert b64decode(value["value_base64"]) == values[place]
                buried[place] = value
        return decided, buried


def fail(*args: Any, **named: Any) -> Any:
    """A bug."""
    raise ValueError("a bug")


LAW = "streaming.laws"
OF_THE_LAW = [
    ("mutation", f"{LAW}.mutation.intake.scanned"),
    ("mutation", f"{LAW}.mutation.intake.ordered"),
    ("mutation", f"{LAW}.mutation.intake.routing_keys"),
    *[
        (law, f"{LAW}.{law}.table.{table}.{part}")
        for law, table in (
            ("mutation", "MutationTable"),
            ("shares", "SharesTable"),
            ("backlog", "BacklogTable"),
        )
        for part in ("fold", "sweep", "policies_from", "repeats", "leave", "columns")
    ],
    ("shares", f"{LAW}.shares.intake.ReportIntake.scan"),
    ("shares", f"{LAW}.shares.intake.ReportIntake.events"),
    ("backlog", f"{LAW}.refresh.Refresh.note"),
    ("backlog", f"{LAW}.refresh.Refresh.repeats"),
    ("backlog", f"{LAW}.refresh.Refresh.to_bytes"),
]
OF_THE_STATE = [
    ("shares", "streaming.state.spilled.encode"),
    ("mutation", "streaming.policy.timeline.PolicyTimeline.to_json"),
]
OF_POLICIES_TOO = [("mutation", f"{LAW}.registry.parse"), ("mutation", f"{LAW}.shard.take"), *OF_THE_STATE]


@pytest.mark.parametrize(("law", "part"), OF_THE_LAW)
def test_whatever_fails_costs_the_batch_and_not_the_query(
    law: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events become dead letters with the traceback; the next batch finds what it would without them.

    A policy that came with them is in force all the same, and what cannot be used has a reason of its own.
    """
    shard, spared = Live(law), Live(law)
    change = policy(2000, PATH[law], NEW[law])
    for each in (shard, spared):
        each.step(event(law, 1000))
    with monkeypatch.context() as broken:
        broken.setattr(part, fail)
        decided, buried = shard.step(event(law, 70_000), change, RUBBISH, event(law, 71_000))
    assert (decided, list(buried)) == ([], [0, 2, 3])
    assert all("Traceback" in buried[place]["reason"] for place in (0, 3))
    assert all("ValueError: a bug" in buried[place]["reason"] for place in (0, 3))
    assert buried[2]["reason"].startswith("type: unknown")
    spared.step(change)
    after = event(law, 140_000), event(law, 200_001)
    assert shard.step(*after)[0] == spared.step(*after)[0] != []


@pytest.mark.parametrize(("law", "part"), OF_THE_LAW + OF_THE_STATE)
def test_a_batch_without_policies_leaves_the_state_as_it_was(
    law: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte; ticks are buried too, since the rounds that they were to close stay open."""
    shard = Live(law)
    shard.step(event(law, 1000))
    before = shard.body
    monkeypatch.setattr(part, fail)
    tick = [] if law == "mutation" else [{"type": "tick", "ts": T0 + 75_000}]
    decided, buried = shard.step(event(law, 70_000), *tick)
    assert (decided, len(buried), shard.body) == ([], 1 + len(tick), before)


@pytest.mark.parametrize(("law", "part"), OF_POLICIES_TOO)
def test_policies_are_buried_where_they_fail_too(
    law: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is as before the batch, and the query goes on."""
    shard = Live(law)
    shard.step(event(law, 1000))
    before = shard.body
    with monkeypatch.context() as broken:
        broken.setattr(part, fail)
        decided, buried = shard.step(event(law, 1500), policy(2000, PATH[law], NEW[law]))
    assert (decided, sorted(buried), shard.body) == ([], [0, 1], before)
    assert all("ValueError: a bug" in letter["reason"] for letter in buried.values())
    assert shard.step(event(law, 1600), event(law, 70_000))[0]


@pytest.mark.parametrize(("law", "part"), OF_THE_LAW)
def test_a_first_batch_that_fails_leaves_a_shard_that_knows_nothing(
    law: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a state, since Spark wants one, and decides from then on as one that begins."""
    shard, fresh = Live(law), Live(law)
    with monkeypatch.context() as broken:
        broken.setattr(part, fail)
        assert shard.step(event(law, 70_000))[1].keys() == {0}
    after = event(law, 71_000), event(law, 140_000)
    assert shard.step(*after)[0] == fresh.step(*after)[0] != []


@pytest.mark.parametrize(("law", "part"), OF_THE_LAW + OF_POLICIES_TOO)
@pytest.mark.parametrize(
    ("fail_fast", "error"), [(True, ValueError("a bug")), (False, StateError("a disk is gone"))]
)
def test_a_state_that_is_lost_ends_the_query_and_so_does_any_error_where_asked(
    law: str, part: str, fail_fast: bool, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No law may decide without its state; `job.fail_fast` is for those who would rather stop."""

    def broken(*args: Any, **named: Any) -> Any:
        raise error

    shard = Live(law, fail_fast=fail_fast)
    shard.step(event(law, 1000))
    monkeypatch.setattr(part, broken)
    with pytest.raises(type(error), match=str(error)):
        shard.step(event(law, 70_000), policy(2000, PATH[law], NEW[law]))
