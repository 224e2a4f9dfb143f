"""One job at a time on a checkpoint, of one host or of several that share a file system.

Two queries on one checkpoint would each commit batches that the other does not know. On one host a file lock
says who is there, although the JVM of a killed job lives on for a while. On a file system that several hosts
share a lock may hold for one host only, and a process id of another host says nothing. So the holder renews a
note beside the checkpoint, and who finds the note of another host waits until it has not changed for
`silence_s`, by its own clock. A holder that could not renew it for most of that time, or finds another's note
in its place, kills its JVM: it is no longer the one.
"""

import logging
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from streaming.contract.errors import WeirError
from streaming.job.process.lease_note import Lock, Note, Notes, ProcessIdentity
from streaming.kafka_io.threads import Threads

_LOG = logging.getLogger("weir.job")
GONE_S: Final = 30
"""So long the last job on the same checkpoint, and its JVM, may take to be gone."""
SILENCE_S: Final = 15
"""A job on another host that has not renewed its note beside the checkpoint for so long is gone."""
_POLL_S: Final = 0.1
_PS_LIMIT_S: Final = 5.0
_SAID_AFTER_S: Final = 1.0
_JVM_S: Final = 3.0
"""A killed job's JVM ends two seconds after it; in another container it cannot be seen."""
_BEATS: Final = 5
"""Renewals in `silence_s`; a holder gives up when it has missed all but two of them."""
_SOON_S: Final = 0.5
"""The first one: of two hosts that find the checkpoint free at once the later note stands, and the other's
Spark has done nothing yet."""


class Lease:
    """The right to use a checkpoint; a context manager.

    Args:
        checkpoint: path of the checkpoint; lock and note of its user stand beside it.
        timeout_s: how long to wait for the last user to be gone.
        silence_s: a user on another host whose note has not changed for so long is gone.
        jvm_pid: of the JVM that is to use it, killed if the lease is lost; 0: it is not known.
        place: where this process runs; None: as the system says.
        pause: sleeps for so long; what it raises ends the wait for the last user.

    Attributes:
        restarts: how often a job was started on this checkpoint before.
        lost: why it is no longer held, for people; empty while it is.
    """

    def __init__(
        self,
        checkpoint: Path,
        timeout_s: float,
        silence_s: float,
        jvm_pid: int = 0,
        place: ProcessIdentity | None = None,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._place = place or ProcessIdentity.here()
        self._lock = Lock(checkpoint.parent / f"{checkpoint.name}.lock")
        self._notes = Notes(checkpoint.parent / f"{checkpoint.name}.pid", self._place)
        self._timeout_s, self._silence_s, self._jvm_pid = timeout_s, silence_s, jvm_pid
        self._pause = pause
        self._mine: Note | None = None
        self._over = threading.Event()
        self._renewing: threading.Thread | None = None
        self.restarts = 0
        self.lost = ""

    def __enter__(self) -> Self:
        """Take it; raises WeirError, with its host, if the last user is still there after `timeout_s`."""
        self._notes.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.restarts = self._take()
        except OSError as error:
            self._lock.release()
            raise WeirError(f"the checkpoint cannot be taken: {error}") from error
        except BaseException:
            self._lock.release()
            raise
        self._over.clear()
        self._renewing = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._renewing.start()
        return self

    def _take(self) -> int:
        """Wait for it and leave our note; how often a job was started before.

        Also if that takes some tries: Spark runs, and a disk may be full for a moment. Others may come then.
        """
        deadline, mine = time.monotonic() + self._timeout_s, Note.first(self._place, self._jvm_pid)
        while True:
            last = self._wait()
            self._wait_for_jvm(last)
            try:
                self._mine = replace(mine, starts=last.starts + 1)
                self._notes.write(self._mine)
                return last.starts
            except OSError:
                if time.monotonic() > deadline:
                    raise
            self._pause(_POLL_S)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._renewing is not None:
            self._renewing.join()
        if self._mine is not None and not self.lost:
            # The JVM is gone, so nobody has to wait. A file system that does not answer must not keep us.
            with suppress(OSError, RuntimeError):
                self._asked(partial(self._notes.write, replace(self._mine, left=True)), 0.0)
        self._mine = self._renewing = None
        self._lock.release()

    def _wait(self) -> Note:
        """Wait until nobody else uses the checkpoint; returns what the last user noted."""
        begun = heard = time.monotonic()
        seen, said = self._notes.read(), False
        while True:
            locked, note = self._lock.take(), self._notes.read()
            now = time.monotonic()
            if note != seen:
                seen, heard = note, now
            silent_s, enough_s = now - heard, self._silence_of(note, locked)
            if silent_s >= enough_s:
                return note
            # Who says nothing is waited for until it is clear that he is gone.
            lives = enough_s == math.inf or (heard > begun and silent_s < 2 * self._silence_s / _BEATS)
            if now - begun > self._timeout_s and lives:
                raise WeirError(self._refusal(note))
            if not said and now - begun > _SAID_AFTER_S:
                said = True
                _LOG.info("waiting for the job %s to be gone from the checkpoint", note.who(self._place))
            self._pause(_POLL_S)

    def _silence_of(self, note: Note, locked: bool | None) -> float:
        """After how many seconds without a change the note's user is gone; `locked`: see `Lock.take`."""
        near = note.place.boot == self._place.boot
        if locked is False:
            # Held by a process of this kernel it is held by a living one; a server may keep it for the dead.
            return math.inf if note.is_free or near else self._silence_s
        if note.is_free or (locked and note.place == self._place):
            return 0.0
        return _JVM_S if locked and near else self._silence_s

    def _refusal(self, note: Note) -> str:
        return (
            f"another job {note.who(self._place)} uses the checkpoint; stop that one first; "
            f"if it is sure to be gone, delete {self._notes.path} and {self._lock.path}"
        )

    def _wait_for_jvm(self, note: Note) -> None:
        """Of a killed job whose JVM can be seen from here."""
        # In a container that begins anew ours has its number.
        if note.is_free or note.place != self._place or note.jvm_pid == self._jvm_pid:
            return
        if not _is_spark(note.jvm_pid):
            return
        deadline = time.monotonic() + self._timeout_s
        _LOG.info("waiting for the JVM of the last job (pid %d) to be gone", note.jvm_pid)
        while _is_spark(note.jvm_pid):
            if time.monotonic() > deadline:
                raise WeirError(
                    f"the JVM of the last job (pid {note.jvm_pid}) still runs; stop it and start again"
                )
            self._pause(_POLL_S)

    def _renew(self) -> None:
        """Renew the note until the lease is given back or lost."""
        renewed, pause_s = time.monotonic(), self._silence_s / _BEATS
        wait_s = min(_SOON_S, pause_s)
        while not self._over.wait(wait_s):
            wait_s, enough = pause_s, renewed + (_BEATS - 2) * pause_s
            try:
                if not self._asked(self._renewed, enough - time.monotonic()):
                    return
                renewed = time.monotonic()
            # The second: this machine has no thread left, and may have one at the next beat.
            except (OSError, RuntimeError) as error:
                if time.monotonic() >= enough:
                    why = str(error) or "its file system does not answer"
                    self._lose(f"{self._notes.path} cannot be renewed, another host may take over: {why}")
                    return

    def _asked(self, call: Callable[[], Any], limit_s: float) -> Any:
        """What a file system answers, within a limit that is no shorter than a beat; else a TimeoutError."""
        return Threads().submit(call).result(max(limit_s, self._silence_s / _BEATS))

    def _renewed(self) -> bool:
        mine, there = self._mine, self._notes.read()
        if mine is None or self.lost or self._over.is_set():
            # That took too long.
            return False
        if there.holder != mine.holder:
            taken = f"the job {there.who(self._place)} has taken the checkpoint over"
            self._lose(taken if there.holder else f"{self._notes.path} was deleted")
            return False
        self._mine = replace(mine, beat=mine.beat + 1)
        self._notes.write(self._mine)
        return True

    def _lose(self, why: str) -> None:
        self.lost = why
        if self._jvm_pid:
            with suppress(ProcessLookupError):
                os.kill(self._jvm_pid, signal.SIGKILL)


def _is_spark(pid: int) -> bool:
    """Whether that process is a living Spark driver: after a reboot the id may belong to anyone."""
    if not pid:
        return False
    command = ["ps", "-ww", "-o", "stat=,args=", "-p", str(pid)]
    try:
        shown = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PS_LIMIT_S
        ).stdout
    except subprocess.TimeoutExpired:
        # A machine that is too busy to tell is asked again.
        return True
    # SparkSubmit, or YARN's ApplicationMaster.
    return "org.apache.spark.deploy." in shown and not shown.startswith("Z")
