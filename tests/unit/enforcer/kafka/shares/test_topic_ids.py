"""Topic ids, as Metadata responses tell them."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata.metadata import MetadataResponse
from kafka_kit import build, response
from meter_kit import Desk
from traffic_kit import topic_id

from enforcer.wire.kafka.frames import BadFrame

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
