"""Topics created by asking for them, past the quota."""

import struct

import pytest
from cluster_kit import Cluster, fresh
from kafka.protocol.metadata import metadata
from proxy_kit import ProxyThread, until
from wire_client import WireClient, errors, metadata_request


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 8, 9, 11, 12, 13])
@pytest.mark.parametrize("more", [b"", b"\1", b"\1\0\0"])
def test_bytes_behind_the_request_create_nothing(
    cluster: Cluster, proxy: ProxyThread, version: int, more: bytes
) -> None:
    """Auto-creation stays off whatever stands where a newer version has its flag; it is counted."""
    client_id, name = fresh("asks"), fresh("asked-for")
    cluster.limit(proxy, client_id, controller_mutation_rate=1)
    before = proxy.metric("forbidden_creations_total")
    with (
        WireClient(proxy.bootstrap, client_id) as wire,
        WireClient(cluster.kafka.bootstrap, "direct") as direct,
    ):
        message = metadata_request([name], version, create=True)
        message.with_header(7, client_id)
        frame = bytes(message.encode(header=True)) + more
        wire.socket.sendall(struct.pack(">i", len(frame)) + frame)
        answer = wire.receive(metadata.MetadataResponse, version)
        assert errors(answer) == {name: 3} and answer.brokers
        assert errors(direct.metadata([name])) == {name: 3}
    until(lambda: proxy.metric("forbidden_creations_total") == before + 1)


@pytest.mark.parametrize("version", [0, 1, 3, 4, 9, 12])
def test_who_has_no_quota_creates_by_asking(cluster: Cluster, proxy: ProxyThread, version: int) -> None:
    """In any version, as without a proxy."""
    name = fresh("free")
    with (
        WireClient(proxy.bootstrap, name) as wire,
        WireClient(cluster.kafka.bootstrap, "direct") as direct,
    ):
        answer = wire.metadata([name], version, create=True)
        assert [topic.name for topic in answer.topics] == [name] and answer.brokers
        until(lambda: errors(direct.metadata([name])) == {name: 0}, what="created without a quota")
