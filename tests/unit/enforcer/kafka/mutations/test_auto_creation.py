"""Topics that are not created by asking for them: counted, said once, and not in the way of anything else."""

import pytest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka_kit import build, decode, request, response
from mutation_kit import Desk

from enforcer.kafka.mutations.mutation import RecentTopics
from enforcer.kafka.mutations.part import Mutations
from enforcer.kafka.part import Request


def absent(version: int) -> bytes:
    """An answer that knows no topic "absent"."""
    topics = [{"name": "absent", "error_code": 3}]
    return response(build(MetadataResponse, version, brokers=[], cluster_id="c", topics=topics))


@pytest.mark.parametrize("version", range(14))
def test_counted_and_logged_once(version: int, caplog: pytest.LogCaptureFixture) -> None:
    """Each topic counts; the log has a line an hour for each subject, with what to set."""
    desk = Desk()
    desk.limit("quotas[user=bob]", controller_mutation_rate=1)
    creations = Mutations(desk.coordinator, RecentTopics(desk.coordinator.clock.steady_ms))
    names = [{"name": "absent"}]
    frame, header = request(build(MetadataRequest, version, topics=names, allow_auto_topic_creation=True))
    for _ in range(2):
        asked = Request(frame, header, "bob")
        creations.keep_from_creating(asked)
        assert asked.finish is not None
        seen = decode(MetadataResponse, version, asked.finish(absent(max(version, 4))))
        assert [topic.error_code for topic in seen.topics] == [3]
    assert desk.metrics.forbidden_creations._value.get() == 2
    assert [record.message for record in caplog.records] == [
        "topic absent is not there and is not created by asking for it, since user=bob has a mutation quota: "
        "create it, or set proxy.auto_topic_creation: pass"
    ]
