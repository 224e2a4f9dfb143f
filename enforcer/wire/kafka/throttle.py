"""Finding and raising throttle_time_ms in responses (docs/protocol_notes.md 3.2)."""

from typing import Final

from enforcer.wire.kafka import fields
from enforcer.wire.kafka.fields import STRING, Cursor
from enforcer.wire.kafka.frames import (
    API_VERSIONS,
    PRODUCE,
    BadFrame,
    Reason,
    is_flexible,
    response_body_offset,
)

_THROTTLE_BYTES: Final = 4
# The end of a partition of a Produce response as nearly always: no records, no message, no tags.
_NOTHING_REFUSED: Final = (b"\1\0\0", b"\0\0\0")

# First version whose response has the field, as its first field (Kafka 4.1's response schemas).
FIRST_FIELD_FROM: Final[dict[int, int]] = {
    1: 1, 2: 2, 3: 3, 8: 3, 9: 3, 10: 1, 11: 2, 12: 1, 13: 1, 14: 1, 15: 1, 16: 1, 19: 2, 20: 1, 21: 0,
    22: 0, 23: 2, 24: 0, 25: 0, 26: 0, 28: 0, 29: 0, 30: 0, 31: 0, 32: 0, 33: 0, 34: 0, 35: 0, 37: 0, 42: 0,
    43: 0, 44: 0, 45: 0, 46: 0, 48: 0, 49: 0, 50: 0, 51: 0, 56: 0, 57: 0, 59: 0, 60: 0, 61: 0, 62: 0, 63: 0,
    64: 0, 65: 0, 66: 0, 67: 0, 68: 0, 69: 0, 70: 0, 71: 0, 72: 0, 73: 0, 74: 0, 75: 0, 76: 0, 77: 0, 78: 0,
    79: 0, 80: 0, 81: 0, 82: 0, 88: 0, 89: 0, 90: 0, 91: 0, 92: 0,
}  # fmt: skip

# Responses with other fixed-size fields before it: after an error code (OffsetDelete), or also after an
# expiry time (RenewDelegationToken, ExpireDelegationToken).
_BYTES_BEFORE: Final[dict[int, int]] = {47: 2, 39: 10, 40: 10}


def throttle_offset(api_key: int, version: int, response: bytes | bytearray) -> int | None:
    """Where throttle_time_ms stands in a response; None if this response has none or we do not look for it.

    Raises:
        BadFrame: the response ends before the field.
    """
    if api_key == PRODUCE:
        return produce_throttle_offset(version, response) if version >= 1 else None
    if api_key == API_VERSIONS:
        return _api_versions_offset(version, response)
    first_from = FIRST_FIELD_FROM.get(api_key)
    if first_from is not None:
        if version < first_from:
            return None
        offset = response_body_offset(api_key, version, response)
    elif api_key in _BYTES_BEFORE:
        offset = response_body_offset(api_key, version, response) + _BYTES_BEFORE[api_key]
    else:
        return None
    if offset + _THROTTLE_BYTES > len(response):
        raise BadFrame(Reason.TRUNCATED_BODY)
    return offset


def patch_throttle(api_key: int, version: int, response: bytes | bytearray, throttle_ms: int) -> bytes:
    """The response with throttle_time_ms at least `throttle_ms`; what is larger there stays.

    A response without the field, or one that says as much already, comes back as it is.

    Raises:
        BadFrame: the response ends before the field.
    """
    if throttle_ms <= 0:
        return bytes(response)
    offset = throttle_offset(api_key, version, response)
    if offset is None:
        return bytes(response)
    end = offset + _THROTTLE_BYTES
    if int.from_bytes(response[offset:end], "big", signed=True) >= throttle_ms:
        return bytes(response)
    patched = bytearray(response)
    patched[offset:end] = fields.int32(throttle_ms)
    return bytes(patched)


def produce_throttle_offset(version: int, response: bytes | bytearray) -> int:
    """The field's place in a Produce response v1+, after the answers per partition.

    Classic versions end with it. Flexible ones end with it and a tagged section, which holds the addresses
    of new leaders when there are leader errors; only then the whole body must be walked.

    Raises:
        BadFrame: the response is too short.
    """
    if not is_flexible(PRODUCE, version):
        offset = len(response) - _THROTTLE_BYTES
    elif ends_without_tags(response):
        offset = len(response) - _THROTTLE_BYTES - 1
    else:
        cursor = Cursor(response, response_body_offset(PRODUCE, version, response), True)
        skip_produce_partitions(cursor, version)
        offset = cursor.offset
        cursor.skip(_THROTTLE_BYTES)
    if offset < fields.CORRELATION_END:
        raise BadFrame(Reason.TRUNCATED_BODY)
    return offset


def ends_without_tags(response: bytes | bytearray) -> bool:
    """Whether a flexible Produce response certainly ends in `throttle, no tags`, from its last bytes alone.

    Without tags it ends with the empty sections of the last partition and topic, the throttle time and a
    zero. With the tag of new leaders the seventh byte from the end lies in a host, a port or a rack; the one
    combination that looks alike (rack of one letter) reads as a throttle time above 2^24 ms, 4.6 hours.
    """
    return len(response) > 7 and response[-1] == 0 and response[-7:-4] == b"\0\0\0"


def skip_produce_partitions(cursor: Cursor, version: int) -> None:
    """Moves a cursor at the body of a Produce response v9+ over the answers of all partitions."""
    for _ in cursor.elements():
        if version >= 13:
            cursor.skip(len(fields.NO_ID))
        else:
            cursor.skip_string()
        for _ in cursor.elements(rows=2):
            cursor.offset += 4 + 2 + 8 + 8 + 8  # index, error, base offset, append time, log start offset
            if cursor.data[cursor.offset : cursor.offset + 3] in _NOTHING_REFUSED:
                cursor.offset += 3
                continue
            cursor.skip_rows(before=4, parts=(STRING,))  # refused records: index in the batch, message
            cursor.skip_string()
            cursor.skip_tags()
        cursor.skip_tags()


def _api_versions_offset(version: int, response: bytes | bytearray) -> int | None:
    cursor = Cursor(response, fields.CORRELATION_END, is_flexible(API_VERSIONS, version))
    # An error 35 is answered in the form of version 0, whatever was asked.
    if version < 1 or cursor.int16() == fields.UNSUPPORTED_VERSION:
        return None
    for _ in cursor.elements():
        cursor.skip(6)
        cursor.skip_tags()
    offset = cursor.offset
    cursor.skip(_THROTTLE_BYTES)
    return offset
