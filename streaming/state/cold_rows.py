"""Rows that rest: immutable pieces of a table, kept beside the state and not in it.

Carrying a byte through Spark's state row costs about 45 ns of processor time a batch, whether it changed or
not (docs/decisions.md, "State"). So rows that a batch does not touch are not in the body. They lie in
segments: Arrow record batches in files named after their content, sorted by a hash of the subject. A batch
looks its subjects up, takes the rows that it finds and marks them as gone; the body holds the segments'
names and one bit a row.

A row is in one place only: in the table, or in one segment with its bit set. What a body says is therefore
complete, and a batch that is run again with the same body finds the same rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from streaming.columns.byte_strings import SEED, Bytes, Integers, bytes_in, mixed
from streaming.columns.compiled import compiled
from streaming.contract.errors import StateError
from streaming.state.blob_store import NO_BLOB_STORE, BlobStore, DiscardedNames
from streaming.state.body import Body, decode, encode, packed, reading
from streaming.state.subject_table import places_in

Columns = Mapping[str, pa.Array]
Flags = NDArray[np.bool_]
Hashes = NDArray[np.uint32]

FANOUT: Final = 4
"""Segments of one size before they become one: a row is written again about log4(rows / FIRST_ROWS) times."""
FIRST_ROWS: Final = 4096
"""Segments of up to so many rows are of the smallest size; each further size is FANOUT times as large."""
_HASH: Final = "hash"
_SUBJECT: Final = "subject"
_STATE: Final = ("name", "rows", "live")


@dataclass(slots=True)
class _Segment:
    """One segment: its name on the blob store, and which of its rows are still there."""

    name: str
    live: Flags

    @property
    def rows(self) -> int:
        return int(np.count_nonzero(self.live))

    @property
    def size(self) -> int:
        """Number of the size class; -1: more than half is gone, so it is due to be written anew."""
        rows, size = self.rows, 0
        if 2 * rows < len(self.live):
            return -1
        while rows > FIRST_ROWS * FANOUT**size:
            size += 1
        return size

    def without(self, here: Integers, rows: pa.RecordBatch) -> Columns:
        """Some of its rows, of which it is rid."""
        self.live[here] = False
        return _columns(rows.take(pa.array(here)))


class ColdRows:
    """The cold rows of a shard.

    Args:
        raw: what `to_bytes` gave; None: none rest.
        blobs: where segments lie; None: nowhere, so no row can rest.

    Raises:
        StateError: it cannot be read, or rows rest on a blob store that there is not.
    """

    @reading()
    def __init__(self, raw: bytes | None = None, blobs: BlobStore | None = None) -> None:
        self._blobs = blobs
        self._segments: list[_Segment] = []
        self._discarded = DiscardedNames()
        if raw is None:
            return
        body = decode(raw)
        self._discarded = DiscardedNames(int(body.notes["batch"]), orjson.loads(body.notes["dropped"]))
        for name, rows, live in zip(*(body.columns[key].to_pylist() for key in _STATE), strict=True):
            if len(live) != -(-rows // 8):
                raise ValueError(f"{len(live)} bytes for {rows} rows")
            bits = np.unpackbits(np.frombuffer(live, dtype=np.uint8), count=rows)
            self._segments.append(_Segment(name, bits.view(np.bool_)))
        if self._segments and blobs is None:
            raise StateError(NO_BLOB_STORE)

    def __len__(self) -> int:
        return sum(segment.rows for segment in self._segments)

    @property
    def used(self) -> bool:
        """Whether there is anything to remember: segments, or dropped ones that are not deleted yet."""
        return bool(self._segments or self._discarded.names)

    @property
    def segments(self) -> list[str]:
        """Names of those that hold rows."""
        return [segment.name for segment in self._segments]

    @property
    def possible(self) -> bool:
        """Whether there is a place where rows can rest."""
        return self._blobs is not None

    def to_bytes(self) -> bytes:
        """All of it, for the body; ends the batch: what long ago was dropped is now deleted."""
        self._discarded.end_batch(self._blobs)
        live = [np.packbits(segment.live).tobytes() for segment in self._segments]
        columns = {
            "name": pa.array([segment.name for segment in self._segments], type=pa.string()),
            "rows": pa.array([len(segment.live) for segment in self._segments], type=pa.int64()),
            "live": pa.array(live, type=pa.binary()),
        }
        gone = self._discarded
        notes = {"batch": b"%d" % gone.batch, "dropped": orjson.dumps(gone.names)}
        return encode(Body(columns=columns, notes=notes))

    def add(self, columns: Columns) -> None:
        """Lay rows to rest; none of their subjects may rest already.

        Args:
            columns: `subject` (text) and others, of one length.
        """
        if not len(columns[_SUBJECT]):
            return
        text, ends = bytes_in(columns[_SUBJECT])
        hashes = np.empty(len(ends) - 1, dtype=np.uint32)
        _hash_all(text, ends, hashes)
        self._append(pa.RecordBatch.from_pydict({_HASH: pa.array(hashes), **columns}))
        self._merge()

    def take(self, names: pa.Array) -> list[Columns]:
        """Take out the rows of these subjects, as far as they rest here: columns, a mapping a segment."""
        text, ends = bytes_in(names)
        hashes = np.empty(len(names), dtype=np.uint32)
        _hash_all(text, ends, hashes)
        # In the order of the hashes neighbours are found in the same pages.
        asked = np.argsort(hashes, kind="stable")
        taken: list[Columns] = []
        for segment in reversed(self._segments):
            if not len(asked):
                break
            rows = self._rows(segment)
            found = _find(rows, segment.live, hashes[asked], names.take(pa.array(asked)))
            here = found[found >= 0]
            if len(here):
                taken.append(segment.without(here, rows))
                asked = asked[found < 0]
        self._drop_empty()
        return taken

    def take_where(self, which: Callable[[Columns], Flags]) -> list[Columns]:
        """Take out rows: `which` tells of a segment's columns, of rows that are gone too, those to take."""
        taken: list[Columns] = []
        for segment in reversed(self._segments):
            rows = self._rows(segment)
            here = np.flatnonzero(segment.live & which(_columns(rows)))
            if len(here):
                taken.append(segment.without(here, rows))
        self._drop_empty()
        return taken

    def keep(self, which: Callable[[Columns], Flags]) -> None:
        """Let rows go: `which` tells of a segment's columns the rows to keep."""
        for segment in self._segments:
            segment.live &= which(_columns(self._rows(segment)))
        self._drop_empty()
        self._merge()

    def rewrite(self, change: Callable[[Columns], Columns]) -> None:
        """Change rows, but not their subjects: `change` gets and returns the columns of some of them."""
        for number, segment in enumerate(self._segments):
            rows = self._live_rows(segment)
            columns = {_HASH: rows.column(_HASH), **change(_columns(rows))}
            self._discarded.add(segment.name)
            self._segments[number] = self._written(pa.RecordBatch.from_pydict(columns))

    def _merge(self) -> None:
        """Make one of every FANOUT segments of a size, and write those anew that are mostly gone."""
        while True:
            sizes = [segment.size for segment in self._segments]
            due = [s for s in sorted(set(sizes)) if s < 0 or sizes.count(s) >= FANOUT]
            if not due:
                return
            chosen = [g for g, size in zip(self._segments, sizes, strict=True) if size == due[0]]
            pieces = pa.concat_batches([self._live_rows(segment) for segment in chosen])
            for segment in chosen:
                self._discarded.add(segment.name)
            self._segments = [g for g, size in zip(self._segments, sizes, strict=True) if size != due[0]]
            self._append(pieces)

    def _append(self, rows: pa.RecordBatch) -> None:
        order = np.argsort(rows.column(_HASH).to_numpy(), kind="stable")
        self._segments.append(self._written(rows.take(pa.array(order))))

    def _written(self, rows: pa.RecordBatch) -> _Segment:
        assert self._blobs is not None
        name = self._blobs.put(packed(rows))
        self._discarded.use(name)
        return _Segment(name, np.ones(rows.num_rows, dtype=np.bool_))

    def _rows(self, segment: _Segment) -> pa.RecordBatch:
        assert self._blobs is not None
        return self._blobs.get(segment.name)

    def _live_rows(self, segment: _Segment) -> pa.RecordBatch:
        return self._rows(segment).filter(pa.array(segment.live))

    def _drop_empty(self) -> None:
        for segment in self._segments:
            if not segment.live.any():
                self._discarded.add(segment.name)
        self._segments = [segment for segment in self._segments if segment.live.any()]


def _columns(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return {name: rows.column(name) for name in rows.schema.names if name != _HASH}


def _find(rows: pa.RecordBatch, live: Flags, hashes: Hashes, names: pa.Array) -> Integers:
    """Number of the live row of each name, -1 where there is none.

    Of rows with its hash by the name itself: clients choose names, also thousands with one hash.
    """
    own, asked = rows.column(_HASH).to_numpy(), np.unique(hashes)
    first, last = np.searchsorted(own, asked), np.searchsorted(own, asked, side="right")
    sizes = last - first
    near = np.repeat(first - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    near = near[live[near]]
    places = places_in(rows.column(_SUBJECT).take(pa.array(near)), names)
    return np.append(near, -1)[places]


@compiled
def _hash_all(text: Bytes, ends: Integers, hashes: Hashes) -> None:
    for number in range(len(hashes)):
        hashes[number] = mixed(SEED, text, ends[number], ends[number + 1])
