"""Frames of Pulsar's binary protocol: where each ends, of which kind it is, where a message's parts lie.

A frame is u32 size, u32 size of the command, the command, and for SEND and MESSAGE the message behind it;
sizes are big-endian and do not count themselves. The command is a BaseCommand: field 1 is its kind, the body
stands in the field whose number is the kind (PulsarApi, docs/protocol_notes.md 4.8). All clients write these
two in this order and nothing else, so the kind is the tenth byte. A command that is written otherwise could
mean another kind to the broker than to us; it ends its connection.
"""

import struct
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from streaming.contract.errors import WeirError

CONNECT: Final = 2
CONNECTED: Final = 3
SUBSCRIBE: Final = 4
PRODUCER: Final = 5
SEND: Final = 6
SEND_RECEIPT: Final = 7
SEND_ERROR: Final = 8
MESSAGE: Final = 9
FLOW: Final = 11
UNSUBSCRIBE: Final = 12
SUCCESS: Final = 13
ERROR: Final = 14
CLOSE_PRODUCER: Final = 15
CLOSE_CONSUMER: Final = 16
PRODUCER_SUCCESS: Final = 17
PING: Final = 18
PONG: Final = 19
REDELIVER: Final = 20
PARTITIONED_METADATA: Final = 21
PARTITIONED_METADATA_RESPONSE: Final = 22
LOOKUP: Final = 23
LOOKUP_RESPONSE: Final = 24
CONSUMER_STATS: Final = 25
CONSUMER_STATS_RESPONSE: Final = 26
REACHED_END_OF_TOPIC: Final = 27
SEEK: Final = 28
ACTIVE_CONSUMER_CHANGE: Final = 31
AUTH_CHALLENGE: Final = 36
AUTH_RESPONSE: Final = 37
TOPIC_MIGRATED: Final = 68

MESSAGE_BYTES_DEFAULT: Final = 5_242_880
"""The largest message of a broker that does not say otherwise, bytes."""
FRAME_OVERHEAD: Final = 10_240
"""A frame may be so much larger than the largest message, bytes."""
COMMAND_AT: Final = 8
"""Where the command begins in a frame."""

_SIZES: Final = struct.Struct(">II")
_U32: Final = struct.Struct(">I")
_CRC_MAGIC: Final = b"\x0e\x01"
_ENTRY_MAGIC: Final = b"\x0e\x02"
_LEAST: Final = 12
"""Bytes of the smallest frame: sizes, kind, and the tag and length of an empty body."""
_SURE: Final = 17
"""Bytes after which the length of the body must have ended: a tag of two bytes, a length of five."""
_BYTES_EACH: Final = 6
"""A message of a batch takes so many at least: its size, and metadata that say how long its payload is."""
_PER_BYTE: Final = (0, 42, 172, 5_000, 4)
"""Messages of a batch that a byte can stand for where it is compressed: so many equal ones the longest
repetition of the codec holds (CompressionType: none, LZ4, ZLIB, ZSTD, SNAPPY)."""
_KINDS: Final = 128
ALL: Final = frozenset(range(_KINDS))
"""Every kind of frame."""
_TYPE_TAG: Final = 8


class Reason(StrEnum):
    """Why bytes are not a frame; the label of the bad-frame counter."""

    TOO_LARGE = "too_large"
    BAD_SIZE = "bad_size"
    BAD_COMMAND = "bad_command"
    BAD_MESSAGE = "bad_message"
    BAD_BODY = "bad_body"
    UNEXPECTED = "unexpected"
    INTERNAL = "internal"


class BadFrame(WeirError):
    """The peer sent something that cannot be a frame of Pulsar's; its connection must end.

    Args:
        reason: the closed-set cause.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"bad Pulsar frame: {reason.value}")
        self.reason = reason


def body_at(frame: bytes) -> int:
    """Where the body of a whole frame's command begins; see `command_end` for where it ends.

    Raises:
        BadFrame: the command is not its kind and its body, and nothing else.
    """
    if len(frame) < _LEAST:
        raise BadFrame(Reason.BAD_SIZE)
    return _body_at(frame, 0, _U32.unpack_from(frame, 4)[0])


def command_end(frame: bytes) -> int:
    """Where the command ends and a message may begin."""
    end: int = COMMAND_AT + _U32.unpack_from(frame, 4)[0]
    return end


def _body_at(data: bytes, start: int, command: int) -> int:
    """Where the body begins, in data that holds all up to there."""
    kind = data[start + 9]
    if data[start + 8] != _TYPE_TAG or kind >= _KINDS:
        raise BadFrame(Reason.BAD_COMMAND)
    at = start + 11
    if kind < 16:
        right = data[start + 10] == kind << 3 | 2
    else:
        right = data[start + 10] == (kind << 3 | 2) & 0x7F | 0x80 and data[at] == kind >> 4
        at += 1
    end = min(len(data), start + COMMAND_AT + command)
    length = shift = 0
    while True:
        if at >= end or shift > 28:
            raise BadFrame(Reason.BAD_COMMAND)
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if not right or at + length != start + COMMAND_AT + command:
        raise BadFrame(Reason.BAD_COMMAND)
    return at


def message_parts(frame: bytes) -> tuple[int, int, int]:
    """Where the parts of the message in a whole SEND or MESSAGE begin: it, its metadata, its payload.

    What brokers count as its bytes begins behind the command; the payload ends with the frame.

    Raises:
        BadFrame: there is none.
    """
    at = start = command_end(frame)
    try:
        if frame[at : at + 2] == _ENTRY_MAGIC:
            at += 6 + _U32.unpack_from(frame, at + 2)[0]
        if frame[at : at + 2] == _CRC_MAGIC:
            at += 6
        payload = at + 4 + _U32.unpack_from(frame, at)[0]
    except struct.error:
        raise BadFrame(Reason.BAD_MESSAGE) from None
    if payload > len(frame):
        raise BadFrame(Reason.BAD_MESSAGE)
    return start, at + 4, payload


def plausible(claimed: int, payload: int, compression: int) -> int:
    """How many messages a batch counts for: no more than its payload can hold, at least 1.

    What it claims is its producer's word, which nobody checks.

    Args:
        claimed: what it says.
        payload: its bytes.
        compression: a CompressionType; one that is not known counts as a message for each byte.

    >>> plausible(30, 3_000, 0), plausible(2_000_000_000, 60, 0), plausible(1_000, 60, 1), plausible(5, 0, 9)
    (30, 10, 1000, 1)
    """
    if not compression:
        room = payload // _BYTES_EACH
    else:
        room = payload * (_PER_BYTE[compression] if 0 < compression < len(_PER_BYTE) else 1)
    return max(1, min(claimed, room))


class Splitter:
    """One direction of a connection, cut into frames where somebody wants them.

    Runs of frames that nobody wants go on as they came, also before the last of them is whole. Wanted frames
    are kept until they are whole.

    Attributes:
        wanted: kinds of which whole frames are taken.
        limit: the largest frame, bytes, without its size.
        partial: whether a frame has come in part.
        stopped: nothing is handed on; what comes is kept until `feed` is called when that is over.
        whole: no frame begins to pass in part.
        frames: that have come and were handed on, whole or in part.

    Args:
        pass_on: gets what nobody wants, and whether the last frame in it goes on in what follows.
        take: gets a whole frame, and its kind.
    """

    __slots__ = (
        "_held", "_need", "_pass_on", "_skip", "_take", "frames", "limit", "stopped", "wanted", "whole",
    )  # fmt: skip

    def __init__(
        self, pass_on: Callable[[bytes, bool], object], take: Callable[[int, bytes], None], limit: int
    ) -> None:
        self._pass_on = pass_on
        self._take = take
        self.limit = limit
        self.wanted: frozenset[int] = frozenset()
        self.stopped = self.whole = False
        self.frames = 0
        self._held = bytearray()
        # Bytes that must be held before it is worth to look at them, if the last look found a frame in part;
        # and those of a passing frame to come.
        self._need = 0
        self._skip = 0

    @property
    def partial(self) -> bool:
        """See the attributes."""
        return bool(self._skip or self._held)

    @property
    def held_bytes(self) -> int:
        """What is kept."""
        return len(self._held)

    def drop(self) -> None:
        """Keep nothing, and hand nothing on any more."""
        self.stopped = True
        self._held = bytearray()

    def feed(self, data: bytes) -> None:
        """Take what has come.

        Raises:
            BadFrame: it cannot be Pulsar's; all before it was handed on.
        """
        size = len(data)
        if self.stopped or self._held:
            self._held += data
            if self.stopped or len(self._held) < self._need:
                return
            data, self._held = bytes(self._held), bytearray()
        elif 0 < size <= self._skip:
            self._skip -= size
            self._pass_on(data, self._skip > 0)
            return
        if data:
            self._cut(data)

    def _cut(self, data: bytes) -> None:
        size = len(data)
        # A run of frames that pass begins at `start`.
        start, pos, self._skip, self._need = 0, self._skip, 0, 0
        while pos < size and not self.stopped:
            try:
                end = self._look(data, pos)
            except BadFrame:
                self._run(data, start, pos)
                raise
            if not end:
                break
            if data[pos + 9] not in self.wanted and not (self.whole and end > size):
                self.frames += 1
                pos = end
                continue
            if end > size:
                self._need = end - pos
                break
            self.frames += 1
            self._run(data, start, pos)
            start = end
            self._take(data[pos + 9], data if end - pos == size else data[pos:end])
            pos = end
        if pos > size:
            self._skip = pos - size
            pos = size
        self._run(data, start, pos)
        if pos < size:
            self._held = bytearray(memoryview(data)[pos:])

    def _run(self, data: bytes, start: int, end: int) -> None:
        if start < end:
            run = data if end - start == len(data) else data[start:end]
            self._pass_on(run, self._skip > 0)

    def _look(self, data: bytes, pos: int) -> int:
        """Where the frame that begins here ends; 0 if more must come to know it."""
        left = len(data) - pos
        if left < _LEAST:
            self._need = _LEAST
            return 0
        total, command = _SIZES.unpack_from(data, pos)
        if total > self.limit:
            raise BadFrame(Reason.TOO_LARGE)
        if command < _LEAST - COMMAND_AT or command > total - 4:
            raise BadFrame(Reason.BAD_SIZE)
        if left < _SURE and left < COMMAND_AT + command:
            self._need = min(_SURE, COMMAND_AT + command)
            return 0
        kind = data[pos + 9]
        # The usual case, a short body of an old kind, costs no call.
        if not (
            kind < 16
            and data[pos + 8] == _TYPE_TAG
            and data[pos + 10] == kind << 3 | 2
            and data[pos + 11] < 0x80
            and data[pos + 11] == command - 4
        ):
            _body_at(data, pos, command)
        end: int = pos + 4 + total
        return end
