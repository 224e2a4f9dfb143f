"""Producers and consumers that a broker sends elsewhere."""

import pytest
from pulsar_rig import PulsarRig

from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import CONNECTION, command, parse


@pytest.mark.parametrize("kind", [frames.CLOSE_PRODUCER, frames.CLOSE_CONSUMER])
def test_the_next_broker_is_not_named(kind: int) -> None:
    """Clients look the topic up again; a close that names nobody is not touched."""
    rig = PulsarRig().open()
    plain = command(kind, request_id=CONNECTION)
    rig.down(plain)
    assert rig.client.data == plain
    rig.client.data = b""
    rig.down(command(kind, request_id=CONNECTION, assignedBrokerServiceUrl="pulsar://b:1"))
    body = parse(rig.client.data)
    assert not body.assignedBrokerServiceUrl and body.request_id == CONNECTION
    assert not rig.targets.allows(("b", 1)) and rig.metric("pulsar_moved_total", how="unnamed") == 1


def test_a_topic_that_was_migrated() -> None:
    """Its clients go to the proxy of the other cluster, or nowhere past this one."""
    frame = command(frames.TOPIC_MIGRATED, resource_id=1, brokerServiceUrl="pulsar://other:6650")
    rig = PulsarRig().open()
    rig.down(frame)
    assert rig.client.data == b"" and rig.client.closed
    assert rig.metric("proxy_closed_connections_total", reason="topic_migrated") == 1
    rig = PulsarRig(own={"migrated_url": "pulsar://weir-2:16650"}).open()
    rig.down(frame)
    body = parse(rig.client.data)
    assert body.brokerServiceUrl == body.brokerServiceUrlTls == "pulsar://weir-2:16650"
    assert body.resource_id == 1 and not rig.client.closed
