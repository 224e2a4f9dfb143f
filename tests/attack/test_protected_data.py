"""Weir's own topics through the proxy: neither seen, nor written, nor read, by name or by id."""

import struct
import time
import uuid
from collections.abc import Callable

import pytest
from cluster_kit import Cluster, fresh
from endings_kit import stored
from kafka.protocol.metadata import metadata
from kafka.protocol.producer import produce
from kafka_kit import build
from protected_kit import REFUSED, Wire, produce_request
from traffic_kit import fetch_of
from wire_client import WireClient


@pytest.mark.parametrize("version", [0, 1, 4, 8, 9, 12, 13])
def test_metadata(cluster: Cluster, wire: Wire, mine: str, version: int) -> None:
    """Left out of all topics; asked for by name it is error 29, and what else was asked for is there."""
    client, ours = wire("attack"), cluster.topics.all()
    everything = build(metadata.MetadataRequest, version, topics=[] if version == 0 else None)
    names = {topic.name for topic in client.answer_to(everything).topics}
    assert mine in names and not names & set(ours)
    found = client.metadata([ours[2], mine, ours[0]], version, create=True).topics
    assert {topic.name: topic.error_code for topic in found} == {mine: 0, ours[2]: REFUSED, ours[0]: REFUSED}
    alone = client.metadata([ours[1]], version)
    assert [(topic.name, topic.error_code) for topic in alone.topics] == [(ours[1], REFUSED)]
    assert alone.brokers


def test_metadata_of_what_is_not_there(wire: Wire, cluster: Cluster) -> None:
    """Any name under the prefix is refused, so that none is made by auto-creation."""
    name = "weir." + fresh("new")
    answer = wire("attack").metadata([name], 4, create=True)
    assert answer.topics[0].error_code == REFUSED
    with WireClient(cluster.kafka.bootstrap) as straight:
        assert straight.metadata([name], 4).topics[0].error_code == 3


def test_metadata_by_id(wire: Wire, policies_id: uuid.UUID) -> None:
    """An id gets no name."""
    message = build(metadata.MetadataRequest, 12, topics=[{"topic_id": policies_id, "name": None}])
    answer = wire("attack").answer_to(message)
    assert [(topic.error_code, topic.topic_id) for topic in answer.topics] == [(REFUSED, policies_id)]
    assert not answer.topics[0].name


@pytest.mark.parametrize("version", [3, 7, 9, 12])
def test_produce(cluster: Cluster, wire: Wire, mine: str, version: int) -> None:
    """Alone or among others it is refused; the others are written."""
    client, target = wire("attack"), cluster.topics.policies
    before, mine_before = stored(cluster, target), stored(cluster, mine)
    for names in ([target], [mine, target], [target, mine]):
        answer = client.answer_to(produce_request(version, names))
        found = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
        assert found == {name: REFUSED if name == target else 0 for name in names}
    client.send(produce_request(version, [target, mine], acks=0))
    client.send(produce_request(version, [target], acks=0))
    assert client.answer_to(produce_request(version, [mine])).responses
    assert stored(cluster, target) == before
    assert stored(cluster, mine) == mine_before + 4


def test_produce_by_id(cluster: Cluster, wire: Wire, policies_id: uuid.UUID) -> None:
    """From version 13 on topics have ids only."""
    before = stored(cluster, cluster.topics.policies)
    answer = wire("attack").answer_to(produce_request(13, [policies_id]))
    assert answer.responses[0].partition_responses[0].error_code == REFUSED
    assert stored(cluster, cluster.topics.policies) == before


def test_a_large_produce_in_pieces(cluster: Cluster, wire: Wire, mine: str) -> None:
    """A request that is cut within the name, or has the name behind a megabyte, is refused all the same."""
    target = cluster.topics.decisions
    before = stored(cluster, target)
    for names, cuts in (([target], (20, 30, 45)), ([mine, target], (16, 40, 500_000))):
        client, message = wire("attack"), produce_request(8, names, size=800_000)
        message.with_header(5, "attack")
        frame = bytes(message.encode(header=True))
        data, start = struct.pack(">i", len(frame)) + frame, 0
        for cut in cuts:
            client.socket.sendall(data[start:cut])
            start = cut
            time.sleep(0.02)
        client.socket.sendall(data[start:])
        answer = client.receive(produce.ProduceResponse, 8)
        found = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
        assert found[target] == REFUSED and found.get(mine, 0) == 0
    assert stored(cluster, target) == before


def overlong(number: int, size: int) -> bytes:
    """A varint of so many bytes, longer than need be."""
    return bytes([number | 0x80, *[0x80] * (size - 2), 0])


PLACES: dict[str, Callable[[bytes, int], tuple[bytes, bytes]]] = {
    "name": lambda name, size: (bytes([len(name) + 1]) + name, overlong(len(name) + 1, size) + name),
    "topics": lambda name, size: (
        b"\2" + bytes([len(name) + 1]) + name,
        overlong(2, size) + bytes([len(name) + 1]) + name,
    ),
    "header": lambda name, size: (b"attack\0", b"attack" + overlong(0, size)),
    "tag": lambda name, size: (b"attack\0", b"attack\1\x63" + overlong(3, size) + b"tag"),
}
"""Where a number may be longer than need be: what stands there otherwise, and what the attacker writes."""


def longer(version: int, name: str, place: str, size: int, acks: int) -> bytes:
    """A Produce request with a number that is longer than need be."""
    message = produce_request(version, [name], acks)
    message.with_header(5, "attack")
    frame = bytes(message.encode(header=True))
    usual, written_so = PLACES[place](name.encode(), size)
    assert frame.count(usual) == 1
    return frame.replace(usual, written_so)


@pytest.mark.parametrize("place", PLACES)
def test_numbers_longer_than_need_be(cluster: Cluster, wire: Wire, mine: str, place: str) -> None:
    """A broker takes them, so the proxy reads them as one: of others' topics they pass, of Weir's none."""
    target = cluster.topics.policies
    ours, theirs = stored(cluster, target), stored(cluster, mine)
    frames = [(version, size) for version in (9, 12) for size in (2, 3, 4, 5)]
    for address in (cluster.kafka.bootstrap, ""):
        with wire("attack", address) as client:
            for version, size in frames:
                client.send_frame(longer(version, mine, place, size, 1))
                answer = client.receive(produce.ProduceResponse, version)
                assert answer.responses[0].partition_responses[0].error_code == 0
    for version, size in frames:
        for acks in (1, 0):
            with wire("attack") as client:
                client.send_frame(longer(version, target, place, size, acks))
                if acks:
                    answer = client.receive(produce.ProduceResponse, version)
                    assert answer.responses[0].partition_responses[0].error_code == REFUSED
                # What is behind it is handled, so it has been.
                assert client.answer_to(produce_request(9, [mine])).responses
    assert stored(cluster, target) == ours
    assert stored(cluster, mine) == theirs + 4 * len(frames)


@pytest.mark.parametrize("version", [4, 11, 12])
def test_fetch(cluster: Cluster, wire: Wire, mine: str, version: int) -> None:
    """Within a session or without one, alone or among others."""
    client, target = wire("attack"), cluster.topics.decisions
    for names in ([target], [mine, target]):
        answer = client.answer_to(fetch_of(version, *names))
        found = {topic.topic: topic.partitions[0] for topic in answer.responses}
        assert found[target].error_code == REFUSED and not found[target].records
        assert set(found) == set(names)
        assert all(found[name].error_code == 0 and found[name].records for name in names if name == mine)
    if version < 7:
        return
    began = client.answer_to(fetch_of(version, mine, session_epoch=0))
    for epoch, names in ((1, [target]), (2, [])):
        session = {"session_id": began.session_id, "session_epoch": epoch}
        answer = client.answer_to(fetch_of(version, *names, **session))
        assert answer.error_code == 0
        found = [topic for topic in answer.responses if topic.topic == target]
        assert [topic.partitions[0].error_code for topic in found] == [REFUSED] * len(names)


def test_fetch_by_id(wire: Wire, policies_id: uuid.UUID) -> None:
    """From version 13 on topics have ids only."""
    for version in (13, 17):
        answer = wire("attack").answer_to(fetch_of(version, policies_id))
        assert [part.partitions[0].error_code for part in answer.responses] == [REFUSED]
