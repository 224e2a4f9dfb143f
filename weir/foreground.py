"""What every command that stays in the foreground shares: stop signals, the ready file, folders, memory."""

import contextlib
import ctypes
import errno
import json
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from enforcer.host.doors.listening import listen_at
from streaming.contract.errors import WeirError
from streaming.job.process.stop import Stop, stop_signals
from streaming.kafka_io.threads import Threads
from weir.paths import check_folder, named

_PRIVATE = 0o700
_POLL_S, _ANSWER_POLL_S = 0.1, 0.02
# mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_SMALL_BYTES = 128 * 1024
_LARGEST_BYTES = 32 * 1024 * 1024
"""The largest threshold that glibc takes."""
_FREE_KEPT_BYTES = 128 * 1024 * 1024
HERE, AWAY = "decides", "away"
"""What a proxy's ready file says of the `job`: whether it has decided anything since the proxy's start."""

T = TypeVar("T")


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Meanwhile SIGTERM ends the command as Ctrl-C does: what is half written goes."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def interruptible(work: Callable[[], T]) -> T:
    """What work that waits for others leads to; Ctrl-C raises KeyboardInterrupt meanwhile.

    It goes on in its thread then, so nothing that it uses may be closed.
    """
    return Threads().submit(work).result()  # type: ignore[no-any-return]  # it is work's


@contextlib.contextmanager
def unless_interrupted(close: Callable[[], object], *, quietly: bool = False) -> Iterator[None]:
    """Close in the end; but after KeyboardInterrupt a question may be under way still that needs it open.

    Args:
        quietly: what is interrupted is done.
    """
    try:
        yield
    except KeyboardInterrupt:
        if quietly:
            return
        raise
    except BaseException:
        close()
        raise
    close()


class StopSignal(Stop):
    """Asked for by the first of `stop_signals`; a second one but SIGHUP calls `force`.

    Install it from the main thread. Python runs signal handlers between two instructions of the
    main thread, so the handler only says so and the main loop does the stopping.

    Args:
        force: what to do about a second signal, while the first one's orderly stop still runs.
    """

    def __init__(self, force: Callable[[], None] | None = None) -> None:
        super().__init__()
        self._force = force

    def install(self) -> Self:
        """Take over those signals of this process; itself."""
        for number in stop_signals():
            signal.signal(number, self._handle)
        return self

    def unless(self, work: Callable[[], T]) -> T:
        """What work that waits for others leads to; raises KeyboardInterrupt once a stop is asked for.

        It goes on in its thread then, so nothing that it uses may be closed.
        """
        result = Threads().submit(work)
        while not result.done():
            if self.wait(_ANSWER_POLL_S):
                raise KeyboardInterrupt
        return result.result()  # type: ignore[no-any-return]  # it is work's

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # A shell says it and the kernel once more, as the shell ends.
        if self.asked and self._force and number != signal.SIGHUP:
            self._force()
        self.ask()


def write_ready_file(
    path: Path | None, content: Mapping[str, Any], or_say: Callable[[str], None] | None = None
) -> None:
    """Write JSON so that a reader who polls for the file never sees half of it.

    Args:
        path: the file; None: nobody reads any.
        content: its content.
        or_say: of what works already: takes a line where it cannot be written, as on a full disk.

    Raises:
        OSError: it cannot be written, and `or_say` is None.
    """
    if path is None:
        return
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(content) + "\n")
        draft.replace(path)
    except OSError as error:
        if or_say is None:
            raise
        or_say(f"{path} could not be written anew: {error.strerror}")
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def forget_ready_file(
    path: Path | None, address: tuple[str, int] | None = None, patience_s: float = 0.0
) -> None:
    """Remove what an earlier process has left: it says nothing about one that starts now.

    Who listens does so once the port is his: it may be the file of another one, which goes on.

    Args:
        path: the file; None: there is none.
        address: where we shall listen, and do not yet; None: nowhere, or we do.
        patience_s: so long another one that listens there, as it stops, may take to be gone.

    Raises:
        WeirError: the port is another one's, or no such file can be written, which would be noticed only once
            all is up.
    """
    if address is not None:
        _wait_for(address, patience_s)
    if path is None:
        return
    with named(path, "written"):
        # Nobody's device or pipe is to be replaced.
        if os.path.lexists(path) and not (path.is_file() or path.is_symlink()):
            raise ValueError("it is no plain file")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        check_folder(path.parent)


def _wait_for(address: tuple[str, int], patience_s: float) -> None:
    until, told = time.monotonic() + patience_s, False
    while True:
        try:
            listen_at(address, both=False).close()
            return
        except WeirError as error:
            cause = error.__cause__
            taken = isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
            if not taken or time.monotonic() >= until:
                raise
            if not told:
                print(f"{error}; waiting for at most {patience_s:.0f} s", file=sys.stderr, flush=True)
                told = True
        time.sleep(_POLL_S)


def private_folder(path: Path, ours: tuple[str, ...]) -> str | None:
    """Make a folder that only its owner may enter; one that is there already is made so if it is ours.

    Args:
        path: the folder.
        ours: how the names of all that we keep there begin. With anything else in it, it is somebody's
            folder that was merely named as ours, such as /tmp, and is left as it is.

    Returns:
        A warning if others may enter it all the same.

    Raises:
        WeirError: it cannot be made or used.
    """
    with named(path, "used as a folder"):
        path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        mode = stat.S_IMODE(path.stat().st_mode)
        if not mode & (stat.S_IRWXG | stat.S_IRWXO):
            return None
        if all(entry.name.startswith(ours) for entry in path.iterdir()):
            with contextlib.suppress(PermissionError):
                path.chmod(_PRIVATE)
                return None
    return f"{path} has mode {mode:04o}: others on this machine may read what is kept there; expected 0700"


def keep_memory() -> None:
    """Use freed memory again instead of giving it back to the kernel.

    A large frame comes in pieces of 256 kB. Each would be mapped anew, and the kernel would clear all its
    pages first: on one busy connection that took two thirds of the proxy's time.
    """
    _set(_M_MMAP_THRESHOLD, _LARGEST_BYTES)
    _set(_M_TRIM_THRESHOLD, _FREE_KEPT_BYTES)


def wake_after_others() -> None:
    """Push nobody off a core on waking, where the kernel knows that (sched(7), SCHED_BATCH).

    On shared cores the client or broker that has just written to us goes on until it waits itself: more is
    there when we read, and our code is still in the caches for it; on a free core nothing changes. Whoever
    has started us by another rule keeps that.
    """
    with contextlib.suppress(AttributeError, OSError):
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def return_memory() -> None:
    """Give back what tables and pages leave behind: glibc would keep ever larger pieces."""
    _set(_M_MMAP_THRESHOLD, _SMALL_BYTES)


def _set(parameter: int, value: int) -> None:
    """Tell glibc; other C libraries are left alone."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(parameter, value)


def host_port(text: str) -> tuple[str, int]:
    """`HOST:PORT` as a pair; for argparse, so it raises ValueError on anything else.

    A missing host is the loopback address; port 0 means any free one. Of IPv6 the
    brackets go: who connects or listens knows none. Nor spaces, which stand in lists.

    >>> host_port(" [::1]:9092")
    ('::1', 9092)
    """
    host, colon, port = text.strip().rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


# argparse names a type by this in its message: invalid HOST:PORT value: 'nonsense'.
host_port.__name__ = "HOST:PORT"


def http_url(text: str) -> str:
    """The URL of an HTTP server without a slash at its end; for argparse, so it raises ValueError."""
    parts = urlsplit(text)
    wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    if wrong or parts.query or parts.fragment:
        raise ValueError(f"{text!r} is not http://HOST:PORT")
    return text.rstrip("/")


http_url.__name__ = "http://HOST:PORT"
