"""Bodies by Kafka's own definitions: what is written is what was read, and no bytes break the reader."""

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.fetch import FetchRequest
from kafka_kit import build, request, with_tag

from enforcer.kafka.guard.apis import APIS, FILTERED, REFUSED
from enforcer.wire.kafka.codec import ELEMENTS_MAX, request_layout, response_layout
from enforcer.wire.kafka.compiler import Rows
from enforcer.wire.kafka.definitions import newest
from enforcer.wire.kafka.frames import BadFrame, Reason

DESCRIBE_QUORUM = 55
JUDGED = sorted(FILTERED | REFUSED | {DESCRIBE_QUORUM})
VERSIONS = [
    (key, version)
    for key in JUDGED
    for version in range((APIS[key].versions or (0, 0))[0], (APIS[key].versions or (0, 0))[1] + 1)
]
NO_BATCHES = {24: 3}
"""Versions that are left to brokers."""


@pytest.mark.parametrize("key", JUDGED)
def test_versions_are_those_that_can_be_read(key: int) -> None:
    """The table of APIs offers the last version that there is a definition of, and no later one."""
    span = APIS[key].versions
    assert span is not None and span[1] == NO_BATCHES.get(key, newest(key))


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_defaults_are_read_as_written(key: int, version: int) -> None:
    """A body of defaults, request and response."""
    for layout in (request_layout(key, version), response_layout(key, version)):
        data = layout.write({})
        assert layout.write(layout.read(data, 0)) == data


def fetch(version: int, topics: int, partitions: int) -> bytes:
    """The body of a Fetch request."""
    part = FetchRequest.FetchTopic.FetchPartition
    parts = [build(part, version, partition=number, fetch_offset=7) for number in range(partitions)]
    named = [
        build(FetchRequest.FetchTopic, version, topic=f"topic-{number}", partitions=parts)
        for number in range(topics)
    ]
    frame, header = request(build(FetchRequest, version, topics=named, rack_id="r"))
    return bytes(frame[header.body_offset :])


@pytest.mark.parametrize("version", [4, 7, 11, 12])
def test_what_another_program_wrote(version: int) -> None:
    """kafka-python's bytes come out as they went in; the fields are where they belong."""
    data, layout = fetch(version, 2, 3), request_layout(1, version)
    body = layout.read(data, 0)
    assert [topic["Topic"] for topic in body["Topics"]] == [b"topic-0", b"topic-1"]
    rows = body["Topics"][0]["Partitions"]
    assert isinstance(rows, Rows) and [row["Partition"] for row in rows] == [0, 1, 2]
    assert layout.write(body) == data


def test_unknown_tags_survive() -> None:
    """In the body and in an element, where rows are then read one by one."""
    data, layout = fetch(12, 1, 1), request_layout(1, 12)
    behind_row = len(data) - 1
    tagged = with_tag(data, behind_row)
    assert layout.write(layout.read(tagged, 0)) == tagged
    row_end = data.rindex(b"topic-0") + 7 + 1 + layout_width()
    tagged = with_tag(data, row_end)
    body = layout.read(tagged, 0)
    assert isinstance(body["Topics"][0]["Partitions"], list)
    assert layout.write(body) == tagged


def layout_width() -> int:
    """Bytes of a partition in a Fetch request 12, without its tags."""
    return 4 + 4 + 8 + 4 + 8 + 4


def test_leftovers_are_dropped_and_nulls_refused() -> None:
    """A byte too many, which brokers ignore; a name that is null."""
    layout = request_layout(20, 1)
    assert layout.write(layout.read(layout.write({}) + b"x", 0)) == layout.write({})
    with pytest.raises(BadFrame) as null:
        layout.read(b"\0\0\0\1\xff\xff\0\0\0\0", 0)
    assert null.value.reason is Reason.UNEXPECTED_NULL


def test_a_large_frame_holds_nobody_up() -> None:
    """Partitions cost next to nothing, whatever their number; too many topics are not read at all."""
    layout = request_layout(1, 12)
    many = fetch(12, 2, 20_000)
    begun = time.perf_counter()
    layout.read(many, 0)
    assert time.perf_counter() - begun < 0.02
    names = {"TopicNames": [b"x"] * (ELEMENTS_MAX + 1)}
    deletion = request_layout(20, 1)
    with pytest.raises(BadFrame) as large:
        deletion.read(deletion.write(names), 0)
    assert large.value.reason is Reason.TOO_MANY_ITEMS


@given(st.sampled_from(VERSIONS), st.binary(max_size=200), st.booleans())
def test_any_bytes_are_read_or_refused(which: tuple[int, int], data: bytes, asked: bool) -> None:
    """No other error than BadFrame, and what is read is written again the same."""
    layout = (request_layout if asked else response_layout)(*which)
    with suppress(BadFrame):
        body = layout.read(data, 0)
        assert layout.read(layout.write(body), 0).keys() == body.keys()
