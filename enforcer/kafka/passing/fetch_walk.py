"""A Fetch response, version 16 or later, that passes while it comes: only what lies between records is read.

Behind the records may stand addresses of new leaders, in a tagged field at the very end. Ours take another
number of bytes, but the length of the response has left by then: so they are put in where they fit, else they
are left out. A client that is not told them asks for Metadata, as it does of a broker that leaves them out.
"""

from collections.abc import Callable
from typing import Final

from enforcer.kafka.protocol import fields
from enforcer.kafka.protocol.fields import Cursor
from enforcer.kafka.protocol.frames import CORRELATION_BYTES, BadFrame, Reason

PART_MAX_BYTES: Final = 65_536
"""What is read at a time, such as a partition's head; nearly always it has less than a hundred bytes."""

_LOOK_BYTES: Final = 256
# A response without topics, up to the tagged fields at its end.
_EMPTY: Final = bytes(CORRELATION_BYTES + 1 + 4 + 2 + 4) + b"\1"
# Of tagged fields that no version knows; a receiver steps over them.
_UNKNOWN_TAG: Final = 126

Rewrite = Callable[[bytes], bytes]
"""A response of this version -> the response with our addresses; raises WeirError if it may not be seen."""


class FetchWalk:
    """One response on its way.

    Args:
        size: its bytes, without its length.
        rewrite: puts in the addresses where clients go instead of the brokers'.
    """

    __slots__ = ("_aborted", "_begun", "_left", "_partitions", "_read", "_rewrite", "_skip", "_topics")

    def __init__(self, size: int, rewrite: Rewrite) -> None:
        self._rewrite = rewrite
        # Bytes still to come, and how many of them need not be looked at.
        self._left, self._skip = size, 0
        # The beginning of what is read next, as far as it came with an earlier piece.
        self._begun = b""
        # How many are to be read.
        self._topics = self._partitions = self._aborted = 0
        self._read: Callable[[Cursor], None] | None = self._read_head

    def take(self, piece: bytes | bytearray | memoryview) -> tuple[int, bytes]:
        """Go through the next piece of the response.

        Returns:
            So many bytes of the piece may leave as they are, and behind them these.

        Raises:
            WeirError: it cannot be read, or names a broker that we cannot stand for.
        """
        self._left -= len(piece)
        pos = 0
        while self._read is not None:
            step = min(self._skip, len(piece) - pos)
            pos += step
            self._skip -= step
            if pos == len(piece):
                if not self._left:
                    raise BadFrame(Reason.TRUNCATED_BODY)
                return pos, b""
            pos = self._step(piece, pos)
        return self._end(piece, pos)

    def _step(self, piece: bytes | bytearray | memoryview, pos: int) -> int:
        """Read on at a place of the piece; returns where it ended, all of the piece if more is needed."""
        assert self._read is not None
        begun = self._begun
        for seen in (_LOOK_BYTES, PART_MAX_BYTES):
            here = begun + bytes(piece[pos : pos + seen])
            cursor = Cursor(here, 0, True)
            try:
                self._read(cursor)
            except BadFrame as bad:
                if bad.reason is not Reason.TRUNCATED_BODY:
                    raise
                if pos + seen >= len(piece):
                    break
            else:
                self._begun = b""
                return pos + cursor.offset - len(begun)
        if not self._left or len(here) >= PART_MAX_BYTES:
            raise BadFrame(Reason.TRUNCATED_BODY)
        self._begun = here
        return len(piece)

    def _read_head(self, cursor: Cursor) -> None:
        cursor.skip(CORRELATION_BYTES)
        cursor.skip_tags()
        cursor.skip(4 + 2 + 4)  # throttle time, error code, session id
        self._topics = max(0, cursor.uvarint() - 1)
        self._next_topic()

    def _next_topic(self) -> None:
        self._read = self._read_topic if self._topics else None
        self._topics -= 1

    def _read_topic(self, cursor: Cursor) -> None:
        cursor.skip(len(fields.NO_ID))
        self._partitions = max(0, cursor.uvarint() - 1)
        self._next_partition()

    def _next_partition(self) -> None:
        self._read = self._read_partition if self._partitions else self._read_topic_end
        self._partitions -= 1

    def _read_partition(self, cursor: Cursor) -> None:
        # Index, error, high watermark, last stable and log start offset.
        cursor.skip(4 + 2 + 8 + 8 + 8)
        aborted = max(0, cursor.uvarint() - 1)
        if aborted:
            self._aborted, self._read = aborted, self._read_aborted
        else:
            self._read_records(cursor)

    def _read_aborted(self, cursor: Cursor) -> None:
        cursor.skip(8 + 8)  # producer id, first offset
        cursor.skip_tags()
        self._aborted -= 1
        if not self._aborted:
            self._read = self._read_records

    def _read_records(self, cursor: Cursor) -> None:
        cursor.skip(4)  # preferred read replica
        self._skip = max(0, cursor.uvarint() - 1)
        self._read = self._read_partition_end

    def _read_partition_end(self, cursor: Cursor) -> None:
        cursor.skip_tags()
        self._next_partition()

    def _read_topic_end(self, cursor: Cursor) -> None:
        cursor.skip_tags()
        self._next_topic()

    def _end(self, piece: bytes | bytearray | memoryview, pos: int) -> tuple[int, bytes]:
        """The tagged fields at the end: they leave when all of them are here."""
        if len(self._begun) + len(piece) - pos + self._left > PART_MAX_BYTES:
            raise BadFrame(Reason.TOO_LARGE)
        self._begun += bytes(piece[pos:])
        if self._left:
            return pos, b""
        came = self._begun
        left = self._rewrite(_EMPTY + came)[len(_EMPTY) :]
        return pos, left if left == came else fitted(left, len(came))


def fitted(tags: bytes, size: int) -> bytes:
    """A tagged section in so many bytes: as it is and room behind it, or else nothing but room.

    Args:
        tags: the section.
        size: at least 3, as one with a field has.
    """
    spare = size - len(tags)
    if not spare:
        return tags
    behind = _room(_UNKNOWN_TAG, spare)
    if behind is not None and tags[:1] == b"\1":
        return b"\2" + tags[1:] + behind
    alone = _room(_UNKNOWN_TAG, size - 1)
    if alone is not None:
        return b"\1" + alone
    # Where a length takes a byte more, one field is out of reach of some sizes; two of them are not.
    for shorter in (2, 3):
        first, second = _room(_UNKNOWN_TAG - 1, shorter), _room(_UNKNOWN_TAG, size - 1 - shorter)
        if first is not None and second is not None:
            return b"\2" + first + second
    raise BadFrame(Reason.BAD_VALUE)


def _room(tag: int, size: int) -> bytes | None:
    """A tagged field of so many bytes, which a receiver that does not know it steps over; None: none has."""
    for length_bytes in range(1, 5):
        content = size - 1 - length_bytes
        if content >= 0 and len(length := fields.uvarint(content)) == length_bytes:
            return bytes((tag,)) + length + bytes(content)
    return None
