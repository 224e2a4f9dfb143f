"""What the items of a request cost, by what is known of their topics."""

import uuid
from typing import Any

import pytest
from admin_kit import create, delete, grow
from each_kit import each
from kafka.protocol.admin.topics import DeleteTopicsRequest
from kafka_kit import request

from enforcer.kafka.mutations.mutation import RecentTopics, costs_of
from enforcer.wire.kafka.messages import NOTHING_KNOWN, RECENT_TOPIC_MS, TopicCounts
from enforcer.wire.kafka.mutations import MutationRequest, decode_request

ID_A, ID_B = uuid.uuid5(uuid.NAMESPACE_DNS, "a").bytes, uuid.uuid5(uuid.NAMESPACE_DNS, "b").bytes
TOPICS = TopicCounts(
    by_name={"a": 30, "b": 1, "none": None, "none2": None}, by_id={ID_A: 30, ID_B: 1, bytes(15) + b"x": None},
    names={ID_A: "a", ID_B: "b"}, broker_count=3,
)
DEFAULT_PARTITIONS = 4


def costs(read: MutationRequest, topics: TopicCounts = TOPICS) -> list[int]:
    """What each item costs, in their order."""
    counted = dict(costs_of(read, topics, DEFAULT_PARTITIONS).values())
    return [counted.get(item.position, 0) for item in read.items]


@each(
    ("row", "mutations"),
    [
        (("new", 5, 3, 0), 5),
        (("new", -1, -1, 0), DEFAULT_PARTITIONS),
        (("new", -1, -1, 7), 7),
        (("none", 2, 1, 0), 2),
        (("a", 5, 1, 0), 0),
        (("new", 5, 4, 0), 0),  # more replicas than brokers
        (("new", 0, 1, 0), 0),
        (("new", -2, 1, 0), 0),
        (("new", 1, 0, 0), 0),
        (("new", 1, -2, 0), 0),
        (("new", 7, -1, 7), 0),
        (("new", -1, 1, 7), 0),
        (("bad name", 1, 1, 0), 0),
    ],
)
def test_creation_costs_its_partitions(row: Any, mutations: int) -> None:
    """A 4.1 broker charged, or refused without charge, exactly these (docs/protocol_notes.md 1.3)."""
    assert costs(decode_request(*request(create(7, row)))) == [mutations]


def test_replicas_are_not_judged_without_brokers() -> None:
    """When the lookup failed, nothing counts as impossible."""
    read = decode_request(*request(create(7, ("a", 5, 99, 0))))
    assert costs(read, NOTHING_KNOWN) == [5]


@each(
    ("topic", "mutations"),
    [
        ("a", 30),
        (ID_A, 30),
        ("none", 0),
        (bytes(15) + b"x", 0),
        ("hidden", 1),  # may not be described: at least one
        (bytes(15) + b"y", 1),
    ],
)
def test_deletion_costs_the_current_count(topic: str | bytes, mutations: int) -> None:
    """By name or id; what does not exist costs nothing."""
    assert costs(decode_request(*request(delete(6, topic)))) == [mutations]


def test_deletion_by_neither_or_both_costs_nothing() -> None:
    """A broker refuses a topic named by name and id, or by nothing, before it charges."""
    state = DeleteTopicsRequest.DeleteTopicState
    rows = [
        state(version=6, name="a", topic_id=uuid.UUID(bytes=ID_A)),
        state(version=6, name=None, topic_id=uuid.UUID(int=0)),
    ]
    read = decode_request(*request(DeleteTopicsRequest(version=6, topics=rows, timeout_ms=1)))
    assert costs(read) == [0, 0]


@each(
    ("row", "mutations"),
    [
        (("b", 31, None), 30), (("b", 3, 2), 2),
        (("b", 3, 1), 0), (("b", 3, 0), 0),
        (("b", 1, None), 0), (("a", 3, None), 0),
        (("none", 3, None), 0), (("hidden", 3, None), 1),
    ],
)
def test_growth_costs_the_difference(row: Any, mutations: int) -> None:
    """Growing 1 -> 31 costs 30."""
    assert costs(decode_request(*request(grow(3, row)))) == [mutations]


def test_duplicates_cost_nothing() -> None:
    """A topic named twice is refused as a whole; by name and by id is twice too."""
    twice = decode_request(*request(create(7, ("x", 1, 1, 0), ("y", 1, 1, 0), ("x", 2, 1, 0))))
    assert costs(twice) == [0, 1, 0]
    both = decode_request(*request(delete(6, "a", ID_A, ID_B)))
    assert costs(both) == [0, 0, 1]


def test_a_name_that_looks_like_an_id_takes_nobodys_place() -> None:
    """A topic may be called as another one's id is written: both are charged, each its own."""
    alike = str(uuid.UUID(bytes=ID_A))
    nameless = TopicCounts(by_name={alike: 1}, by_id={ID_A: 30}, names={}, broker_count=3)
    for topics in ((alike, ID_A), (ID_A, alike)):
        named = costs_of(decode_request(*request(delete(6, *topics))), nameless, DEFAULT_PARTITIONS)
        assert sorted(mutations for _, mutations in named.values()) == [1, 30]


class Recent:
    """What was changed through us, with a clock that a test sets."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.topics = RecentTopics(lambda: self.now_ms)

    def over(self, **by_name: int | None) -> TopicCounts:
        """What the broker's metadata says, corrected."""
        return self.topics.over(TopicCounts(by_name=by_name, by_id={b"i" * 16: 7}, names={}, broker_count=1))


def test_recent_changes_win_for_a_while() -> None:
    """Created, grown and deleted topics are known before the metadata; then the metadata counts again."""
    recent = Recent()
    recent.topics.note("new", None, 3)
    recent.topics.note("gone", b"i" * 16, None)
    recent.now_ms = RECENT_TOPIC_MS - 1
    seen = recent.over(new=None, gone=5, other=2)
    assert seen.by_name == {"new": 3, "gone": None, "other": 2}
    assert seen.by_id == {b"i" * 16: None}
    recent.now_ms = RECENT_TOPIC_MS
    seen = recent.over(new=None, gone=5)
    assert (seen.by_name, seen.by_id) == ({"new": None, "gone": 5}, {b"i" * 16: 7})


def test_recent_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes first."""
    monkeypatch.setattr("enforcer.kafka.mutations.mutation.RECENT_TOPICS_MAX", 2)
    recent = Recent()
    for name in ("a", "b", "c"):
        recent.topics.note(name, None, 1)
    assert recent.over(a=None, b=None, c=None).by_name == {"a": None, "b": 1, "c": 1}
