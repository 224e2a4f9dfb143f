"""One child process: started, watched and stopped within limits, never outliving us."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from streaming.contract.printable import printable

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_POLL_S = 0.05
LOG_TAIL_BYTES = 64 * 1024


def die_with_parent() -> None:
    """Make the kernel kill this process when the thread that forked it ends.

    Runs between fork and exec. A kill -9 of `weir up` runs no handler of ours, so only the kernel
    can take the children along; SIGKILL because nobody is left to insist when TERM is ignored.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Child:
    """A child process in its own process group with its output in a log file.

    Start it from a thread that lives as long as the child is wanted: the kernel counts the end of
    that thread as the parent's death.

    Args:
        name: how messages call it.
        argv: the command.
        log: file that takes stdout and stderr, appended to; its folder is created. None: ours take them.
        env: variables set on top of ours.
    """

    def __init__(
        self, name: str, argv: Sequence[str], *, log: Path | None, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        self._argv = list(argv)
        self._env = dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the newest start, 0 before the first."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Start it (again); raises OSError if the program is not there."""
        if self.log is not None:
            self.log.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.nullcontext() if self.log is None else self.log.open("ab") as log:
            # Its own session: Ctrl-C in the terminal must reach us alone, since we stop in order.
            self._process = subprocess.Popen(
                self._argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **self._env}, start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip

    def poll(self) -> int | None:
        """Exit status, negative for a signal; None while it runs or before it was started."""
        return self._process.poll() if self._process else None

    def alive(self) -> bool:
        """True while it runs."""
        return self._process is not None and self._process.poll() is None

    def terminate(self) -> None:
        """Ask it to stop (SIGTERM to the process itself, so that it stops its own children)."""
        if self.alive():
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to its whole group, whether or not its leader still lives."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)

    def wait(self, limit_s: float) -> bool:
        """True once it has ended, False after `limit_s`."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout=max(0.0, limit_s))
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, term_s: float = 10.0) -> bool:
        """SIGTERM, then SIGKILL to what is left of the group after `term_s`; whether it ended by itself."""
        self.terminate()
        by_itself = self.wait(term_s)
        # Also after a clean end: a JVM that its Python parent left behind is still in the group.
        self.kill()
        return by_itself

    def log_bytes(self) -> int:
        """How much it has said, with earlier runs; 0 if there is no log."""
        try:
            return self.log.stat().st_size if self.log is not None else 0
        except OSError:
            return 0

    def last_lines(self, count: int = 15) -> list[str]:
        """The newest lines of its log as a terminal may get them, oldest first; empty if there is no log."""
        if self.log is None:
            return []
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
                text = log.read().decode("utf-8", "replace").removesuffix("\n")
        except OSError:
            return []
        lines = text.split("\n")[-count:] if text else []
        return [printable(line.removesuffix("\r").expandtabs(4)) for line in lines]


def running(pid: int) -> bool:
    """True if a process has this id and is not merely waiting to be reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        # The name before the state stands in brackets and may hold any character.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return not Path("/proc/self").exists()


def wait_until_gone(pid: int, limit_s: float) -> bool:
    """Whether one that is not our child ends in time, such as a JVM whose Python parent was killed."""
    deadline = time.monotonic() + limit_s
    while running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
