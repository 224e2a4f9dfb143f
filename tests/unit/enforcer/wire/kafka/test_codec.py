"""Bodies by Kafka's own definitions: what is written is what was read, and no bytes break the reader."""

import time
from collections import namedtuple
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest
from each_kit import each
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.fetch import FetchRequest
from kafka_kit import build, request, with_tag
from property_kit import tries

from enforcer.kafka.guard.apis import APIS, FILTERED, REFUSED
from enforcer.wire.kafka.codec import ELEMENTS_MAX, Reader, request_layout, response_layout
from enforcer.wire.kafka.codec import layout as layout_of
from enforcer.wire.kafka.compiler import TAGS
from enforcer.wire.kafka.definitions import WIDTHS, Field, body, newest
from enforcer.wire.kafka.frames import NO_ID, BadFrame, Fields, Reason, Rows, is_flexible

DESCRIBE_QUORUM = 55
JUDGED = sorted(FILTERED | REFUSED | {DESCRIBE_QUORUM})
VERSIONS = [
    (key, version)
    for key in JUDGED
    for version in range((APIS[key].versions or (0, 0))[0], (APIS[key].versions or (0, 0))[1] + 1)
]
NO_BATCHES = {24: 3}
"""Versions that are left to brokers."""


@each("key", JUDGED)
def test_versions_are_those_that_can_be_read(key: int) -> None:
    """The table of APIs offers the last version that there is a definition of, and no later one."""
    span = APIS[key].versions
    assert span is not None and span[1] == NO_BATCHES.get(key, newest(key))


@each(("key", "version"), VERSIONS)
def test_defaults_are_read_as_written(key: int, version: int) -> None:
    """A body of defaults, request and response."""
    for one in (request_layout(key, version), response_layout(key, version)):
        data = one.write({})
        assert one.write(one.read(data, 0)) == data


def fetch(version: int, topics: int, partitions: int) -> bytes:
    """The body of a Fetch request."""
    parts = [{"partition": number, "fetch_offset": 7} for number in range(partitions)]
    named = [{"topic": f"topic-{number}", "partitions": parts} for number in range(topics)]
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
    # A partition has so many bytes without its tags.
    row_end = data.rindex(b"topic-0") + 7 + 1 + (4 + 4 + 8 + 4 + 8 + 4)
    tagged = with_tag(data, row_end)
    body = layout.read(tagged, 0)
    assert isinstance(body["Topics"][0]["Partitions"], list)
    assert layout.write(body) == tagged


def test_leftovers_are_dropped_and_nulls_refused() -> None:
    """A byte too many, which brokers ignore; a name that is null."""
    layout = request_layout(20, 1)
    assert layout.write(layout.read(layout.write({}) + b"x", 0)) == layout.write({})
    with pytest.raises(BadFrame) as null:
        layout.read(b"\0\0\0\1\xff\xff\0\0\0\0", 0)
    assert null.value.reason is Reason.UNEXPECTED_NULL


@pytest.mark.parametrize("version", [-1, newest(0) + 1, 1 << 14])
def test_a_version_that_there_is_not_is_not_read(version: int) -> None:
    """A client may name any in a request that waits, and a reader was made, and kept, for each."""
    reader = Reader(0, "request", "Acks")
    with pytest.raises(BadFrame):
        reader(bytes(99), version, 0)
    assert not reader._compiled


def test_a_large_frame_holds_nobody_up() -> None:
    """Partitions cost next to nothing, whatever their number; too many topics are not read at all."""
    layout = request_layout(1, 12)
    many = fetch(12, 2, 20_000)
    begun = time.process_time()
    layout.read(many, 0)
    assert time.process_time() - begun < 0.02
    names = {"TopicNames": [b"x"] * (ELEMENTS_MAX + 1)}
    deletion = request_layout(20, 1)
    with pytest.raises(BadFrame) as large:
        deletion.read(deletion.write(names), 0)
    assert large.value.reason is Reason.TOO_MANY_ITEMS


NUMBERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint16": 16, "uint32": 32}
TEXTS = (b"", b"a", b"topic-0", b"\xff\xfe", b"x" * 130)


def some_struct(parts: Sequence[Field], flexible: bool, by: Random) -> Fields:
    """Any values of a struct, now and then with tags that no version knows."""
    values = {part.name: some_value(part, flexible, by) for part in parts if part.present}
    return values | ({TAGS: b"\1\x09\4kept"} if flexible and by.random() < 0.1 else {})


def some_value(part: Field, flexible: bool, by: Random) -> Any:
    """Any value of a field."""
    kind = part.kind
    if kind in WIDTHS:
        numbers = {"bool": by.random() < 0.5, "uuid": by.randbytes(16), "float64": 0.5}
        return numbers.get(kind, by.getrandbits(NUMBERS.get(kind, 1)))
    if part.nullable and by.random() < 0.2:
        return None
    if not kind.startswith("[]"):
        return some_struct(part.fields, flexible, by) if kind == "struct" else by.choice(TEXTS)
    item = part._replace(kind=kind[2:], nullable=False)
    values = [some_value(item, flexible, by) for _ in range(by.choice((0, 1, 3)))]
    return tuple(values) if item.kind in WIDTHS else values


def some_fields(parts: Sequence[Field], by: Random) -> tuple[str, Callable[[Any], Any]]:
    """Some fields of a struct as a reader is told them, and what it shall give of a struct that was read."""
    there = [part for part in parts if part.present]
    said, taken = [], []
    for part in by.sample(there, by.randint(1, min(3, len(there)))):
        name, inner = part.name, None
        if part.fields:
            name, inner = some_fields(part.fields, by)
            name = f"{part.name}({name})"
        said.append(name)
        taken.append(partial(_of, part, inner))
    return " ".join(said), lambda values: (
        taken[0](values) if len(taken) == 1 else tuple(take(values) for take in taken)
    )


def _of(part: Field, inner: Callable[[Any], Any] | None, values: Fields) -> Any:
    value = values[part.name]
    if part.kind.startswith("[]"):
        return [one if inner is None else inner(one) for one in value or ()]
    return value if inner is None or value is None else inner(value)


def as_lists(value: Any) -> Any:
    """Arrays of numbers come as tuples."""
    if isinstance(value, (list, tuple)):
        return [as_lists(one) for one in value]
    return value


EVERY = [
    (key, version, kind)
    for key in {*JUDGED, 11, 12, 13, 14, 17, 18, 36, 60}
    for version in range(newest(key) + 1)
    for kind in ("request", "response")
    if any(part.present for part in body(key, version, kind))
]


@tries(1_000)
@given(st.sampled_from(EVERY), st.randoms(use_true_random=False))
def test_some_fields_are_those_of_the_whole(which: tuple[int, int, str], by: Random) -> None:
    """In every API and version, classic and flexible: a reader gives what stands in the whole body.

    Of a damaged one, too, as far as that can be read; where it cannot, nothing else is raised than BadFrame.
    """
    key, version, kind = which
    flexible, parts = is_flexible(key, version), body(*which)
    data = layout_of(*which).write(some_struct(parts, flexible, by))
    wanted, of = some_fields(parts, by)
    reader = Reader(key, kind, wanted)
    assert layout_of(*which).write(layout_of(*which).read(data, 0)) == data
    for _ in range(8):
        with suppress(BadFrame):
            whole = layout_of(*which).read(data, 0)
            written = layout_of(*which).write(whole)
            assert layout_of(*which).write(layout_of(*which).read(written, 0)) == written
            assert repr(as_lists(reader(data, version, 0))) == repr(as_lists(of(whole)))
        with suppress(BadFrame):
            reader(data, version, 0)
        at = by.randrange(len(data)) if data else 0
        put = by.choice((b"", b"\xff", b"\0\0\0\0", by.randbytes(2)))
        data = data[:at] + put + data[at + by.randint(0, 4) :]


COMPILED = """\
def read(data, offset, room):
    try:
        size, tags_room = len(data), 10000
        count = data[offset] - 1
        offset += 1
        if count > 126:
            count, offset = read_uvarint(data, offset - 1)
            count -= 1
        if not -1 <= count <= size - offset:
            wrong_count(count)
        topics = []
        if count > 0:
            room -= count * 8
            if room < 0:
                raise TooManyRows
            for _ in range(count):
                start = offset
                count = data[offset] - 1
                offset += 1
                if count > 126:
                    count, offset = read_uvarint(data, offset - 1)
                    count -= 1
                if count < 0:
                    name = null(count, True)
                else:
                    name = str(data[offset : offset + count], "utf-8", "replace")
                    offset += count
                (topic_id,) = read_16s(data, offset)
                offset += 16
                if data[offset]:
                    offset, tags_room = skip_tags(data, offset, tags_room)
                else:
                    offset += 1
                end = offset
                topics.append((start, name, topic_id, end))
        topics_end = offset
    except (error, IndexError) as early:
        raise BadFrame(Reason.TRUNCATED_BODY) from early
    if offset > size:
        raise BadFrame(Reason.TRUNCATED_BODY)
    return (topics, topics_end)
"""


def test_what_a_reader_looks_like() -> None:
    """Straight code, which a traceback or a profile shows line by line; places of what stands around it."""
    reader = Reader(20, "request", "Topics(at Name:text? TopicId end) end:Topics")
    source, value = reader.source(6)
    assert source.text(value) == COMPILED
    topics = [{"Name": b"t"}, {"Name": None, "TopicId": bytes(15) + b"i"}]
    frame = request_layout(20, 6).write({"Topics": topics})
    assert reader(frame, 6, 0) == ([(1, "t", NO_ID, 20), (20, None, bytes(15) + b"i", 38)], 38)
    assert reader(b"\0\0\0\0", 5, 0) == ((), 0)


@pytest.mark.parametrize(
    ("row", "wanted"),
    [(namedtuple("A", "name")("t"), "Name:text?"), (namedtuple("B", "name at")("t", 1), "Name:text? at")],
)
def test_structs_as_named_tuples(row: tuple[Any, ...], wanted: str) -> None:
    """Past their constructor."""
    reader = Reader(20, "request", f"Topics({wanted})", types={"Topics": type(row)})
    (found,) = reader(request_layout(20, 6).write({"Topics": [{"Name": b"t"}]}), 6, 0)
    assert type(found) is type(row) and found == row


def test_bounds_come_before_allocation() -> None:
    """More structs than are gone through, and more than there can be bytes for."""
    reader = Reader(20, "request", "Topics(Name?)", rows=50_000)
    for data, reason in (
        (b"\4" + bytes(60), Reason.TOO_MANY_ITEMS),
        (b"\xff\xff\xff\xff\x0f" + bytes(60), Reason.TRUNCATED_BODY),
        (b"\xff\xff\xff\xff\xff\1" + bytes(60), Reason.BAD_VARINT),
    ):
        with pytest.raises(BadFrame) as bad:
            reader(data, 6, 0)
        assert bad.value.reason is reason
    with pytest.raises(BadFrame) as negative:
        Reader(20, "request", "TopicNames?")(b"\xff\xff\xff\xfe", 1, 0)
    assert negative.value.reason is Reason.NEGATIVE_LENGTH


def test_a_field_that_no_version_has_is_an_error() -> None:
    """A wrong name shows when a reader is compiled."""
    with pytest.raises(KeyError):
        Reader(20, "request", "Topic")(b"", 6, 0)
