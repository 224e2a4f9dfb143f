"""A client's requests as they come: those that no rule needs are passed on unread, in runs of whole frames.

Sans-IO. What is cut out here costs nothing per byte: a run is a slice of what the socket gave, and the body
of a large request passes as it comes instead of being gathered first.
"""

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from enforcer.kafka.link import Slot
from enforcer.kafka.protocol.frames import (
    FETCH,
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
from enforcer.kafka.protocol.messages import REMOVED, UNDERSTOOD
from enforcer.kafka.protocol.mutations import MUTATION_KEYS

STREAMED_FROM_BYTES: Final = 16_384
"""A request at least so long is passed on while it comes; shorter ones are not worth two writes."""

# length; key, version, correlation id, length of the client id
_HEAD = struct.Struct(">ihhih")
_LENGTH = struct.Struct(">i")
_NO_ACKS: Final = b"\0\0"
# A null transactional id of Produce 3-8, and of 9 and later behind an empty tagged section.
_NO_TRANSACTION: Final = (b"\xff\xff", b"\0\0")
_PLAIN_HEAD_BYTES: Final = 4
# Client id and transactional id are far shorter in practice; a request with a longer head is read whole.
_ACKS_WITHIN_BYTES: Final = 1_024
_VERSION_MAX: Final = (1 << 15) - 1
_READ_KEYS: Final = MUTATION_KEYS | {SASL_HANDSHAKE, SASL_AUTHENTICATE}

UNREAD: Final[Mapping[int, tuple[int, int]]] = MappingProxyType(
    {
        key: UNDERSTOOD.get(key, (0, _VERSION_MAX))
        for key in FLEXIBLE_FROM
        if key not in _READ_KEYS and key not in REMOVED
    }
)
"""API -> first and last version whose requests may pass unread; of Produce only `acks` is looked at."""

MustRead = Callable[[int, bytes], bool]
"""(API, client id) -> whether a rule needs the body of such a request now; asked of `Requests.asked` only."""

ASKED_KEYS: Final = frozenset({METADATA})
METERED_KEYS: Final = frozenset({PRODUCE, FETCH, METADATA})
"""The same while traffic is metered."""


class Requests(Unread):
    """The requests of one connection.

    Args:
        max_frame_bytes: longest request accepted; a longer one is refused as soon as its length is read.
        must_read: tells which of the requests that may pass unread are needed all the same.
    """

    __slots__ = ("_max_frame_bytes", "_must_read", "asked", "frames", "passing", "waiting", "waiting_bytes")

    def __init__(self, max_frame_bytes: int, must_read: MustRead) -> None:
        super().__init__()
        self._max_frame_bytes = max_frame_bytes
        self._must_read = must_read
        self.asked = ASKED_KEYS
        """APIs that `must_read` is asked about."""
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

    def run(self, slots: list[Slot], room: int) -> bytes | bytearray | memoryview:
        """The requests at the front that no rule needs, lengths included, as one piece to be sent on.

        It ends before a request that must be read, at one that is not whole (of which the part that is here
        is taken too, if it is large), or when `room` requests wait for answers.

        Args:
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
            answered = self._passes(pos, stop, key, version, name_bytes)
            if answered is None:
                self.need = stop - pos
                break
            if answered:
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

    def _passes(self, pos: int, stop: int, key: int, version: int, name_bytes: int) -> bool | None:
        """Whether the request from `pos` to `stop`, which may not be whole, may pass unread.

        Returns:
            None: a rule needs its body, or it is damaged; else whether it will be answered.
        """
        span = UNREAD.get(key)
        if span is None or not span[0] <= version <= span[1]:
            return None
        name = pos + _HEAD.size
        if not -1 <= name_bytes <= stop - name:
            return None
        if key in self.asked:
            name_stop = name + max(0, name_bytes)
            if name_stop > len(self.data) or self._must_read(key, bytes(self.data[name:name_stop])):
                return None
        # Without acks the broker sends no response; waiting for one would shift all that follow.
        return self._acks(pos, stop, version, max(0, name_bytes)) if key == PRODUCE else True

    def _acks(self, pos: int, stop: int, version: int, name_bytes: int) -> bool | None:
        """Whether the Produce request at `pos` asks for acks; None if what is here does not tell."""
        start = pos + _HEAD.size + name_bytes
        head = self.data[start : min(stop, start + _PLAIN_HEAD_BYTES)]
        # As nearly always: no transactional id and, in the flexible versions, no tags before it.
        if len(head) == _PLAIN_HEAD_BYTES and version >= 3 and head[:2] == _NO_TRANSACTION[version >= 9]:
            return head[2:] != _NO_ACKS
        frame = self.copy(pos + LENGTH_BYTES, min(stop, len(self.data), pos + _ACKS_WITHIN_BYTES))
        try:
            return produce_acks(frame, parse_header(frame)) != 0
        except BadFrame:
            return None


def _bad_length(length: int) -> BadFrame:
    return BadFrame(Reason.NEGATIVE_LENGTH if length < 0 else Reason.TOO_LARGE)
