"""What collectors follow: decisions and actions on backlogs as read, and topics that are made again."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from admin_backlog_kit import decision, eviction
from collector_kit import NAME, TOPIC
from event_kit import EVICT
from message_kit import Record
from pack_kit import rows_of

from streaming.columns.packed import pack
from streaming.contract.backlog.actions import BacklogAction
from streaming.contract.backlog.decisions import BacklogDecision
from streaming.contract.topics import Cluster
from streaming.kafka_io import topic_watch
from streaming.kafka_io.tail import Tail
from streaming.kafka_io.topic_watch import TopicWatch
from streaming.kafka_io.weir_topics import TopicsSeen
from weir.collect import feeds
from weir.collect.feeds import DecisionFeed, PolicyFeed, backlogs_in, shares_in

DECISION = decision(
    TOPIC, ("size", EVICT), id=f"{NAME}-1.0", ts=5_000, backlogSize=103_900.0, backlogQuotaLimitSize=100,
    backlogQuotaLimitTime=9, oldestBacklogMessageAgeSeconds=100,
    exceeded=["destination_storage", "message_age"],
    evict=[
        {"subscription": "slow", "ledger": 1, "entry": 99, "entries": 100},
        {"subscription": "slow", "before_publish_time": 4_000},
    ],
)  # fmt: skip
CALM: dict[str, Any] = {
    **DECISION, "id": f"{NAME}-1.1", "oldestBacklogMessageSubscriptionName": None, "exceeded": [],
    "actions": [], "evict": [],
}  # fmt: skip
ACTION = eviction(
    "slow", "begun", id="d/size/slow", ts=5_001, topic=TOPIC, limit=100, actor=NAME, messages=3, bytes=300
)
SHARE: dict[str, Any] = {
    "type": "share", "id": "s", "ts": 5_000, "group": "g", "broker": "b", "ttl_ms": 180_000,
    "limits": {"publishRateInMsgs": 60.0},
}  # fmt: skip


def read(record: Record) -> tuple[list[BacklogDecision | BacklogAction], list[str]]:
    """What is read of a record, and the complaints."""
    complaints: list[str] = []
    return backlogs_in(record, complaints.append), complaints  # type: ignore[arg-type]


def test_single_ones_are_read() -> None:
    (decision,), complaints = read(Record(DECISION))
    assert isinstance(decision, BacklogDecision) and complaints == []
    assert [(one.quota_type, one.entry) for one in decision.evict] == [("size", 99), ("time", None)]
    (action,), complaints = read(Record(ACTION))
    assert isinstance(action, BacklogAction) and action.step == "begun" and complaints == []


def test_packed_ones_are_those_that_their_objects_would_be() -> None:
    """A line of a plan by time has nulls where those by size have a position."""
    (value,) = pack("backlog", rows_of([DECISION, CALM]))
    found, complaints = read(Record(value, packed=True))
    single = [read(Record(one))[0][0] for one in (DECISION, CALM)]
    assert found == single and complaints == []


def test_other_types_are_passed_over_without_a_word() -> None:
    assert read(Record({"type": "share", "group": "g"})) == ([], [])
    assert read(Record(None)) == ([], [])
    (value,) = pack("limit", rows_of([{"type": "limit", "id": "a", "limit": 3}]))
    assert read(Record(value, packed=True)) == ([], [])


def test_what_cannot_be_used_is_complained_of() -> None:
    for value in (
        {**DECISION, "ts": -1},
        {**ACTION, "step": "soon"},
        {**ACTION, "topic": "../t"},
        b'{"type":"backlog",',
    ):
        found, complaints = read(Record(value))
        assert found == [] and len(complaints) == 1
    found, complaints = read(Record(b"no stream", packed=True))
    assert found == [] and len(complaints) == 1


def test_shares_and_policies_go_by_the_brokers_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that is an hour ahead no share stood, and the whole limit went to this cluster's brokers."""
    monkeypatch.setattr(feeds, "wall_ms", lambda: 3_605_100)
    clock = PolicyFeed(Cluster("b:1"), lambda: None).clock
    record: Any = Record(SHARE)

    def left_ms() -> list[int]:
        return [share.ttl_ms for share in shares_in(clock.now_ms, record, lambda _reason: None)]

    assert left_ms() == []
    clock.learn(65_100, time.monotonic() * 1000)
    (left,) = left_ms()
    assert 110_000 < left <= 120_000


@pytest.mark.parametrize(
    ("topic", "follow"),
    [
        ("weir.policies", lambda cluster: PolicyFeed(cluster, lambda: None)),
        ("weir.decisions", lambda cluster: DecisionFeed(cluster, backlogs_in, print, lambda: None, 60_000)),
    ],
)
async def test_a_topic_made_again_is_read_from_its_start(
    monkeypatch: pytest.MonkeyPatch, topic: str, follow: Callable[[Cluster], Any]
) -> None:
    """With as many records as the former one it brought nothing: a collector kept the limits of that."""
    ids, anew = {"weir.policies": "old", "weir.decisions": "old"}, list[str]()
    monkeypatch.setattr(topic_watch, "look", lambda *_: TopicsSeen(faults=(), ids=dict(ids), partitions={}))
    monkeypatch.setattr(TopicWatch, "start", TopicWatch.look)
    monkeypatch.setattr(Tail, "start", lambda *_: None)
    monkeypatch.setattr(Tail, "begin_anew", lambda tail: anew.append(tail._topic))
    feed = follow(Cluster("127.0.0.1:1"))
    feed.begin()
    for name in (topic, *ids.keys() - {topic}):
        ids[name] = "new"
        feed._watch.look()
        assert anew == [topic]
    await feed.stop()
