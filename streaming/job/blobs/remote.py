"""Segments beside a checkpoint that is far away: written there, read from this machine's cache."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from streaming.contract.errors import StateError
from streaming.job.blobs.cache import SegmentCache
from streaming.job.blobs.files import Files, insist
from streaming.job.blobs.local import SUFFIX, digest
from streaming.job.spark.counts import Totals
from streaming.state.body import unpacked

WRITTEN: Final = "written"
FETCHED: Final = "fetched"
CACHED: Final = "cached"
DELETED: Final = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBlobStores:
    """The segments of a checkpoint.

    Attributes:
        files: the file system, as `Files` knows it.
        root: path of the folder of all segments there.
        uri: the same for people.
        cache: where a machine keeps what it has read and written.
        batches_kept: how many batches back Spark may ask for the state again.
        limit_s: for writing, reading or deleting one segment, all attempts together, s.
    """

    files: Files
    root: str
    uri: str
    cache: SegmentCache
    batches_kept: int
    limit_s: float

    def of(self, law: str, shard: int) -> "RemoteBlobStore":
        """Those of one shard."""
        return RemoteBlobStore(self, f"{law}-{shard}", self.batches_kept)


@dataclass(frozen=True, slots=True)
class RemoteBlobStore:
    """The segments of one shard, a file each, named after its content.

    Attributes:
        stores: of the checkpoint.
        folder: name of the shard's folder.
        batches_kept: how many batches back Spark may ask for the state again.
        traffic: counts what is done.
    """

    stores: RemoteBlobStores
    folder: str
    batches_kept: int
    traffic: Totals = field(default_factory=Counter)

    def put(self, content: bytes) -> str:
        """Keep `content`; the name is its digest, and is given once the file is there for good.

        What is there already is written again: it is the same, and asking first would cost as much.

        Raises:
            StateError: it cannot be written.
        """
        name = digest(content)
        files, path = self.stores.files, self._path(name)
        insist(lambda: files.write(path, content), self._uri(name), "written", self.stores.limit_s)
        self.stores.cache.keep(name, content)
        self._count(WRITTEN, len(content))
        return name

    def get(self, name: str, *, remember: bool = True) -> pa.RecordBatch:
        """The rows of this name, fetched if this machine does not have them, mapped into memory.

        Args:
            name: of the segment.
            remember: what has to be fetched is kept.

        Raises:
            StateError: the file is missing or damaged, or cannot be read.
        """
        rows = self.stores.cache.find(name, remember=remember)
        if rows is not None:
            self._count(CACHED, rows.nbytes)
            return rows
        content = self._fetched(name)
        if remember:
            self.stores.cache.keep(name, content)
            # In place of the copy in memory, which would stay as long as the rows do.
            rows = self.stores.cache.find(name, remember=True)
        return rows or unpacked(content)

    def drop(self, name: str) -> None:
        """Delete the file of this name there. What is here another shard may use, and it grows old.

        Raises:
            StateError: it cannot be deleted: else it would stay for ever, since nobody names it any more.
        """
        files, path = self.stores.files, self._path(name)
        insist(lambda: files.delete(path), self._uri(name), "deleted", self.stores.limit_s)
        self._count(DELETED, 0)

    def _fetched(self, name: str) -> pa.Buffer:
        files, path, uri = self.stores.files, self._path(name), self._uri(name)
        content = insist(lambda: files.read(path), uri, "read", self.stores.limit_s)
        if digest(content) != name:
            raise StateError(
                f"{uri} does not hold what its name says; the checkpoint is damaged: bring it back from a "
                "backup, or begin anew with another job.checkpoint_dir"
            )
        self._count(FETCHED, len(content))
        return content

    def _count(self, what: str, size: int) -> None:
        self.traffic["segments", what] += 1
        self.traffic["segment_bytes", what] += size

    def _path(self, name: str) -> str:
        return f"{self.stores.root}/{self.folder}/{name}{SUFFIX}"

    def _uri(self, name: str) -> str:
        return f"{self.stores.uri}/{self.folder}/{name}{SUFFIX}"
