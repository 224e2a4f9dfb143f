"""What a checkpoint's user leaves beside it: a file lock, and a note that says who it is."""

import fcntl
import json
import os
import socket
import uuid
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Final, Self

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_PID_SPACE: Final = Path("/proc/self/ns/pid")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """Where a process runs.

    Attributes:
        host: its name, for people: two machines may have the same.
        boot: of the kernel since its start; file locks hold between all processes of one.
        pid_space: which process ids mean the same, a container has its own.
    """

    host: str
    boot: str
    pid_space: str

    @classmethod
    def here(cls) -> Self:
        """Of this process; where there is no /proc the host's name must do."""
        host = socket.gethostname()
        try:
            return cls(host=host, boot=_BOOT.read_text().strip(), pid_space=os.readlink(_PID_SPACE))
        except OSError:
            return cls(host=host, boot=host, pid_space="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Who uses a checkpoint.

    Attributes:
        place: where.
        pid: of the driver's Python.
        jvm_pid: of its JVM; 0: it is not known.
        starts: of jobs on this checkpoint so far.
        holder: no other job has the same; empty: nobody.
        beat: grows as long as it is there.
        left: whether it ended in order.
        weir: its version of Weir.
    """

    place: ProcessIdentity
    pid: int = 0
    jvm_pid: int = 0
    starts: int = 0
    holder: str = ""
    beat: int = 0
    left: bool = False
    weir: str = ""

    @classmethod
    def first(cls, place: ProcessIdentity, jvm_pid: int) -> Self:
        """Of this process, new on the checkpoint."""
        holder = uuid.uuid4().hex
        return cls(place=place, pid=os.getpid(), jvm_pid=jvm_pid, holder=holder, weir=version("weir"))

    @property
    def is_free(self) -> bool:
        """Whether nobody needs to be waited for."""
        return self.left or not self.holder

    def who(self, here: ProcessIdentity) -> str:
        """For people, seen from `here`."""
        if not self.holder:
            return "(it has left no note yet)"
        where = "" if self.place.host == here.host else f" on host {self.place.host}"
        return f"(pid {self.pid}{where})"


@dataclass(frozen=True, slots=True)
class Notes:
    """The note beside a checkpoint.

    Attributes:
        path: its file.
        here: the place of nobody's.
    """

    path: Path
    here: ProcessIdentity

    def read(self) -> Note:
        """The note that is there; nobody's if there is none or it is of no use.

        Raises:
            OSError: the file system does not answer.
        """
        try:
            return _note(json.loads(self.path.read_bytes()))
        except (FileNotFoundError, ValueError, TypeError, LookupError, OverflowError, RecursionError):
            return Note(place=self.here)

    def write(self, note: Note) -> None:
        """Put a note in place of the one that is there: nobody ever reads half of one.

        Raises:
            OSError: it cannot be written.
        """
        said = asdict(note)
        part = self.path.with_name(f"{self.path.name}.{note.holder}")
        part.write_text(json.dumps(said.pop("place") | said))
        part.replace(self.path)


def _note(said: dict[str, Any]) -> Note:
    place = ProcessIdentity(**{name: str(said[name]) for name in ProcessIdentity.__slots__})
    # Another release of this layout may write more of them, or fewer.
    own: dict[str, Any] = {each.name: each.default for each in fields(Note) if each.name != "place"}
    return Note(place=place, **{name: type(value)(said.get(name, value)) for name, value in own.items()})


@dataclass(slots=True)
class Lock:
    """A file's lock, which the kernel drops with the process: a kill -9 leaves none behind.

    Attributes:
        path: of the file; it stays.
    """

    path: Path
    _file: IO[str] | None = field(default=None, init=False)

    def take(self) -> bool | None:
        """Try to have it: True it is ours, False it is another's, None this file system has none.

        Raises:
            OSError: the file cannot be opened.
        """
        if self._file is not None:
            return True
        file = self.path.open("a", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        except OSError:
            # ENOLCK, ENOTSUP and their like: some network file systems.
            file.close()
            return None
        self._file = file
        return True

    def release(self) -> None:
        """Let it go, if it is held."""
        if self._file is not None:
            self._file.close()
            self._file = None
