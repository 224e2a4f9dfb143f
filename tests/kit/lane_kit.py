"""Requests that a connection may pass unread, and their answers, for tests of its short way."""

import struct

from connection_kit import METADATA, PRODUCE, Rig, framed

API_VERSIONS, LIST_GROUPS, HEARTBEAT, FETCH = 18, 16, 12, 1


def asked(key: int, version: int, body: bytes, name: bytes = b"c") -> bytes:
    """A framed request whose correlation id is 0."""
    return framed(struct.pack(">hhih", key, version, 0, len(name)) + name + body)


def produce(topic: bytes, acks: int = 1, version: int = 9, size: int = 40) -> bytes:
    """A framed Produce request for one topic."""
    if version < 13:
        topic = bytes([len(topic) + 1]) + topic
    return asked(PRODUCE, version, b"\0\0" + struct.pack(">hi", acks, 1_000) + b"\2" + topic + bytes(size))


def metadata(topic: bytes, name: bytes = b"c") -> bytes:
    """A framed Metadata request, version 4, that may create its topic."""
    return asked(METADATA, 4, struct.pack(">ih", 1, len(topic)) + topic + b"\1", name)


BODIES = {
    struct.pack(">hh", PRODUCE, 8): bytes(8), struct.pack(">hh", PRODUCE, 9): b"\1" + bytes(5),
    struct.pack(">hh", PRODUCE, 13): b"\1" + bytes(8), struct.pack(">hh", HEARTBEAT, 4): bytes(7),
    struct.pack(">hh", METADATA, 4): bytes(8) + b"\xff\xff" + bytes(8),
    struct.pack(">hh", API_VERSIONS, 0): struct.pack(">hihhh", 0, 1, 18, 0, 3),
    struct.pack(">hh", LIST_GROUPS, 0): bytes(6), struct.pack(">hh", FETCH, 11): bytes(14),
}  # fmt: skip
"""What a broker says behind the correlation id; to whom says nothing it is never asked."""


def numbered(request: bytes, number: int) -> bytes:
    """A request with a correlation id."""
    return request[:8] + struct.pack(">i", number) + request[12:]


def under_way(rig: Rig) -> list[int]:
    """Correlation ids of what the broker has to answer."""
    rig.connection._lane.close()
    return [slot.correlation_id for slot in rig.connection._responses.due]
