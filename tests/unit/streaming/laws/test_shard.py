"""What becomes dead letters: events too far ahead, and batches in which a law, or code around it, fails."""

from base64 import b64decode
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from blob_store_kit import MemoryBlobStore
from event_kit import backlog, delivery, ledger, report, sample, subscription
from law_kit import T0, Shard, policy, quota, refund, request
from pack_kit import packed, records_with

from streaming.columns.records import Records
from streaming.contract.errors import StateError
from streaming.laws.law import StepContext
from streaming.laws.shard import step

Event = dict[str, Any]
TOPIC = "persistent://t/n/x"
PATH = {
    "mutation": "quotas[user=alice]", "shares": "resourcegroups.g", "dispatch": "broker",
    "concurrency": "backpressure.partitions.*", "backlog": "namespaces.t/n",
}  # fmt: skip
OLD = {
    "mutation": quota(1, 10),
    "shares": {"publishRateInMsgs": 100},
    "dispatch": {"dispatchThrottlingRateInMsg": 1},
    "concurrency": {"algorithm": "aimd"},
    "backlog": {"backlogQuotaMap": {"destination_storage": {"limitSize": 1, "policy": "producer_exception"}}},
}
NEW = {
    "mutation": quota(1, 1000),
    "shares": {"publishRateInMsgs": 7},
    "dispatch": {"dispatchThrottlingRateInMsg": 3},
    "concurrency": {"algorithm": "fixed"},
    "backlog": {"backlogQuotaMap": {"destination_storage": {"limitSize": 5, "policy": "producer_exception"}}},
}


def event(law: str, at_ms: int) -> Event:
    """An event of a law; of resource groups each closes the round of the one before."""
    return {
        "mutation": request(f"m{at_ms}", at_ms, 5, subject="user=alice"),
        "backlog": backlog([ledger(1, 1, 9)], subscription("s", 1, -1), at_ms=at_ms, topic=TOPIC),
        "concurrency": sample(f"l{at_ms}", at_ms, 300, 100),
        "dispatch": delivery(at_ms, 2, 2, topic=TOPIC),
        "shares": report(at_ms, "b", {"g": {"publishedMsg": 50}}),
    }[law]


class Live:
    """One shard of the live job."""

    def __init__(self, law: str, *, fail_fast: bool = False, **context: Any) -> None:
        self.shard = Shard(
            {PATH[law]: OLD[law]}, law=law, replay=False, fail_fast=fail_fast, blobs=MemoryBlobStore(),
            processed_ts=T0, **context,
        )  # fmt: skip

    @property
    def body(self) -> bytes | None:
        """What it knows."""
        return self.shard.body

    def step(self, *events: Event, written_ms: int | None = None) -> tuple[list[Event], dict[int, Event]]:
        """Decisions of one batch, and its dead letters by place in it; each record as it came.

        Records were written `written_ms` after T0; None: each at the time of its event.
        """
        times = [each.get("ts", T0) if written_ms is None else T0 + written_ms for each in events]
        first, self.shard.dead_letters = self.shard.offset, []
        decided = self.shard.step(events, times=times)
        buried = {letter["offset"] - first: letter for letter in self.shard.dead_letters}
        for place, letter in buried.items():
            assert b64decode(letter["value_base64"]) == orjson.dumps(events[place])
        return decided, buried


YEAR_MS = 365 * 86_400_000


def odd(own: Event) -> Event:
    """The same event for those that compiled readers leave to the parser."""
    return own | {"note": {"nested": "é"}}


@pytest.mark.parametrize("law", PATH)
@pytest.mark.parametrize("form", [dict, odd])
def test_an_event_a_year_ahead_is_buried_and_moves_nobodys_time(
    law: str, form: Callable[[Event], Event]
) -> None:
    """In one batch with others and in one of its own: what is decided is what would be without it."""
    shard, spared = Live(law), Live(law)
    wrong = form(event(law, 3000 + YEAR_MS))
    found = [
        shard.step(event(law, 1000), wrong, event(law, 2000), written_ms=3000),
        shard.step(wrong, written_ms=4000),
        shard.step(event(law, 5000), event(law, 70_000), written_ms=70_000),
    ]
    for batch, own in zip((found[0], found[2]), ((1000, 2000), (5000, 70_000)), strict=True):
        assert batch[0] == spared.step(*(event(law, at_ms) for at_ms in own), written_ms=own[1])[0]
    assert [list(buried) for _, buried in found] == [[1], [0], []]
    assert found[0][1][1]["reason"] == (
        f"ts: {T0 + 3000 + YEAR_MS} is {YEAR_MS} ms after the time of its record, {T0 + 3000}; at most"
        " 60000 ms (job.max_ahead_ms) was expected"
    )
    assert shard.body == spared.body


@pytest.mark.parametrize("law", PATH)
@pytest.mark.parametrize("form", [dict, odd])
@pytest.mark.parametrize("key", ["ts", "applied_ts"])
def test_so_far_ahead_and_no_farther(law: str, form: Callable[[Event], Event], key: str) -> None:
    """The setting is a bound on both times of an event, as for those that are to be applied later."""
    shard = Live(law, max_ahead_ms=500)
    near, far = (form(event(law, 1000) | {"id": "e", key: T0 + 1000 + ahead}) for ahead in (500, 501))
    assert list(shard.step(near, far, written_ms=1000)[1]) == [1]
    (letter,) = shard.step(far, written_ms=1000)[1].values()
    assert letter["reason"].startswith(f"{key}: {T0 + 1501} is 501 ms after")
    assert "at most 500 ms (job.max_ahead_ms)" in letter["reason"]


def test_ticks_are_bound_too() -> None:
    """A tick is buried by the shard that reports what all see; the others pass over it."""
    tick = {"type": "tick", "ts": T0 + YEAR_MS}
    assert list(Live("mutation").step(tick, written_ms=0)[1]) == [0]
    shares = Live("shares")
    assert shares.step(event("shares", 0), tick, written_ms=0) == ([], {})


@pytest.mark.parametrize("law", PATH)
def test_a_policy_is_in_force_when_it_says(law: str) -> None:
    """However far ahead that is: it moves no clock, and until then the one before it holds."""
    shard, spared = Live(law), Live(law)
    ahead = policy(YEAR_MS, PATH[law], NEW[law])
    assert shard.step(ahead, event(law, 1000), written_ms=1000) == spared.step(event(law, 1000))
    assert shard.step(event(law, 70_000))[0] == spared.step(event(law, 70_000))[0]
    later = event(law, YEAR_MS), event(law, YEAR_MS + 70_000)
    assert shard.step(*later)[0] != spared.step(*later)[0]


def test_a_debt_outlives_somebody_elses_wrong_clock() -> None:
    """The request of bob, a year ahead, once let the idle leave: alice's debt was forgotten."""
    shard = Live("mutation")
    shard.step(request("a", 0, 500, subject="user=alice"))
    shard.step(request("b", YEAR_MS, 1, subject="user=bob"), written_ms=1000)
    (decided,), _ = shard.step(request("c", 2000, 1, subject="user=alice"))
    assert (decided["outcome"], decided["tokens"]) == ("reject", -488.0)


def test_what_a_wrong_clock_gives_back_counts_at_its_records_time() -> None:
    """It has happened, so it is applied; but it ends nobody's debt a year early."""
    shard = Live("mutation")
    shard.step(request("a", 0, 500, subject="user=alice"))
    _, buried = shard.step(refund(YEAR_MS, 0, 100) | {"subject": "user=alice"}, written_ms=1000)
    (decided,), _ = shard.step(request("c", 2000, 1, subject="user=alice"))
    assert (decided["outcome"], decided["tokens"], buried) == ("reject", -388.0, {})


def test_a_line_of_a_file_may_lie_anywhere() -> None:
    """It has no record time; the order of times is the log's own affair."""
    offline = Records(topic=["f"], partition=[0], offset=[1], ts=[None])
    for far in (event("mutation", YEAR_MS), odd(event("mutation", YEAR_MS))):
        offline.value = [orjson.dumps(far)]
        _, outputs = step("mutation", 0, None, offline, StepContext(replay=True, fail_fast=True))
        assert outputs.listed("sink") == ["decisions"]


def fail(*args: Any, **named: Any) -> Any:
    """A bug."""
    raise ValueError("a bug")


LAW = "streaming.laws"
OF_THE_LAW = [
    ("mutation", f"{LAW}.mutation.intake.arrow.read"),
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
        decided, buried = shard.step(event(law, 70_000), change, {"type": "rubbish"}, event(law, 71_000))
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


@pytest.mark.parametrize("form", [dict, odd])
def test_a_request_on_the_topic_of_usage_is_buried(form: Callable[[Event], Event]) -> None:
    """Who may write reports, and no requests, could charge anybody's quota."""
    asked = [form(event("mutation", at_ms)) for at_ms in range(3)]
    values = [*map(orjson.dumps, asked[:2]), *packed(asked[2:])]
    for topic, buried in (("weir.requests", 0), ("weir.usage", 3)):
        records = records_with(values, [False, False, True], T0, topic, broadcast=[False] * 3)
        records.requests = "weir.requests"
        _, outputs = step("mutation", 0, None, records, Live("mutation").shard.context)
        assert outputs.listed("sink") == ["deadletter" if buried else "decisions"] * 3, topic
        for value in map(orjson.loads, outputs.value if buried else ()):
            assert value["reason"] == "type: of the law mutation; it does not belong on this topic"
            assert value["topic"] == topic
