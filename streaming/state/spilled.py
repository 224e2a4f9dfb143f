"""A shard's body as Spark carries it: what is large lies on the blob store, and only its name is carried.

Carrying a megabyte costs 45 ms of processor time a batch, changed or not (docs/decisions.md, "State"). A body
has parts: the law's columns together, and each note. A part beyond SHELF_BYTES becomes a file named after its
content, so a part that a batch does not change is not even written again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson
import pyarrow as pa
from cachetools import LRUCache

from streaming.contract.errors import StateError
from streaming.state.blob_store import NO_BLOB_STORE, BlobStore, DiscardedNames
from streaming.state.body import Body, decode, encode, packed, reading

BLOB_BYTES: Final = 256 * 2**10
"""A part of so many bytes or more goes to the blob store: carrying it would cost 12 ms, a file costs 1."""
NOTES_BYTES: Final = 64 * 2**20
"""Of large notes that a worker keeps: policies, which many shards have alike, and which are parsed once."""
_COLUMNS: Final = ""
"""Name of the part that is the columns; notes have names."""
_IN_BLOBS: Final = "in_blobs"

_notes: LRUCache[str, bytes] = LRUCache(NOTES_BYTES, getsizeof=lambda note: min(NOTES_BYTES, len(note)))
"""By the name of their content, which never changes; one that is larger than the bound is kept alone."""


@dataclass(slots=True)
class SpilledBody:
    """A body as it was read, so that what stays the same stays where it lies.

    Attributes:
        body: the whole of it.
        names: of the parts that lie on the blob store.
        discarded: names that it mentions no more.
    """

    body: Body = field(default_factory=lambda: Body(columns={}, notes={}))
    names: dict[str, str] = field(default_factory=dict)
    discarded: DiscardedNames = field(default_factory=DiscardedNames)

    @classmethod
    @reading()
    def of(cls, raw: bytes | None, blobs: BlobStore | None) -> "SpilledBody":
        """What `to_bytes` wrote; None: the shard has no state yet.

        Raises:
            StateError: it cannot be read.
        """
        if raw is None:
            return cls()
        body = decode(raw)
        notes = dict(body.notes)
        names, batch, gone = orjson.loads(notes.pop(_IN_BLOBS, b"[{},0,[]]"))
        if names and blobs is None:
            raise StateError(NO_BLOB_STORE)
        columns = body.columns
        for part, name in names.items():
            assert blobs is not None
            if part == _COLUMNS:
                # Large parts of bodies are new in each batch.
                rows = blobs.get(name, remember=False)
                columns = dict(zip(rows.schema.names, rows.columns, strict=True))
            else:
                notes[part] = _note(name, blobs)
        return cls(Body(columns=columns, notes=notes), names, DiscardedNames(batch, gone))

    def to_bytes(self, after: Body, blobs: BlobStore | None) -> bytes:
        """The body after a batch.

        Raises:
            StateError: it cannot be kept.
        """
        if blobs is None:
            return encode(after)
        names: dict[str, str] = {}
        notes = dict(after.notes)
        columns = after.columns
        if sum(column.nbytes for column in columns.values()) >= BLOB_BYTES:
            same = _are_same(columns, self.body.columns)
            names[_COLUMNS] = self._put(_COLUMNS, same, columns, blobs)
            columns = {}
        for part, note in after.notes.items():
            if len(note) >= BLOB_BYTES:
                same = note is self.body.notes.get(part)
                names[part] = self._put(part, same, {part: pa.array([note], pa.large_binary())}, blobs)
                # Most often it is this worker that reads it in the next batch.
                _notes[names[part]] = note
                del notes[part]
        for name in {*self.names.values()} - {*names.values()}:
            self.discarded.add(name)
        self.discarded.end_batch(blobs)
        if names or self.discarded.names:
            gone = self.discarded
            notes[_IN_BLOBS] = orjson.dumps([names, gone.batch, gone.names])
        return encode(Body(columns=columns, notes=notes))

    def _put(self, part: str, same: bool, columns: Mapping[str, pa.Array], blobs: BlobStore) -> str:
        if same and part in self.names:
            return self.names[part]
        name = blobs.put(packed(pa.RecordBatch.from_pydict(dict(columns))))
        self.discarded.use(name)
        return name


def _are_same(columns: Mapping[str, pa.Array], others: Mapping[str, pa.Array]) -> bool:
    """Whether these are the very arrays that were read: nobody has touched them."""
    return columns.keys() == others.keys() and all(column is others[name] for name, column in columns.items())


def _note(name: str, blobs: BlobStore) -> bytes:
    """A large note; one object for all shards, so that what was read from it is found at once."""
    note = _notes.get(name)
    if note is None:
        note = _notes[name] = bytes(blobs.get(name, remember=False).column(0)[0].as_py())
    return note
