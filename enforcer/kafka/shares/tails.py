"""A Fetch response without what a limit of the proxy has cut off: batches that are not whole.

A broker fills what it is asked for to the last byte, and a consumer drops a batch that ends too early. Where
the limit is the consumer's own, that is its affair; where it is ours, it would pay for bytes of no use.
"""

import struct
from typing import Final

from enforcer.kafka.dispatch.fetch_responses import answer_of, changed
from enforcer.wire.kafka.frames import Frame

_LENGTH: Final = struct.Struct(">8xi")
"""Of a batch, from behind itself on; its offset stands before it."""


def whole_batches(response: Frame, version: int) -> Frame:
    """The response, of each partition up to its last whole batch.

    Raises:
        BadFrame: it ends too early, has too many parts, or a length in it is impossible.
    """
    answer = answer_of(response, version)
    stops: dict[int, int] = {}
    for topic in answer.topics:
        for part in topic.parts:
            stop = _whole_until(response, part.start, part.end)
            if stop < part.end:
                stops[part.start] = stop
    return changed(response, answer, version, stops, ()) if stops else response


def _whole_until(frame: Frame, start: int, end: int) -> int:
    offset = start
    while end - offset >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(frame, offset)
        if length <= 0:
            # No batches at all: nothing is known of where they end.
            return end
        after = offset + _LENGTH.size + length
        if after > end:
            break
        offset = after
    return offset
