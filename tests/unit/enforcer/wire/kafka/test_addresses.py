"""Every broker address in a response is replaced, and nothing else."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from each_kit import each
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin.cluster import DescribeClusterResponse
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata.find_coordinator import FindCoordinatorResponse
from kafka.protocol.metadata.metadata import MetadataResponse
from kafka.protocol.producer import ProduceResponse
from kafka_kit import build, decode, response, with_tag

from enforcer.wire.kafka import frames
from enforcer.wire.kafka.addresses import AddressMap, Rewriter, may_hold_endpoints
from enforcer.wire.kafka.codec import response_layout

PROXY = "weir.example"
FIRST_PORT = 19100


class Ports:
    """One port per node id, and what was asked for."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str, int]] = []

    def __call__(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        self.seen.append((node_id, host, port))
        return PROXY, FIRST_PORT + node_id


def never(node_id: int, host: str, port: int) -> tuple[str, int]:
    """For responses without an address."""
    raise AssertionError("no address was expected")


def rewrite_addresses(api_key: int, version: int, response: bytes, address_of: AddressMap) -> bytes:
    """As a proxy does that has seen nothing before."""
    return Rewriter(address_of, lambda: 0)(api_key, version, response)


def replaced(api_key: int, version: int, message: Any, nodes: list[Any]) -> list[tuple[int, str, int]]:
    """The addresses of these nodes are replaced in a response, and nothing else; whom the proxy asked for."""
    ports = Ports()
    frame = rewrite_addresses(api_key, version, response(message), ports if nodes else never)
    for number, node in nodes:
        node.host, node.port = PROXY, FIRST_PORT + number
    assert frame == response(message)
    return ports.seen


@each("version", range(14))
def test_metadata(version: int) -> None:
    """The broker list is rewritten; racks, controller and topics are copied as they are."""
    brokers = [
        {"node_id": node, "host": f"b{node}", "port": 9092 + node, "rack": rack}
        for node, rack in ((1, None), (2, "eu-west-1a"))
    ]
    rows = [{"partition_index": number, "replica_nodes": [1, 2]} for number in (0, 1)]
    topics = [{"name": "t", "partitions": rows}]
    message = build(
        MetadataResponse, version, brokers=brokers, topics=topics, cluster_id="c", controller_id=2
    )
    asked = replaced(frames.METADATA, version, message, [(node.node_id, node) for node in message.brokers])
    assert asked == [(1, "b1", 9093), (2, "b2", 9094)]


def test_metadata_keeps_unknown_tags_of_brokers() -> None:
    """A tagged field that a later broker adds to its entry survives byte for byte."""
    broker = {"node_id": 1, "host": "b1", "port": 9092, "rack": None}
    plain = response(build(MetadataResponse, 13, brokers=[broker], topics=[]))
    end_of_broker = plain.index(b"b1") + len("b1") + 4 + 1
    frame = rewrite_addresses(frames.METADATA, 13, with_tag(plain, end_of_broker), Ports())
    end_of_broker += len(PROXY) - len("b1")
    assert frame == with_tag(rewrite_addresses(frames.METADATA, 13, plain, Ports()), end_of_broker)


@each("version", range(7))
def test_find_coordinator(version: int) -> None:
    """Node -1 and an empty host mean that there is none, and stay."""
    rows = [
        {"key": f"k{node}", "node_id": node, "host": host, "port": port}
        for node, host, port in ((1, "b1", 9092), (-1, "", -1), (2, "", 0))
    ]
    cls = FindCoordinatorResponse
    if version < 4:
        found = [build(cls, version, node_id=r["node_id"], host=r["host"], port=r["port"]) for r in rows]
    else:
        found = [build(cls, version, coordinators=rows)]
    asked = []
    for message in found:
        rows = message.coordinators if version >= 4 else [message]
        known = [(row.node_id, row) for row in rows if row.node_id == 1]
        asked += replaced(frames.FIND_COORDINATOR, version, message, known)
    assert asked == [(1, "b1", 9092)]


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(version: int) -> None:
    """Brokers are rewritten in all versions, fenced ones too."""
    brokers = [{"broker_id": node, "host": "b", "port": node, "is_fenced": node == 2} for node in (1, 2)]
    fields = {"cluster_id": "c", "controller_id": 1, "error_message": "none"}
    message = build(DescribeClusterResponse, version, brokers=brokers, **fields)
    nodes = [(node.broker_id, node) for node in message.brokers]
    assert replaced(frames.DESCRIBE_CLUSTER, version, message, nodes) == [(1, "b", 1), (2, "b", 2)]


ENDPOINT = st.tuples(
    st.integers(0, 9),
    st.sampled_from(["h", "broker-1.example"]),
    st.sampled_from([256, 9092, 9216, 32768, 65280, 65535]),
    st.sampled_from([None, "", "r", "ra", "rac", "rack", "rack5", "rack-6"]),
)
ENDPOINTS = st.lists(ENDPOINT, max_size=3)
RECORDS = st.one_of(st.just(b""), st.binary(max_size=30), st.just(bytes(40)), st.just(b"broker-1.example"))


def endpoints_of(rows: list[tuple[int, str, int, str | None]]) -> dict[str, Any]:
    """The tagged field, absent when empty."""
    nodes = [{"node_id": node, "host": host, "port": port, "rack": rack} for node, host, port, rack in rows]
    return {"node_endpoints": nodes} if nodes else {}


def check_endpoints(api_key: int, version: int, message: Any, count: int) -> None:
    """The rewritten response equals the same message built with the proxy's addresses."""
    assert may_hold_endpoints(api_key, response(message)) or not count
    nodes = message.node_endpoints if count else []
    replaced(api_key, version, message, [(node.node_id, node) for node in nodes])


@given(st.integers(16, 18), st.lists(st.lists(RECORDS, max_size=2), max_size=2), ENDPOINTS)
def test_fetch_endpoints(version: int, topics: list[list[bytes]], endpoints: list[Any]) -> None:
    """New leaders are found behind any records, in any form of their entry; records are never touched."""
    aborted = [{"producer_id": 1, "first_offset": 2}]
    rows = [
        {
            "partitions": [
                {"partition_index": number, "records": records, "aborted_transactions": aborted}
                for number, records in enumerate(partitions)
            ]
        }
        for partitions in topics
    ]
    message = build(FetchResponse, version, responses=rows, **endpoints_of(endpoints))
    check_endpoints(frames.FETCH, version, message, len(endpoints))


@given(st.integers(10, 13), st.lists(st.integers(0, 2), max_size=2), ENDPOINTS, st.integers(0, 1 << 23))
def test_produce_endpoints(version: int, topics: list[int], endpoints: list[Any], throttle_ms: int) -> None:
    """New leaders are found behind partitions with and without errors."""
    bad = {"batch_index": 1, "batch_index_error_message": "bad"}
    rows = [
        {
            "name": "t",
            "partition_responses": [
                {"index": number, "record_errors": [bad] * number, "error_message": "e" * number}
                for number in range(partitions)
            ],
        }
        for partitions in topics
    ]
    fields = {"throttle_time_ms": throttle_ms} | endpoints_of(endpoints)
    message = build(ProduceResponse, version, responses=rows, **fields)
    check_endpoints(frames.PRODUCE, version, message, len(endpoints))


@given(
    st.sampled_from([frames.SHARE_FETCH, frames.SHARE_ACKNOWLEDGE]), st.integers(1, 2),
    st.lists(st.lists(RECORDS, max_size=2), max_size=2), ENDPOINTS, st.binary(max_size=3),
)  # fmt: skip
def test_share_endpoints(
    api_key: int, version: int, topics: list[list[bytes]], endpoints: list[Any], error: bytes
) -> None:
    """New leaders for members of share groups, a plain list behind all else."""

    def answered(place: Callable[[int, str, int], tuple[str, int]]) -> bytes:
        nodes = []
        for node, host, port, rack in endpoints:
            new_host, new_port = place(node, host, port)
            said = None if rack is None else rack.encode()
            nodes.append({"NodeId": node, "Host": new_host.encode(), "Port": new_port, "Rack": said})
        rows = [
            {"TopicId": bytes(16), "Partitions": [
                {"Records": records, "AcquiredRecords": [{"FirstOffset": 1, "LastOffset": 2}]}
                for records in partitions
            ]}
            for partitions in topics
        ]  # fmt: skip
        values = {"ErrorMessage": error or None, "Responses": rows, "NodeEndpoints": nodes}
        return bytes(4) + frames.NO_TAGS + response_layout(api_key, version).write(values)

    plain = answered(lambda _node, host, port: (host, port))
    assert may_hold_endpoints(api_key, plain) == bool(endpoints)
    rewritten = rewrite_addresses(api_key, version, plain, Ports() if endpoints else never)
    assert rewritten == answered(lambda node, _host, _port: (PROXY, FIRST_PORT + node))


def led_fetch(host: str, port: int) -> bytes:
    """A Fetch v16 response with a new leader."""
    node = {"node_id": 1, "host": host, "port": port, "rack": None}
    return response(build(FetchResponse, 16, responses=[], node_endpoints=[node]))


def tagged_fetch(host: str, port: int) -> bytes:
    """The same; its new leader carries an unknown tag, and stands beside another unknown tag."""
    plain = led_fetch(host, port)
    start = plain.index(b"\1\0", 4 + 1 + 4 + 2 + 4)  # one tag, number 0; then its size
    content = with_tag(plain[start + 3 :], len(plain) - start - 4)
    return plain[:start] + b"\2\0" + bytes([len(content)]) + content + b"\x07\2xy"


def test_unknown_tags_beside_endpoints_survive() -> None:
    """Tags that a later broker adds, to the body or to an endpoint, are copied byte for byte."""
    rewritten = rewrite_addresses(frames.FETCH, 16, tagged_fetch("h", 9092), Ports())
    assert rewritten == tagged_fetch(PROXY, FIRST_PORT + 1)


def test_endpoints_with_bytes_left_over_are_refused() -> None:
    """A tag whose size and content disagree is not passed on half rewritten."""
    plain = bytearray(led_fetch("h", 9092) + b"!")
    plain[plain.index(b"\1\0", 15) + 2] += 1
    with pytest.raises(frames.BadFrame) as caught:
        rewrite_addresses(frames.FETCH, 16, bytes(plain), Ports())
    assert caught.value.reason is frames.Reason.BAD_VALUE


def test_other_responses_are_the_same_object() -> None:
    """APIs and versions without addresses are not even copied."""
    frame = bytes(50)
    assert rewrite_addresses(19, 7, frame, never) is frame
    assert rewrite_addresses(frames.FETCH, 15, frame, never) is frame
    assert rewrite_addresses(frames.PRODUCE, 9, frame, never) is frame


def test_ordinary_fetch_is_not_walked() -> None:
    """A response that ends in records and no tags is recognised by its end alone."""
    topic = {"partitions": [{"partition_index": 0, "records": b"record"}]}
    frame = response(build(FetchResponse, 16, responses=[topic]))
    assert not may_hold_endpoints(frames.FETCH, frame)
    assert decode(FetchResponse, 16, rewrite_addresses(frames.FETCH, 16, frame, never)) is not None


def test_a_broker_list_that_was_seen_is_replaced_alike() -> None:
    """The remembered list gives the same bytes as reading it, in every version, and asks for no address."""
    asked: list[int] = []
    changes = 0

    def address_of(node_id: int, _host: str, _port: int) -> tuple[str, int]:
        asked.append(node_id)
        return "proxy.example", 20_000 + changes

    rewriter = Rewriter(address_of, lambda: changes)
    frame = b""
    for version in (*range(14), *range(14)):
        row = {"node_id": 1, "host": "b", "port": 9}
        for throttle_ms in (0, 5):
            message = build(MetadataResponse, version, brokers=[row], throttle_time_ms=throttle_ms)
            frame = response(message)
            wanted = rewrite_addresses(frames.METADATA, version, frame, address_of)
            assert rewriter(frames.METADATA, version, frame) == wanted
    before = len(asked)
    assert rewriter(frames.METADATA, 12, frame) and len(asked) == before
    changes = 1
    assert struct.pack(">i", 20_001) in rewriter(frames.METADATA, 13, frame) and len(asked) == before + 1
