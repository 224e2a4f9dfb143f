"""Segments of a remote checkpoint on this machine's disk: fetched once, then mapped as local ones are.

All workers of a machine share the folder. Names are digests of the content, so several jobs may share it, and
what is lost or damaged is fetched again. Nothing in it has to last.
"""

import errno
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from streaming.contract.errors import StateError
from streaming.job.blobs.local import CHECKED, MAPPED, SUFFIX, let_go, mapped, version

_PART: Final = ".part"
_LOCK: Final = ".lock"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_LOCK_LIMIT_S: Final = 2.0
_POLL_S: Final = 0.01


def default_folder() -> Path:
    """Of this user, in the folder for temporary files."""
    return Path(tempfile.gettempdir()) / f"weir-segments-{os.getuid()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentCache:
    """The folder.

    Attributes:
        folder: made if it is not there, for this user alone; None: `default_folder` of whoever uses it.
        limit_bytes: of all files in it. What was not used for longest is deleted for what is new.
    """

    folder: Path | None
    limit_bytes: int

    def find(self, name: str, *, remember: bool) -> pa.RecordBatch | None:
        """The rows of this name, mapped into memory; None: not here, or no more what it was.

        Args:
            name: of the segment.
            remember: keep it mapped, since it will be asked for again.

        Raises:
            StateError: the folder cannot be used.
        """
        path = self._path(name)
        rows = MAPPED.get(str(path))
        try:
            if rows is None:
                rows = mapped(str(path))
            # The newest are those that were used last, by any worker. Not before: CHECKED knows the time.
            os.utime(path)
        except FileNotFoundError:
            # Deleted for others: whoever has it mapped lets go of it, so that the disk gets its room back.
            MAPPED.pop(str(path), None)
            return rows
        except OSError as error:
            raise self._unusable(error) from error
        if rows is None:
            path.unlink(missing_ok=True)
        elif remember:
            MAPPED[str(path)] = rows
        return rows

    def keep(self, name: str, content: bytes | pa.Buffer) -> None:
        """Have this content here, if there is room for it and nobody holds the lock too long.

        Raises:
            StateError: the folder cannot be used.
        """
        if len(content) > self.limit_bytes:
            return
        path = self._path(name)
        try:
            hidden = path.with_suffix(_PART)
            with self._locked(path.parent) as mine:
                if mine and not path.exists():
                    self._make_room(path.parent, len(content))
                    with hidden.open("wb") as file:
                        file.write(content)
                    os.replace(hidden, path)
                    CHECKED[str(path)] = version(path)
        except OSError as error:
            # A disk that others have filled must not end the job: nothing here has to last.
            if error.errno not in _FULL:
                raise self._unusable(error) from error
            hidden.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return (self.folder or default_folder()) / f"{name}{SUFFIX}"

    def _make_room(self, folder: Path, size: int) -> None:
        """Delete what was not used for longest. The lock is held, so a part is of a killed worker."""
        found = []
        for entry in os.scandir(folder):
            if entry.name.endswith(_PART):
                Path(entry).unlink(missing_ok=True)
            elif entry.name.endswith(SUFFIX):
                with suppress(FileNotFoundError):
                    status = entry.stat()
                    found.append((status.st_mtime_ns, status.st_size, entry.path))
        left = sum(each for _, each, _ in found) + size
        for _, each, path in sorted(found):
            if left <= self.limit_bytes:
                break
            Path(path).unlink(missing_ok=True)
            left -= each
        let_go()

    @contextmanager
    def _locked(self, folder: Path) -> Iterator[bool]:
        """Whether this worker alone adds to the folder now."""
        _make(folder)
        with (folder / _LOCK).open("a") as lock:
            deadline = time.monotonic() + _LOCK_LIMIT_S
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        yield False
                        return
                    time.sleep(_POLL_S)
            yield True

    def _unusable(self, error: OSError) -> StateError:
        folder = self.folder or default_folder()
        return StateError(
            f"the cache of segments in {folder} cannot be used: {error}; mend that or name another folder "
            "(job.segment_cache_dir), then start the job again"
        )


def _make(folder: Path) -> None:
    """Make the folder; what others could write to in it would be mapped into memory."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022 or folder.is_symlink():
        raise PermissionError("it is not a folder that this user alone may write to")
