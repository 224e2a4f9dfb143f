"""Weir's topics in Metadata answers: found by search, told from whatever only looks like them."""

from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.protocol.metadata.metadata import MetadataResponse
from kafka_kit import build, decode, response

from enforcer.kafka.guard.answers import without_ours
from enforcer.kafka.guard.protected import IDS_MAX, OwnTopics
from streaming.contract.topics import Topics

NAME = st.builds(
    lambda before, middle, after: (before + middle + after)[:249],
    st.text("aw.eir-_Z9", max_size=130), st.sampled_from(["", "weir.", "weir.policies"]),
    st.text("aw.eir-_Z9", min_size=1, max_size=130),
)  # fmt: skip


def answer(version: int, names: list[str]) -> bytes:
    """A Metadata answer of a cluster with brokers and a rack that sound like Weir."""
    partition = {"replica_nodes": [1, 2], "isr_nodes": [1], "offline_replicas": []}
    topics = [
        {"name": name, "topic_id": UUID(int=number + 1), "partitions": [partition] * (number % 3)}
        for number, name in enumerate(names)
    ]
    brokers = [{"node_id": 1, "host": "weir.eu", "port": 1, "rack": "weir.rack"}]
    return response(
        build(MetadataResponse, version, brokers=brokers, cluster_id="weir.cluster", topics=topics)
    )


@pytest.mark.parametrize("prefix", ["weir.", "w", "we", ""])
@given(st.sampled_from(range(14)), st.lists(NAME, max_size=8, unique=True))
@example(9, ["xweir.y", "weir.y", "acme.weir.y", "weir." + "y" * 200])
@example(0, ["xweir.y", "weir.y", "acme.weir.y", "weir." + "y" * 200])
@example(12, ["a" * 126 + "weir.", "weir.policies", "weir.policies-not"])
def test_only_weirs_topics_are_left_out(prefix: str, version: int, names: list[str]) -> None:
    """Whatever else is in the answer stays as it was."""
    protected = OwnTopics(Topics(prefix), active=True)
    kept = [name for name in names if not protected.has(name.encode())]
    whole = decode(MetadataResponse, version, answer(version, names))
    shown = decode(MetadataResponse, version, without_ours(answer(version, names), version, protected))
    assert [topic.name for topic in shown.topics] == kept
    whole.topics = [topic for topic in whole.topics if topic.name in kept]
    assert shown == whole


def test_ids_are_learnt_and_bounded() -> None:
    """What was left out is known by its id from then on, up to a number."""
    protected = OwnTopics(Topics(), active=True)
    without_ours(answer(12, ["mine", "weir.usage"]), 12, protected)
    assert protected.ids == {UUID(int=2).bytes}
    without_ours(answer(12, [f"weir.{number}" for number in range(2 * IDS_MAX)]), 12, protected)
    assert len(protected.ids) == IDS_MAX
