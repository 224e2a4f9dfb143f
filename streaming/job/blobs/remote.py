"""Segments beside a checkpoint that is far away: written there, read from this machine's cache."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar

import pyarrow as pa

from streaming.contract.errors import StateError
from streaming.job.blobs.cache import SegmentCache
from streaming.job.blobs.local import SUFFIX, digest
from streaming.job.spark.counts import Totals
from streaming.state.body import unpacked

WRITTEN: Final = "written"
FETCHED: Final = "fetched"
CACHED: Final = "cached"
DELETED: Final = "deleted"
ATTEMPTS_MIN: Final = 4
"""One attempt may take this part of the limit, so that one hanging connection does not use all of it."""
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_DAMAGED: Final = (
    "the checkpoint is damaged: bring it back from a backup, or begin anew with another job.checkpoint_dir"
)
Answer = TypeVar("Answer")


class Files(Protocol):
    """Whole files by their paths, far away. Each call ends within the implementation's own time limit.

    Raises:
        FileNotFoundError, PermissionError: asking again is of no use.
        OSError: it may be another time.
    """

    def write(self, path: str, content: bytes) -> None:
        """Have a file with this content: whole and for good when it returns, and never half of it."""

    def read(self, path: str) -> pa.Buffer:
        """The content of a file."""

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteBlobStore:
    """The segments of a checkpoint, or of one of its shards, a file each, named after its content.

    Attributes:
        files: the file system, as `Files` knows it.
        root: path of their folder there.
        uri: the same for people.
        cache: where a machine keeps what it has read and written.
        batches_kept: how many batches back Spark may ask for the state again.
        limit_s: for writing, reading or deleting one segment, all attempts together, s.
        traffic: counts what is done.
    """

    files: Files
    root: str
    uri: str
    cache: SegmentCache
    batches_kept: int
    limit_s: float
    traffic: Totals = field(default_factory=Counter)

    def of(self, law: str, shard: int) -> "RemoteBlobStore":
        """Those of one shard."""
        root, uri = (f"{where}/{law}-{shard}" for where in (self.root, self.uri))
        return replace(self, root=root, uri=uri, traffic=Counter())

    def put(self, content: bytes) -> str:
        """Keep `content`; the name is its digest, and is given once the file is there for good.

        What is there already is written again: it is the same, and asking first would cost as much.

        Raises:
            StateError: it cannot be written.
        """
        name = digest(content)
        self._insist(name, "written", lambda path: self.files.write(path, content))
        self.cache.keep(name, content)
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
        rows = self.cache.find(name, remember=remember)
        if rows is not None:
            self._count(CACHED, rows.nbytes)
            return rows
        content = self._fetched(name)
        if remember:
            self.cache.keep(name, content)
            # In place of the copy in memory, which would stay as long as the rows do.
            rows = self.cache.find(name, remember=True)
        return rows or unpacked(content)

    def drop(self, name: str) -> None:
        """Delete the file of this name there. What is here another shard may use, and it grows old.

        Raises:
            StateError: it cannot be deleted: else it would stay for ever, since nobody names it any more.
        """
        self._insist(name, "deleted", self.files.delete)
        self._count(DELETED, 0)

    def _fetched(self, name: str) -> pa.Buffer:
        content = self._insist(name, "read", self.files.read)
        if digest(content) != name:
            raise StateError(f"{self._uri(name)} does not hold what its name says; {_DAMAGED}")
        self._count(FETCHED, len(content))
        return content

    def _count(self, what: str, size: int) -> None:
        self.traffic["segments", what] += 1
        self.traffic["segment_bytes", what] += size

    def _insist(self, name: str, what: str, ask: Callable[[str], Answer]) -> Answer:
        """Ask of a segment until it works, is refused, or `limit_s` is nearly over.

        Args:
            name: of the segment.
            what: is done to it, for people.
            ask: one attempt at its path, which takes at most a part (ATTEMPTS_MIN) of the limit.

        Raises:
            StateError: it did not work; names the URI and what to do.
        """
        begun, pause_s = time.monotonic(), _FIRST_PAUSE_S
        uri = self._uri(name)
        while True:
            try:
                return ask(f"{self.root}/{name}{SUFFIX}")
            except FileNotFoundError as error:
                raise StateError(f"{uri} is missing ({error}); {_DAMAGED}") from error
            except PermissionError as error:
                right = "give the job's user the right to read, write and delete there"
                raise StateError(f"{uri} may not be {what}: {error}; {right}") from error
            except OSError as error:
                # The next attempt must end within the limit.
                if time.monotonic() - begun + pause_s > self.limit_s * (1 - 1 / ATTEMPTS_MIN):
                    raise StateError(
                        f"{uri} could not be {what} within {self.limit_s:g} s: {error}; see that its file"
                        " system answers, then start the job again: it goes on where it was"
                    ) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _uri(self, name: str) -> str:
        return f"{self.uri}/{name}{SUFFIX}"
