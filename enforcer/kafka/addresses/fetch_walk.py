"""A Fetch response, version 16 or later, that passes while it comes: only what lies between records is read.

Behind the records may stand addresses of new leaders, in a tagged field at the very end. Ours take another
number of bytes, but the length of the response has left by then: so they are put in where they fit, else they
are left out, as they are where they are too many to be kept. A client that is not told them asks for
Metadata, as it does of a broker that leaves them out.

By hand: the codec reads what is whole, so that a response of 50 MB would be kept before any of it leaves. One
of 500 partitions takes 1.5 ms this way in pieces of 64 KiB, by the codec 0.2 ms once all of it is there.
"""

from collections.abc import Callable
from typing import Final

from enforcer.wire.kafka import frames
from enforcer.wire.kafka.frames import CORRELATION_BYTES, TAGS_MAX, BadFrame, Reason, read_uvarint

END_MAX_BYTES: Final = 65_536
"""The longest tagged section at the end that is kept to be changed: the addresses of a thousand brokers.
Of a longer one nothing leaves but room."""

_LOOK_BYTES: Final = 256
"""What is read at a time, such as a partition's head; all of them are shorter."""
# A response without topics, up to the tagged fields at its end.
_EMPTY: Final = bytes(CORRELATION_BYTES + 1 + 4 + 2 + 4) + b"\1"
# Of tagged fields that no version knows; a receiver steps over them.
_UNKNOWN_TAG: Final = 126
_ABORTED_BYTES: Final = 8 + 8
"""Producer id and first offset of an aborted transaction; a tagged section follows."""

Rewrite = Callable[[bytes], bytes]
"""A response of this version -> the response with our addresses; raises WeirError if it may not be seen."""


class FetchWalk:
    """One response on its way.

    Args:
        size: its bytes, without its length.
        rewrite: puts in the addresses where clients go instead of the brokers'.
    """

    __slots__ = (
        "_aborted", "_begun", "_end", "_fields", "_left", "_partitions", "_read", "_rewrite", "_skip",
        "_then", "_topics",
    )  # fmt: skip

    def __init__(self, size: int, rewrite: Rewrite) -> None:
        self._rewrite = rewrite
        # Bytes still to come, and how many of them need not be looked at.
        self._left, self._skip = size, 0
        # The beginning of what is read next, as far as it came with an earlier piece.
        self._begun = b""
        # How many are to be read: those of a tagged section too, and what follows it.
        self._topics = self._partitions = self._aborted = self._fields = 0
        self._then: Callable[[], None] = self._next_topic
        self._read: Callable[[bytes, int], int] | None = self._read_head
        self._end: _Kept | _Blank | None = None

    @property
    def unread(self) -> int:
        """Bytes that come next and need not be looked at."""
        return self._skip if self._end is None else 0

    def moved(self, count: int) -> None:
        """So many of the `unread` bytes have left, and not by `take`."""
        self._skip -= count
        self._left -= count

    def take(self, piece: bytes | bytearray | memoryview) -> tuple[int, bytes]:
        """Go through the next piece of the response.

        Returns:
            So many bytes of the piece may leave as they are, and behind them these.

        Raises:
            WeirError: it cannot be read, or names a broker that we cannot stand for.
        """
        self._left -= len(piece)
        # Where the end begins in this piece; -1: not yet.
        pos, cut = 0, -1 if self._end is None else 0
        while True:
            step = min(self._skip, len(piece) - pos)
            pos += step
            self._skip -= step
            if cut < 0 and not self._skip and self._read == self._read_end:
                cut = pos
                size = len(piece) - pos + self._left
                self._end = _Kept(self._rewrite) if size <= END_MAX_BYTES else _Blank(size)
            if pos == len(piece):
                break
            if self._read is not None:
                pos = self._step(piece, pos)
            elif isinstance(self._end, _Kept):
                # What stands behind the end leaves as it came, as it does of a response that comes whole.
                pos = len(piece)
            else:
                raise BadFrame(Reason.BAD_VALUE)
        if not self._left and (self._read is not None or self._skip):
            raise BadFrame(Reason.TRUNCATED_BODY)
        if self._end is None:
            return pos, b""
        return cut, self._end.take(bytes(piece[cut:]), not self._left)

    def _step(self, piece: bytes | bytearray | memoryview, pos: int) -> int:
        """Read on at a place of the piece; returns where it ended, all of the piece if more is needed."""
        assert self._read is not None
        begun = self._begun
        here = begun + bytes(piece[pos : pos + _LOOK_BYTES])
        try:
            offset = self._read(here, 0)
        except BadFrame as bad:
            if bad.reason is not Reason.TRUNCATED_BODY or len(here) >= _LOOK_BYTES:
                raise
            self._begun = here
            return len(piece)
        self._begun = b""
        stop = pos + offset - len(begun)
        if self._skip > len(piece) - stop + self._left:
            raise BadFrame(Reason.TRUNCATED_BODY)
        return stop

    def _tags(self, data: bytes, offset: int, then: Callable[[], None]) -> int:
        """Go over a tagged section and then on; what is in its fields need not be here."""
        count, offset = read_uvarint(data, offset)
        if not count:
            # Nearly always.
            then()
            return offset
        if count > TAGS_MAX:
            raise BadFrame(Reason.TOO_MANY_ITEMS)
        self._fields, self._then, self._read = count, then, self._read_field
        return offset

    def _read_field(self, data: bytes, offset: int) -> int:
        _, offset = read_uvarint(data, offset)  # its number
        self._skip, offset = read_uvarint(data, offset)
        self._fields -= 1
        if not self._fields:
            self._then()
        return offset

    def _read_head(self, data: bytes, offset: int) -> int:
        return self._tags(data, offset + CORRELATION_BYTES, self._after_head)

    def _after_head(self) -> None:
        self._read = self._read_begin

    def _read_begin(self, data: bytes, offset: int) -> int:
        count, offset = read_uvarint(data, offset + 4 + 2 + 4)  # throttle time, error code, session id
        self._topics = max(0, count - 1)
        self._next_topic()
        return offset

    def _next_topic(self) -> None:
        self._read = self._read_topic if self._topics else self._read_end
        self._topics -= 1

    def _read_topic(self, data: bytes, offset: int) -> int:
        count, offset = read_uvarint(data, offset + len(frames.NO_ID))
        self._partitions = max(0, count - 1)
        self._next_partition()
        return offset

    def _next_partition(self) -> None:
        self._read = self._read_partition if self._partitions else self._read_topic_end
        self._partitions -= 1

    def _read_partition(self, data: bytes, offset: int) -> int:
        # Index, error, high watermark, last stable and log start offset.
        count, offset = read_uvarint(data, offset + 4 + 2 + 8 + 8 + 8)
        self._aborted = max(0, count - 1)
        self._next_aborted()
        return offset

    def _next_aborted(self) -> None:
        self._read = self._read_aborted if self._aborted else self._read_records

    def _read_aborted(self, data: bytes, offset: int) -> int:
        offset, left = offset + _ABORTED_BYTES, self._aborted
        # There may be thousands, nearly always without tags.
        while left and offset < len(data) and not data[offset]:
            offset += _ABORTED_BYTES + 1
            left -= 1
        if left == self._aborted:
            return self._tags(data, offset, self._after_aborted)
        self._aborted = left
        self._next_aborted()
        return offset - _ABORTED_BYTES

    def _after_aborted(self) -> None:
        self._aborted -= 1
        self._next_aborted()

    def _read_records(self, data: bytes, offset: int) -> int:
        count, offset = read_uvarint(data, offset + 4)  # preferred read replica
        self._skip = max(0, count - 1)
        self._read = self._read_partition_end
        return offset

    def _read_partition_end(self, data: bytes, offset: int) -> int:
        return self._tags(data, offset, self._next_partition)

    def _read_topic_end(self, data: bytes, offset: int) -> int:
        return self._tags(data, offset, self._next_topic)

    def _read_end(self, data: bytes, offset: int) -> int:
        return self._tags(data, offset, self._finish)

    def _finish(self) -> None:
        self._read = None


class _Kept:
    """The tagged section at the end: it leaves when all of it is here."""

    __slots__ = ("_came", "_rewrite")

    def __init__(self, rewrite: Rewrite) -> None:
        self._came = b""
        self._rewrite = rewrite

    def take(self, piece: bytes, whole: bool) -> bytes:
        """Its next bytes, and whether they are the last; returns what may leave."""
        self._came += piece
        if not whole:
            return b""
        left = self._rewrite(_EMPTY + self._came)[len(_EMPTY) :]
        return left if left == self._came else fitted(left, len(self._came))


class _Blank:
    """The same if it is too long to be kept: nothing but room leaves for it, byte for byte."""

    __slots__ = ("_head",)

    def __init__(self, size: int) -> None:
        self._head = _blank_head(size)

    def take(self, piece: bytes, _whole: bool) -> bytes:
        """Its next bytes; returns what leaves for them."""
        begin, self._head = self._head[: len(piece)], self._head[len(piece) :]
        return begin + bytes(len(piece) - len(begin))


def fitted(tags: bytes, size: int) -> bytes:
    """A tagged section in so many bytes: as it is and room behind it, or else nothing but room.

    Args:
        size: at least 3, as one with a field has.
    """
    spare = size - len(tags)
    if not spare:
        return tags
    behind = _room_head(_UNKNOWN_TAG, spare) if tags[:1] == b"\1" else None
    head = _blank_head(size) if behind is None else b"\2" + tags[1:] + behind
    return head + bytes(size - len(head))


def _blank_head(size: int) -> bytes:
    """How a tagged section of so many bytes, at least 3, begins that is nothing but room; zeros follow."""
    alone = _room_head(_UNKNOWN_TAG, size - 1)
    if alone is not None:
        return b"\1" + alone
    # Where a length takes a byte more, one field is out of reach of some sizes; two of them are not.
    for shorter in (2, 3):
        first, second = _room_head(_UNKNOWN_TAG - 1, shorter), _room_head(_UNKNOWN_TAG, size - 1 - shorter)
        if first is not None and second is not None:
            return b"\2" + first + bytes(shorter - len(first)) + second
    raise BadFrame(Reason.BAD_VALUE)


def _room_head(tag: int, size: int) -> bytes | None:
    """How a tagged field of so many bytes begins that no receiver knows; None: no field has so many."""
    for length_bytes in range(1, 5):
        content = size - 1 - length_bytes
        if content >= 0 and len(length := frames.uvarint(content)) == length_bytes:
            return bytes((tag,)) + length
    return None
