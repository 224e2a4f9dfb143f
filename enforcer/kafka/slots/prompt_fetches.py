"""Which Fetches a broker must answer at once (docs/protocol_notes.md 3.7)."""

import struct
from typing import Final

from enforcer.wire.kafka.frames import FETCH, HEAD, LENGTH_BYTES, BadFrame, is_flexible, skip_tags

_WAITS: Final = struct.Struct(">ii")  # max_wait_ms, min_bytes
_REPLICA_BYTES: Final = 4
_REPLICA_UNTIL: Final = 14
"""Later versions have the replica's id in a tag behind all else."""


def prompt_fetches(piece: bytes | bytearray | memoryview) -> set[int]:
    """Correlation ids of the Fetches that may not wait, by their own max_wait_ms or min_bytes.

    Args:
        piece: requests with their lengths; the last one may be a part.
    """
    found: set[int] = set()
    pos = 0
    while len(piece) - pos >= HEAD.size:
        length, key, version, correlation_id, name_bytes = HEAD.unpack_from(piece, pos)
        stop = pos + LENGTH_BYTES + length
        if key == FETCH:
            # The front of it is short, and what it needs of tags is read from a copy of that.
            start = pos + HEAD.size + max(0, name_bytes)
            front = bytes(piece[start : min(stop, start + 64)])
            if _is_prompt(front, version):
                found.add(correlation_id)
        pos = stop
    return found


def _is_prompt(front: bytes, version: int) -> bool:
    try:
        offset = skip_tags(front, 0) if is_flexible(FETCH, version) else 0
    except (BadFrame, IndexError):
        return False
    offset += _REPLICA_BYTES if version <= _REPLICA_UNTIL else 0
    if len(front) < offset + _WAITS.size:
        return False
    max_wait_ms, min_bytes = _WAITS.unpack_from(front, offset)
    return bool(max_wait_ms <= 0 or min_bytes <= 0)
