"""Segments of cold rows and large parts of bodies as files beside the checkpoint (`state.cold_rows` and
`state.spilled` say what they are).
"""

import hashlib
import os
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
from cachetools import LRUCache

from streaming.contract.errors import StateError
from streaming.state.body import unpacked

MAPPED_MAX: Final = 256
"""Segments that a worker keeps mapped; more are mapped anew when they are asked for."""
SUFFIX: Final = ".arrow"
LEFT_S: Final = 3600.0
"""What was half written so long ago nobody writes any more."""
MAPPED: Final[LRUCache[str, pa.RecordBatch]] = LRUCache(MAPPED_MAX)
CHECKED: Final[LRUCache[str, tuple[int, int, int]]] = LRUCache(MAPPED_MAX)
"""Files that this process wrote last: what it reads back in the next batch need not be digested again."""


def segments_folder(checkpoint: Path) -> Path:
    """The folder of all segments of a checkpoint: in it, so that whoever copies one has both."""
    return checkpoint / "segments"


@dataclass(frozen=True, slots=True)
class FileBlobStore:
    """The segments of a checkpoint, or of one of its shards, a file each, named after its content.

    A file appears whole (it is renamed into place) and never changes, so tasks that are tried again, run
    twice or in another process see the same rows. It is on the disk, and its name too, before anybody learns
    the name: a checkpoint that outlives a power cut names nothing that did not.

    Attributes:
        folder: where they lie, of a checkpoint a folder for each shard; driver and executors share it.
        batches_kept: how many batches back Spark may ask for the state again.
    """

    folder: Path
    batches_kept: int

    def of(self, law: str, shard: int) -> "FileBlobStore":
        """Those of one shard."""
        return replace(self, folder=self.folder / f"{law}-{shard}")

    def tidy(self) -> None:
        """Delete what workers that were killed had half written, of all shards."""
        with suppress(OSError):
            for hidden in self.folder.glob("*/.*"):
                # One that is renamed meanwhile ends nothing.
                with suppress(OSError):
                    if time.time() - hidden.stat().st_mtime > LEFT_S:
                        hidden.unlink()

    def put(self, content: bytes) -> str:
        """Keep `content`; the name is its digest.

        Raises:
            StateError: it cannot be written.
        """
        name = digest(content)
        path = self.folder / f"{name}{SUFFIX}"
        try:
            if not path.exists():
                _make(self.folder)
                _write(path, content)
                CHECKED[str(path)] = version(path)
            # Of a file that was there too: whoever put it may have been stopped before this.
            _sync(self.folder)
        except OSError as error:
            raise StateError(f"a segment of the state cannot be written: {error}") from error
        return name

    def get(self, name: str, *, remember: bool = True) -> pa.RecordBatch:
        """The rows of this name, mapped into memory; `remember`: they are kept mapped.

        Raises:
            StateError: the file is missing or damaged.
        """
        path = str(self.folder / f"{name}{SUFFIX}")
        # Content never changes under a name, so what was read and checked once stays good.
        if remember and (known := MAPPED.get(path)) is not None:
            return known
        try:
            rows = mapped(path)
        except (OSError, ValueError) as error:
            said = f"a segment of the state is missing ({error}); the checkpoint is damaged"
            raise StateError(said) from error
        if rows is None:
            said = f"the segment {path} does not hold what its name says; the checkpoint is damaged"
            raise StateError(said)
        if remember:
            MAPPED[path] = rows
        return rows

    def drop(self, name: str) -> None:
        """Delete the file of this name, if it is there.

        Raises:
            StateError: it cannot be deleted: else it would stay for ever, since nobody names it any more.
        """
        try:
            (self.folder / f"{name}{SUFFIX}").unlink(missing_ok=True)
        except OSError as error:
            raise StateError(f"a segment of the state cannot be deleted: {error}") from error
        let_go()


def let_go() -> None:
    """Map no file that is gone, whoever deleted it: the disk gets the room back that nobody has mapped."""
    for path in [path for path in MAPPED if not os.path.exists(path)]:
        del MAPPED[path]


def mapped(path: str) -> pa.RecordBatch | None:
    """The rows of a file; None if it does not hold what its name says.

    Raises:
        OSError, ValueError: it is not there.
    """
    known = version(path)
    if not known[1]:
        return None
    with pa.memory_map(os.fsencode(path)) as file:
        content = file.read_buffer()
    if CHECKED.get(path) != known and digest(content) != Path(path).stem:
        return None
    return unpacked(content)


def version(path: str | Path) -> tuple[int, int, int]:
    """What changes when a file is written to or another takes its place."""
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns


def _write(path: Path, content: bytes) -> None:
    """Give a file its name once all of its bytes are on the disk."""
    # Not by the process's number: those of two containers on one folder may be the same.
    hidden = path.with_name(f".{path.stem}.{uuid4().hex}")
    try:
        with hidden.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(hidden, path)
    except OSError:
        with suppress(OSError):
            hidden.unlink(missing_ok=True)
        raise


def _make(folder: Path) -> None:
    """Make a folder and those above it, each entered in its parent for good."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def digest(content: bytes | pa.Buffer) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
