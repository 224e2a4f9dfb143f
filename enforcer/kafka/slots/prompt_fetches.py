"""Which Fetches a broker must answer at once (docs/protocol_notes.md 3.7)."""

from typing import Final

from enforcer.wire.kafka.codec import asked
from enforcer.wire.kafka.frames import FETCH, HEAD, LENGTH_BYTES, BadFrame, parse_header

_WAITS: Final = asked(FETCH, "MaxWaitMs MinBytes")
_FRONT_BYTES: Final = 64
"""Behind the client id, and what of tags may stand there: the rest of a Fetch need not be copied."""


def prompt_fetches(piece: bytes | bytearray | memoryview) -> set[int]:
    """Correlation ids of the Fetches that may not wait, by their own max_wait_ms or min_bytes.

    Args:
        piece: requests with their lengths; the last one may be a part.
    """
    found: set[int] = set()
    pos = 0
    while len(piece) - pos >= HEAD.size:
        length, key, _, correlation_id, name_bytes = HEAD.unpack_from(piece, pos)
        start, stop = pos + LENGTH_BYTES, pos + LENGTH_BYTES + length
        if key == FETCH:
            end = pos + HEAD.size + max(0, name_bytes) + _FRONT_BYTES
            if _is_prompt(bytes(piece[start : min(stop, end)])):
                found.add(correlation_id)
        pos = stop
    return found


def _is_prompt(front: bytes) -> bool:
    try:
        wait_ms, min_bytes = _WAITS(front, parse_header(front))
    except BadFrame:
        return False
    return bool(wait_ms <= 0 or min_bytes <= 0)
