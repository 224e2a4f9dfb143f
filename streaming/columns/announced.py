"""What an Arrow IPC stream says of its size, before anything of it is decompressed."""

import struct
from typing import Any, Final

import pyarrow as pa

_DICTIONARY_BATCH: Final = 2
"""Kinds of messages as the format numbers them (Message.fbs of Apache Arrow)."""
_RECORD_BATCH: Final = 3


def announced(value: bytes | pa.Buffer) -> tuple[int, int]:
    """Rows and decompressed bytes of a stream, as its messages say themselves.

    Raises:
        pa.ArrowException, OSError, struct.error, OverflowError: it is none.
    """
    found = [_of_message(message) for message in pa.ipc.MessageReader.open_stream(value)]
    return sum(rows for rows, _ in found), sum(size for _, size in found)


def _of_message(message: Any) -> tuple[int, int]:
    """Rows and decompressed bytes of a message, as it says itself (Message.fbs of Apache Arrow)."""
    head, body = memoryview(message.metadata), message.body
    table = _int(head, "<I", 0)
    kind = _field(head, table, 1)
    batch = _target(head, _field(head, table, 2))
    what = head[kind] if kind else 0
    if what == _DICTIONARY_BATCH:
        batch = _target(head, _field(head, batch, 1))
    elif what != _RECORD_BATCH:
        return 0, 0
    if (views := _field(head, batch, 4)) and _int(head, "<I", _target(head, views)):
        # Arrow makes room for as many buffers of one as it is told; where it cannot the process ends.
        raise pa.ArrowInvalid("a column of views")
    length = _field(head, batch, 0)
    rows = _int(head, "<q", length) if length and what == _RECORD_BATCH else 0
    if body is None or not _field(head, batch, 3):
        return rows, 0 if body is None else len(body)
    buffers = _target(head, _field(head, batch, 2))
    size, content = 0, memoryview(body)
    for number in range(_int(head, "<I", buffers)):
        at, stored = struct.unpack_from("<qq", head, buffers + 4 + 16 * number)
        # Each compressed buffer begins with its length before; -1: it is stored as it is.
        said = _int(content, "<q", at) if stored else 0
        # One that no column uses may say anything: less than nothing would make room for others.
        size += max(0, stored if said < 0 else said)
    return rows, size


def _int(data: memoryview, form: str, at: int) -> int:
    return int(struct.unpack_from(form, data, at)[0])


def _target(data: memoryview, at: int) -> int:
    """Where a reference of a flat buffer leads."""
    return at + _int(data, "<I", at)


def _field(data: memoryview, table: int, number: int) -> int:
    """Where a field of a flat buffer's table stands; 0: it is left out."""
    offsets = table - _int(data, "<i", table)
    place = 4 + 2 * number
    if place >= _int(data, "<H", offsets):
        return 0
    offset = _int(data, "<H", offsets + place)
    return table + offset if offset else 0
