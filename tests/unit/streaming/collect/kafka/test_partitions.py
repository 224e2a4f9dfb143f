"""Which topics a cluster's partitions are."""

from types import SimpleNamespace
from typing import Any

import pytest

from streaming.collect.kafka import cluster
from streaming.collect.kafka.connection import chunks
from streaming.collect.kafka.groups import CommittedOffsets
from streaming.collect.kafka.partitions import REPORTS_MAX, Extent, Partition, Partitions, Place, places
from streaming.contract.namespaces import Namespaces

NAMESPACES = Namespaces("tenant.namespace.topic")


def topic(name: str | None, partitions: int = 1, *, internal: bool = False) -> Any:
    """As in an answer to a Metadata request."""
    return SimpleNamespace(
        name=name,
        topic_id=f"id of {name}",
        is_internal=internal,
        partitions=[SimpleNamespace(partition_index=number, leader_id=1) for number in range(partitions)],
    )


def place(name: str, topic_id: str = "1") -> Place:
    """Of a topic of one partition."""
    return Place(
        partition=Partition(name, 0), full=f"persistent://public/default/{name}", topic_id=topic_id, leader=1
    )


def extent(end: int, ts: int = 1) -> Extent:
    """Of a log that begins at 0."""
    return Extent(start=0, end=end, size=10 * end, ts=ts)


def test_partitions_are_topics() -> None:
    """One alone has the topic's name; Kafka's own, Weir's and those without a name are left out."""
    found, wrong = places(
        [
            topic("acme.orders.two", 2),
            topic("acme.orders.one"),
            topic("weir.usage"),
            topic("__consumer_offsets", internal=True),
            topic("deleted", 0),
            topic(None),
        ],
        NAMESPACES,
        "weir.",
    )
    assert [one.full for one in found] == [
        "persistent://acme/orders/one",
        "persistent://acme/orders/two-partition-0",
        "persistent://acme/orders/two-partition-1",
    ]
    assert wrong == []


def test_two_names_of_one_topic() -> None:
    """The first by name stands for it; the other is said, its name printable."""
    found, wrong = places([topic("public.default.cl"), topic("cl")], NAMESPACES, "weir.")
    assert [one.partition.topic for one in found] == ["cl"]
    assert wrong == ["public.default.cl means persistent://public/default/cl, as cl does"]


def test_a_topic_of_another_id_is_another() -> None:
    """And one that has gone is forgotten; one whose extent was not read stays."""
    known = Partitions()
    first = [place("a"), place("b"), place("c")]
    known.take(first, {one.partition: extent(5) for one in first}, {})
    now = [place("a", "2"), place("b")]
    known.keep(now)
    assert [one.partition.topic for one in known.unseen(now)] == ["a"]
    known.take(now, {now[0].partition: extent(3, 9)}, {})
    a, b, c = (known.topic(f"persistent://public/default/{name}") for name in "abc")
    assert a is not None and [one.entries for one in a.stretches.ledgers()] == [3, 0]
    assert b is not None and b.stretches.end == 5
    assert c is None and [one.partition.topic for one in known.unseen(first)] == ["c"]


def test_only_the_last_reports_can_be_acted_on() -> None:
    """So that what is remembered of a topic is bounded."""
    known = Partitions()
    known.take([place("a")], {Partition("a", 0): extent(5)}, {})
    own = known.topic("persistent://public/default/a")
    assert own is not None
    own.reports.extend(range(100))
    assert len(own.reports) == REPORTS_MAX and 99 in own.reports and 0 not in own.reports


def test_stretches_stay_within_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The open one counts."""
    monkeypatch.setattr(cluster, "STRETCHES_MAX", 7)
    known, committed = Partitions(), CommittedOffsets()
    looking: Any = SimpleNamespace(_partitions=known)
    for end in range(1, 50):
        extents = {Partition("a", 0): extent(end, end)}
        known.take([place("a")], extents, {})
        (draft,) = cluster.KafkaCluster._drafts(looking, [place("a")], extents, committed)
        assert len(draft.known.stretches.ledgers()) <= 8


def test_nothing_makes_no_request() -> None:
    """Else a broker would take it for all topics."""
    assert chunks([], 5) == []
