"""Damaged messages: real ones with bytes changed, cut out or put in reach deeper than garbage does."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from admin_kit import CASES, naming
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin.cluster import DescribeClusterResponse
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata.api_versions import ApiVersionsResponse
from kafka.protocol.metadata.find_coordinator import FindCoordinatorResponse
from kafka.protocol.metadata.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceResponse
from kafka_kit import build, request, response
from property_kit import tries

from enforcer.kafka.guard.answers import limit_api_versions
from enforcer.kafka.guard.protected import unsupported
from enforcer.kafka.mutations.mutation import costs_of
from enforcer.wire.kafka import messages, mutations
from enforcer.wire.kafka.addresses import Rewriter
from enforcer.wire.kafka.codec import patch_throttle
from enforcer.wire.kafka.frames import BadFrame, parse_header
from enforcer.wire.kafka.messages import NOTHING_KNOWN

Reader = Callable[[bytes], Any]


def read_request(frame: bytes) -> None:
    """What the proxy does with a mutation request; what parses is copied whole."""
    header = parse_header(frame)
    if header.api_key not in mutations.MUTATION_KEYS or unsupported(header):
        return
    read = mutations.decode_request(frame, header)
    costs_of(read, NOTHING_KNOWN, 1)
    everything = range(len(read.items))
    assert mutations.without(read, ()) == frame
    assert mutations.decode_request(mutations.without(read, everything), header).items == ()
    refused = mutations.decode_answer(read.api, read.version, mutations.refuse_all(read, 1, "no"))
    assert len(refused) == len(read.items)


def read_metadata_request(frame: bytes) -> None:
    """Clearing the flag twice changes nothing the second time."""
    header = parse_header(frame)
    if header.api_key == 3 and 0 <= header.api_version <= 13:
        quiet, _ = messages.forbid_auto_creation(frame, header)
        assert messages.forbid_auto_creation(quiet, parse_header(quiet)) == (quiet, False)


def unmoved(node_id: int, host: str, port: int) -> tuple[str, int]:
    """An address map that changes nothing."""
    return host, port


def read_response(api_key: int, version: int) -> Reader:
    """What the proxy does with a response; an address written by us reads back as the same."""

    def read(frame: bytes) -> None:
        once = Rewriter(unmoved, lambda: 0)(api_key, version, frame)
        assert Rewriter(unmoved, lambda: 0)(api_key, version, once) == once
        if api_key != 18:
            patch_throttle(api_key, version, frame, 1)
        else:
            limited = limit_api_versions(frame, version)
            assert limit_api_versions(limited, version) == limited

    return read


def samples() -> list[tuple[bytes, Reader]]:
    """Real messages and what reads them."""
    node = {"node_id": 1, "host": "h", "port": 9092, "rack": "r"}
    topics = [{"name": "t", "partitions": [{"replica_nodes": [1]}]}]
    cluster, old = (response(build(MetadataResponse, v, brokers=[node], topics=topics)) for v in (12, 4))
    described = build(DescribeClusterResponse, 1, brokers=[{"broker_id": 1, "host": "h", "port": 1}])
    coordinator = {"key": "k", "node_id": 1, "host": "b", "port": 1}
    records = [{"partitions": [{"records": b"records"}]}]
    fetched = build(FetchResponse, 16, responses=records, node_endpoints=[node | {"rack": None}])
    done = [{"name": "t", "partition_responses": [{"index": 1}]}]
    produced = build(ProduceResponse, 11, responses=done, node_endpoints=[node])
    key = {"api_key": 19, "min_version": 0, "max_version": 9}
    return [
        *((request(naming(*case, "a", "b"))[0], read_request) for case in CASES),
        *((request(build(MetadataRequest, v, topics=[{"name": "a"}]))[0], read_metadata_request)
          for v in (0, 3, 8, 12)),
        (cluster, read_response(3, 12)),
        (cluster, lambda frame: messages.decode_topics(frame, ids=True)),
        (old, lambda frame: messages.decode_topics(frame, ids=False)),
        *((old, partial(messages.metadata_answer_as, version=v)) for v in range(4)),
        (response(described), read_response(60, 1)),
        (response(build(FindCoordinatorResponse, 6, coordinators=[coordinator])), read_response(10, 6)),
        (response(fetched), read_response(1, 16)),
        (response(produced), read_response(0, 11)),
        (response(build(ApiVersionsResponse, 3, api_keys=[key, key])), read_response(18, 3)),
    ]  # fmt: skip


CUT = st.sampled_from([0, 0, 1, 2, 400])
DAMAGE = st.lists(st.tuples(st.integers(0, 400), CUT, st.binary(max_size=4)), max_size=3)


@tries(600)
@given(st.sampled_from(samples()), DAMAGE)
def test_damaged_messages(sample: tuple[bytes, Reader], damage: list[tuple[int, int, bytes]]) -> None:
    """Garbage parses or raises BadFrame."""
    frame, read = sample
    for place, cut, put in damage:
        at = place % (len(frame) + 1)
        frame = frame[:at] + put + frame[at + cut :]
    with suppress(BadFrame):
        read(frame)
