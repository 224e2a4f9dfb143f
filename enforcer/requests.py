"""A client's requests as they come: those that no rule needs are passed on unread, in runs of whole frames.

Sans-IO. What is cut out here costs nothing per byte: a run is a slice of what the socket gave, and the body
of a large request passes as it comes instead of being gathered first.
"""

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from enforcer.link import Slot
from enforcer.messages import REMOVED, UNDERSTOOD
from enforcer.mutations import MUTATION_KEYS
from enforcer.wire import (
    FLEXIBLE_FROM,
    LENGTH_BYTES,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    BadFrame,
    Reason,
    Unread,
    parse_header,
    produce_acks,
)

STREAMED_FROM_BYTES: Final = 16_384
"""A request at least so long is passed on while it comes; shorter ones are not worth two writes."""

# length; key, version, correlation id, length of the client id
_HEAD = struct.Struct(">ihhih")
_LENGTH = struct.Struct(">i")
_ACKS = struct.Struct(">h")
# A null transactional id of Produce 3-8, and of 9 and later behind an empty tagged section.
_NO_TRANSACTION: Final = (b"\xff\xff", b"\0\0")
_PLAIN_HEAD_BYTES: Final = 4
# Client id and transactional id are far shorter in practice; a request with a longer head is read whole.
_ACKS_WITHIN_BYTES: Final = 1_024
_HEADER_BYTES: Final = _HEAD.size - LENGTH_BYTES
_VERSION_MAX: Final = (1 << 15) - 1
_READ_KEYS: Final = MUTATION_KEYS | {SASL_HANDSHAKE, SASL_AUTHENTICATE}

Spans = Mapping[int, tuple[int, int]]

UNREAD: Final[Spans] = MappingProxyType(
    {
        key: UNDERSTOOD.get(key, (0, _VERSION_MAX))
        for key in FLEXIBLE_FROM
        if key not in _READ_KEYS and key not in REMOVED
    }
)
"""API -> first and last version whose requests no rule reads; of Produce only `acks` is looked at."""

UNREAD_BUT_METADATA: Final[Spans] = MappingProxyType(
    {key: span for key, span in UNREAD.items() if key != METADATA}
)
"""The same while some client's Metadata requests must not create topics."""


class Requests(Unread):
    """The requests of one connection.

    Args:
        max_frame_bytes: longest request accepted; a longer one is refused as soon as its length is read.
    """

    __slots__ = ("_max_frame_bytes", "frames", "passing", "waiting", "waiting_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        super().__init__()
        self._max_frame_bytes = max_frame_bytes
        self.frames = 0
        """Requests that have come whole."""
        self.waiting = 0
        """Those of them that are not handled yet, as far as `count` has seen them."""
        self.waiting_bytes = 0
        """Their bytes."""
        self.passing = 0
        """Bytes still to come of a request whose beginning was passed on."""

    @property
    def incomplete(self) -> bool:
        """Whether a request has begun to come and is not whole."""
        return self.passing > 0 or self.left_bytes > self.waiting_bytes

    def take_body(self, data: bytes) -> bytes | bytearray | memoryview:
        """The part of what the socket gave that belongs to the request that is passing; keeps the rest."""
        size = min(self.passing, len(data))
        self.passing -= size
        self.frames += not self.passing
        self.add(data)
        self.pos = size
        return self.slice(0, size)

    def run(self, unread: Spans, slots: list[Slot], room: int) -> bytes | bytearray | memoryview:
        """The requests at the front that no rule needs, lengths included, as one piece to be sent on.

        It ends before a request that must be read, at one that is not whole (of which the part that is here
        is taken too, if it is large), or when `room` requests wait for answers.

        Args:
            unread: which requests no rule needs.
            slots: gets a slot for each request that will be answered.
            room: how many more may wait for their answers.

        Raises:
            BadFrame: a length is negative or above the limit.
        """
        data, start = self.data, self.pos
        pos, end, count = start, len(data), 0
        self.need = 0
        while len(slots) < room:
            if end - pos < _HEAD.size:
                self.need = self._short(pos)
                break
            length, key, version, correlation_id, name_bytes = _HEAD.unpack_from(data, pos)
            if not 0 <= length <= self._max_frame_bytes:
                raise _bad_length(length)
            stop = pos + LENGTH_BYTES + length
            if stop > end and length < STREAMED_FROM_BYTES:
                self.need = stop - pos
                break
            span = unread.get(key)
            known = span is not None and span[0] <= version <= span[1]
            if not known or not -1 <= name_bytes <= length - _HEADER_BYTES:
                self.need = stop - pos
                break
            if key != PRODUCE:
                slots.append(Slot(key, version, correlation_id))
            else:
                acks = self._acks(pos, min(stop, end), version, max(0, name_bytes))
                if acks is None:
                    self.need = stop - pos
                    break
                # Without acks the broker sends no response; waiting for one would shift all that follow.
                if acks:
                    slots.append(Slot(key, version, correlation_id))
            if stop > end:
                self.passing = stop - end
                pos = end
                break
            count += 1
            pos = stop
        if self.waiting:
            self._advance(pos, count)
        else:
            self.frames += count
            self.pos = pos
        if pos == start:
            return b""
        return data if pos - start == end else self.slice(start, pos)

    def next(self) -> bytes | None:
        """The payload of the request at the front; None if it is not whole.

        Raises:
            BadFrame: its length is negative or above the limit.
        """
        start, stop = self.pos + LENGTH_BYTES, self._stop(self.pos)
        if stop < 0:
            return None
        self._advance(stop, 1)
        return self.copy(start, stop)

    def put_back(self, frame: bytes) -> None:
        """Undo the last `next`: the request stays at the front."""
        size = LENGTH_BYTES + len(frame)
        self.pos -= size
        self.waiting += 1
        self.waiting_bytes += size

    def count(self) -> None:
        """Count the requests that wait.

        Raises:
            BadFrame: a length is negative or above the limit.
        """
        pos = self.pos + self.waiting_bytes
        while (stop := self._stop(pos)) >= 0:
            self.waiting += 1
            self.frames += 1
            pos = stop
        self.waiting_bytes = pos - self.pos

    def _advance(self, pos: int, count: int) -> None:
        seen = min(count, self.waiting)
        self.waiting -= seen
        self.waiting_bytes = max(0, self.waiting_bytes - (pos - self.pos)) if self.waiting else 0
        self.frames += count - seen
        self.pos = pos

    def _stop(self, pos: int) -> int:
        """Where the frame at `pos` ends; -1 if it is not whole."""
        if len(self.data) - pos < LENGTH_BYTES:
            return -1
        (length,) = _LENGTH.unpack_from(self.data, pos)
        if not 0 <= length <= self._max_frame_bytes:
            raise _bad_length(length)
        stop: int = pos + LENGTH_BYTES + length
        return stop if stop <= len(self.data) else -1

    def _short(self, pos: int) -> int:
        """Bytes needed from `pos` on when a header's length is not there; a whole frame may be shorter."""
        if len(self.data) - pos < LENGTH_BYTES:
            return _HEAD.size if len(self.data) == pos else LENGTH_BYTES
        (length,) = _LENGTH.unpack_from(self.data, pos)
        if not 0 <= length <= self._max_frame_bytes:
            raise _bad_length(length)
        return min(LENGTH_BYTES + int(length), _HEAD.size)

    def _acks(self, pos: int, stop: int, version: int, name_bytes: int) -> int | None:
        """The acks of the Produce request at `pos`; None if it cannot be read from what is here."""
        start = pos + _HEAD.size + name_bytes
        head = self.data[start : min(stop, start + _PLAIN_HEAD_BYTES)]
        # As nearly always: no transactional id and, in the flexible versions, no tags before it.
        if len(head) == _PLAIN_HEAD_BYTES and version >= 3 and head[:2] == _NO_TRANSACTION[version >= 9]:
            acks: int = _ACKS.unpack_from(head, 2)[0]
            return acks
        frame = self.copy(pos + LENGTH_BYTES, min(stop, pos + _ACKS_WITHIN_BYTES))
        try:
            return produce_acks(frame, parse_header(frame))
        except BadFrame:
            return None


def _bad_length(length: int) -> BadFrame:
    return BadFrame(Reason.NEGATIVE_LENGTH if length < 0 else Reason.TOO_LARGE)
