"""Kafka messages encoded by kafka-python: the second opinion on every byte that the wire layer reads."""

import struct
from collections.abc import Mapping
from typing import Any

from kafka.protocol.api_message import ApiMessage

from enforcer.wire.kafka.frames import RequestHeader, parse_header

CORRELATION_ID = 7
CLIENT_ID = "tests"


def build(cls: type[Any], version: int, **values: Any) -> Any:
    """A message or a part of one, its own parts as mappings; what a version lacks is left out."""
    there = {name: value for name, value in values.items() if cls.fields[name].for_version_q(version)}
    return cls(version=version, **{name: _parts(cls, name, version, value) for name, value in there.items()})


def _parts(cls: type[Any], name: str, version: int, value: Any) -> Any:
    if isinstance(value, Mapping):
        return build(cls.fields[name].data_class, version, **value)
    return [_parts(cls, name, version, one) for one in value] if isinstance(value, list) else value


def framed(payload: bytes) -> bytes:
    """A frame with its length."""
    return struct.pack(">i", len(payload)) + payload


def request(message: ApiMessage, client_id: str | None = CLIENT_ID) -> tuple[bytes, RequestHeader]:
    """A request's frame with its header as the proxy reads it."""
    message.with_header(CORRELATION_ID, client_id)
    frame = message.encode(header=True)
    return frame, parse_header(frame)


def response(message: ApiMessage) -> bytes:
    """A response's frame."""
    message.with_header(CORRELATION_ID)
    return bytes(message.encode(header=True))


def decode(cls: type[ApiMessage], version: int, frame: bytes) -> Any:
    """What kafka-python reads in a frame; checks that no bytes are left over, which it does not."""
    message = cls.decode(frame, version=version, header=True)
    header, message._header = message.header, None
    body = message.encode(version=version)
    assert frame.endswith(body)
    assert 4 <= len(frame) - len(body) <= 12 + len(CLIENT_ID)
    message._header = header
    return message


def read_back(request: Any) -> Any:
    """A request as a broker reads it, of the newest version that it may have."""
    version = request.max_version if request._max_version is None else request._max_version
    return type(request).decode(request.encode(version=version), version=version)


def with_tag(data: bytes, offset: int) -> bytes:
    """The data with one unknown tagged field in the empty tagged section at `offset`."""
    assert data[offset] == 0
    return data[:offset] + b"\1\x09\4kept" + data[offset + 1 :]
