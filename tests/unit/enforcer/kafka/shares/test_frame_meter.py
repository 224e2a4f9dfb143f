"""What all connections share of metering: which requests are read, and names of topic ids."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata.metadata import MetadataResponse
from kafka_kit import build, response
from meter_kit import ALICE, GROUPS, Desk
from traffic_kit import batch, produce, topic_id

from enforcer.core import bounds
from enforcer.core.account import PUBLISH
from enforcer.wire.kafka.frames import FETCH, METADATA, PRODUCE, BadFrame


def test_clients_without_a_byte_rate_are_not_read() -> None:
    """Where only some users have one, the requests of others pass as they come."""
    desk = Desk(ALICE)
    assert desk.frames.reads(PRODUCE, "alice", "c") and desk.frames.reads(FETCH, "alice", "c")
    assert not desk.frames.reads(METADATA, "alice", "c")
    assert not any(desk.frames.reads(key, "bob", "c") for key in (PRODUCE, FETCH, METADATA))
    grouped = Desk(GROUPS)
    assert all(grouped.frames.reads(key, "bob", "c") for key in (PRODUCE, FETCH, METADATA))


def test_the_tables_of_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and accounts: what was used longest ago leaves, and is looked up again."""
    monkeypatch.setattr(bounds, "TOPICS_MAX", 4)
    desk = Desk(GROUPS)
    for number in range(10):
        frame, header = produce(9, {f"acme.orders.t{number}": [batch(1)]})
        desk.frames.produced(frame, header, "bob", []).charge(PUBLISH, 0.0)
        desk.frames.names.update({bytes([number]) * 16: f"acme.orders.t{number}"})
    assert list(desk.frames.names.values()) == [f"acme.orders.t{number}" for number in range(6, 10)]
    assert len(desk.frames._by_name._accounts) == 4
    assert desk.meter.accounts["rg1"].used[0] == 10
    assert desk.frames.unknown_ids([bytes([number]) * 16 for number in (5, 6)]) == [bytes([5]) * 16]


FRAMES = Desk({}).frames


def described(frame: bytes, version: int) -> dict[bytes, str]:
    """What a meter learns from an answer."""
    FRAMES.names.clear()
    FRAMES.learn(frame, version)
    return dict(FRAMES.names)


def test_topic_ids_are_read_from_metadata() -> None:
    """Versions 10 to 13 tell names with ids."""
    broker, row = {"node_id": 1, "host": "b", "port": 9}, {"replica_nodes": [1, 2]}
    topics = [
        {"name": name, "topic_id": topic_id(name), "partitions": [row] * count}
        for name, count in (("one", 3), ("two", 0), ("n" * 200, 200))
    ]
    for version in range(10, 14):
        answer = build(MetadataResponse, version, brokers=[broker] * 2, cluster_id="c", topics=topics)
        frame = response(answer)
        assert described(frame, version) == {topic_id(n).bytes: n for n in ("one", "two", "n" * 200)}


@given(st.binary(max_size=200), st.integers(10, 13))
def test_damage_is_a_bad_frame(data: bytes, version: int) -> None:
    """Or some names; nothing else is raised."""
    with suppress(BadFrame):
        described(data, version)
