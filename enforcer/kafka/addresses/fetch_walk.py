"""A Fetch response, version 16 or later, that passes while it comes: only what lies between records is read.

Behind the records may stand addresses of new leaders, in a tagged field at the very end. Ours take another
number of bytes, but the length of the response has left by then: so they are put in where they fit, else they
are left out, as they are where they are too many to be kept. A client that is not told them asks for
Metadata, as it does of a broker that leaves them out.

By hand: the codec reads what is whole, so that a response of 50 MB would be kept before any of it leaves. One
of 500 partitions takes 1 ms this way in pieces of 64 KiB, by the codec 0.2 ms once all of it is there.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Final

from enforcer.wire.kafka import frames
from enforcer.wire.kafka.frames import CORRELATION_BYTES, TAGS_MAX, BadFrame, Reason

END_MAX_BYTES: Final = 65_536
"""The longest tagged section at the end that is kept to be changed: the addresses of a thousand brokers.
Of a longer one nothing leaves but room."""

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

    __slots__ = ("_blank", "_came", "_end_at", "_left", "_piece", "_pos", "_rewrite", "_skip", "_way")

    def __init__(self, size: int, rewrite: Rewrite) -> None:
        self._rewrite = rewrite
        # Bytes still to come, and how many of them need not be looked at.
        self._left, self._skip = size, 0
        self._piece: bytes | bytearray | memoryview = b""
        self._pos = 0
        self._way = self._through()
        # Where the tagged section at the end begins in this piece; None: it has not. What has come of it. If
        # it is too long to be kept, what leaves for it, byte for byte: nothing but room, zeros behind this.
        self._end_at: int | None = None
        self._came = b""
        self._blank: bytes | None = None

    @property
    def unread(self) -> int:
        """Bytes that come next and need not be looked at."""
        return self._skip if self._end_at is None else 0

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
        self._piece, self._pos = piece, 0
        self._end_at = None if self._end_at is None else 0
        whole = next(self._way, True)
        self._piece = b""
        # What stands behind the end leaves as it came, as it does of a response that comes whole.
        if self._pos < len(piece) and self._blank is not None:
            raise BadFrame(Reason.BAD_VALUE)
        if not (self._left or whole):
            raise BadFrame(Reason.TRUNCATED_BODY)
        if self._end_at is None:
            return len(piece), b""
        return self._end_at, self._leaving(bytes(piece[self._end_at :]))

    def _leaving(self, end: bytes) -> bytes:
        """What leaves for the next bytes of the end: all at once when it is here, unless it is too long."""
        if self._blank is not None:
            begin, self._blank = self._blank[: len(end)], self._blank[len(end) :]
            return begin + bytes(len(end) - len(begin))
        self._came += end
        if self._left:
            return b""
        ours = self._rewrite(_EMPTY + self._came)[len(_EMPTY) :]
        return ours if ours == self._came else fitted(ours, len(self._came))

    def _through(self) -> Iterator[None]:
        """All of the response; halts where the piece ends."""
        yield from self._tags(CORRELATION_BYTES)
        # Throttle time, error code, session id.
        for _ in range((yield from self._number(4 + 2 + 4)) - 1):
            for _ in range((yield from self._number(len(frames.NO_ID))) - 1):
                # Index, error, high watermark, last stable and log start offset.
                aborted = (yield from self._number(4 + 2 + 8 + 8 + 8)) - 1
                for _ in range(aborted):
                    tags_at = self._pos + _ABORTED_BYTES
                    if tags_at < len(self._piece) and not self._piece[tags_at]:
                        # There may be thousands, nearly always without tags.
                        self._pos = tags_at + 1
                    else:
                        yield from self._tags(_ABORTED_BYTES)
                records = (yield from self._number(4)) - 1  # preferred read replica
                yield from self._tags(max(0, records))
            yield from self._tags()
        size = len(self._piece) - self._pos + self._left
        self._end_at = self._pos
        self._blank = _blank_head(size) if size > END_MAX_BYTES else None
        yield from self._tags()

    def _tags(self, before: int = 0) -> Iterator[None]:
        """Go over so many bytes and the tagged section behind them."""
        count = yield from self._number(before)
        if count > TAGS_MAX:
            raise BadFrame(Reason.TOO_MANY_ITEMS)
        for _ in range(count):
            yield from self._number()
            yield from self._over((yield from self._number()))

    def _number(self, before: int = 0) -> Generator[None, None, int]:
        """Go over so many bytes and the number behind them, an unsigned varint."""
        yield from self._over(before)
        value = 0
        for shift in range(0, 5 * 7, 7):
            while self._pos == len(self._piece):
                yield
            byte = self._piece[self._pos]
            self._pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise BadFrame(Reason.BAD_VARINT)

    def _over(self, count: int) -> Iterator[None]:
        """Go over bytes that need not be here yet."""
        self._skip = count
        if count > len(self._piece) - self._pos + self._left:
            raise BadFrame(Reason.TRUNCATED_BODY)
        while self._skip:
            step = min(self._skip, len(self._piece) - self._pos)
            self._pos += step
            self._skip -= step
            if self._skip:
                yield


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
