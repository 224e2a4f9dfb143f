"""The three admin requests: reading, counting and cutting down."""

import struct
import uuid
from typing import Any

import pytest
from admin_kit import CASES, CREATIONS, DELETIONS, GROWTHS, create, delete, grow, naming
from each_kit import each
from kafka.protocol.admin.topics import CreateTopicsRequest
from kafka_kit import CORRELATION_ID, request, with_tag

from enforcer.wire.kafka.definitions import NAMES
from enforcer.wire.kafka.frames import BadFrame, Reason, parse_header
from enforcer.wire.kafka.mutations import (
    MUTATION_KEYS,
    STRICT_FROM,
    TooManyItems,
    decode_request,
    is_legal_name,
    without,
)

ID_B = uuid.uuid5(uuid.NAMESPACE_DNS, "b").bytes
@pytest.mark.parametrize("version", CREATIONS)
def test_creation_is_read(version: int) -> None:
    """Names, partitions, replicas, assignments and dry run, with configurations between."""
    read = decode_request(*request(create(version, ("a", 3, 2, 0), ("b", -1, -1, 5), validate_only=True)))
    assert (read.api, read.version, read.correlation_id) == (19, version, CORRELATION_ID)
    assert read.validate_only is True
    shapes = [(i.position, i.name, i.partitions, i.replication_factor, i.assignments) for i in read.items]
    assert shapes == [(0, "a", 3, 2, 0), (1, "b", -1, -1, 5)]
    assert read.strict == (version >= 6)


@each("version", DELETIONS)
def test_deletion_is_read(version: int) -> None:
    """Names in all versions, ids from version 6 on; there is no dry run."""
    read = decode_request(*request(delete(version, "a", ID_B if version >= 6 else "b")))
    second = (None, ID_B) if version >= 6 else ("b", None)
    assert [(item.name, item.topic_id) for item in read.items] == [("a", None), second]
    assert (read.validate_only, read.strict) == (False, version >= 5)


@pytest.mark.parametrize("version", GROWTHS)
def test_growth_is_read(version: int) -> None:
    """Total counts and assignments, null or given."""
    read = decode_request(*request(grow(version, ("a", 31, None), ("b", 3, 2), validate_only=True)))
    assert [(i.name, i.partitions, i.assignments) for i in read.items] == [("a", 31, -1), ("b", 3, 2)]
    assert (read.validate_only, read.strict) == (True, version >= 3)


@each(("api", "version"), CASES)
@each("keep", [(), (0,), (2,), (0, 2), (0, 1, 2)])
def test_the_rest_is_what_the_client_would_have_sent(api: int, version: int, keep: Any) -> None:
    """The shortened request equals one encoded with only these topics."""
    names = ("first", "second", "third")
    read = decode_request(*request(naming(api, version, *names)))
    kept = naming(api, version, *(names[position] for position in keep))
    assert without(read, {0, 1, 2} - set(keep)) == request(kept)[0]


def test_the_rest_keeps_unknown_tags() -> None:
    """Tagged fields of kept topics and of the request itself survive."""
    frame, header = request(create(7, ("a", 1, 1, 0), ("b", 1, 1, 0)))
    frame = with_tag(with_tag(frame, len(frame) - 1), decode_request(frame, header).items[1].end - 1)
    read = decode_request(frame, header)
    short, _ = request(create(7, ("b", 1, 1, 0)))
    end = decode_request(*request(create(7, ("b", 1, 1, 0)))).items[0].end
    assert without(read, {0}) == with_tag(with_tag(short, len(short) - 1), end - 1)


def test_legal_names() -> None:
    """Letters, digits, dot, dash and underscore, up to 249; a broker refuses all else before it charges."""
    assert all(map(is_legal_name, ["a", "A-b_c.9", "__ok", "x" * 249]))
    assert not any(map(is_legal_name, ["", ".", "..", "a b", "é", "a\n", "a/b", "x" * 250]))


@each(("api", "version"), CASES)
def test_truncated_and_overlong_requests_are_refused(api: int, version: int) -> None:
    """Every cut, and a byte too many, is a bad frame."""
    frame, header = request(naming(api, version, "first", "second"))
    for end in range(header.body_offset, len(frame)):
        with pytest.raises(BadFrame):
            decode_request(frame[:end], header)
    with pytest.raises(BadFrame) as caught:
        decode_request(frame + b"\0", header)
    assert caught.value.reason is Reason.BAD_VALUE


def test_claimed_lengths_are_not_believed() -> None:
    """An array of two billion topics in a short frame is refused at once, as is a null name."""
    for body in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\0\0\0\1\xff\xff" + bytes(40)):
        frame = struct.pack(">hhih", 19, 2, 1, -1) + body
        with pytest.raises(BadFrame):
            decode_request(frame, parse_header(frame))


def test_event_names_and_keys() -> None:
    """Request events carry Kafka's names."""
    assert [NAMES[api] for api in STRICT_FROM] == ["CreateTopics", "DeleteTopics", "CreatePartitions"]
    assert CreateTopicsRequest.API_KEY in MUTATION_KEYS == set(STRICT_FROM)


def test_more_topics_than_are_gone_through() -> None:
    """What was read until then is handed on, to be refused by name."""
    with pytest.raises(TooManyItems) as caught:
        decode_request(*request(create(7, ("a", 1, 1, 0), ("b", 1, 1, 0), ("c", 1, 1, 0))), 2)
    assert [item.name for item in caught.value.request.items] == ["a", "b"]
    with pytest.raises(TooManyItems) as caught:
        decode_request(*request(create(7, ("a", 1, 1, 0), ("b", -1, -1, 21))), 2)
    assert [item.name for item in caught.value.request.items] == ["a"]


def test_tags_by_the_million_are_damage() -> None:
    """Real messages have a handful."""
    frame = struct.pack(">hhih", 19, 7, 1, -1) + b"\xff\x7f" + b"\1\0" * 20_000
    with pytest.raises(BadFrame) as caught:
        parse_header(frame)
    assert caught.value.reason is Reason.TOO_MANY_ITEMS
