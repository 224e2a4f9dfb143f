"""Parts of the local stack, or workers: child processes that are looked after until they are stopped."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from streaming.contract.errors import WeirError
from weir.foreground import AWAY
from weir.stack.process import Child, wait_until_gone
from weir.stack.server import LocalServer

RESTARTS_MAX = 10
"""Of one part in a row; see STEADY_S."""
BACKOFF_S, BACKOFF_MAX_S = 1.0, 30.0
# A part that ran this long has recovered: its next failure is a new story.
STEADY_S = 300.0
_JVM_EXIT_S = 5.0


class Change(Enum):
    """What a look at a part found."""

    NONE = "none"
    READY = "ready"
    DIED = "died"
    LATE = "late"


class Part:
    """A part and where it is in its life: starting, ready, or waiting to be restarted.

    It is a `weir ...`, ready once it has written its ready file.

    Args:
        name: how messages call it.
        args: arguments of its subcommand, without --ready-file.
        command: its subcommand, empty: the one of its name.
        log: file for its output; None: where ours goes.
        run_dir: folder for its ready file.
        start_s: how long it may say nothing until it is ready. One that says something lives, and would begin
            anew: the job waits for Kafka, too, within limits of its own.
        program: what python runs.
        alone: it is ready also while the job is away, and once more when that is there.
        now: monotonic seconds; given by tests.
    """

    _unit = "s of silence"
    """Of `start_s`, in messages."""

    def __init__(
        self, name: str, args: Sequence[str], *, command: str = "", log: Path | None, run_dir: Path,
        start_s: float, program: Sequence[str] = ("-m", "weir"), alone: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.name = name
        self.ready: dict[str, Any] | None = None
        self._ready_file = run_dir / f"{name}.json"
        words = [command or name, *args, "--ready-file", str(self._ready_file)]
        argv = [sys.executable, *program, *words]
        self.child = Child(name, argv, log=log, env={"PYTHONUNBUFFERED": "1"})
        self._start_s = start_s
        self._alone = alone
        self._now = now
        self._started = 0.0
        self._said_bytes, self._said_at = 0, 0.0
        self._failures = 0
        self._restart_at: float | None = None

    @property
    def seconds(self) -> float:
        """How long it has been up, or starting."""
        return self._now() - self._started

    def start(self) -> None:
        """Start it and forget what an earlier run said."""
        self.ready, self._restart_at = None, None
        self._started = self._said_at = self._now()
        self._begin()

    def look(self) -> Change:
        """What has changed; starts it again when a planned restart is due."""
        if self._restart_at is not None:
            if self._now() >= self._restart_at:
                # No room for one more process, say: it counts as one that has ended.
                with contextlib.suppress(OSError):
                    self.start()
            return Change.NONE
        if not self.child.alive():
            return Change.DIED
        if self.ready is not None:
            if self.seconds > STEADY_S:
                self._failures = 0
            if self.ready.get("job") != AWAY:
                return Change.NONE
        before, self.ready = self.ready, self._read_ready()
        if self.ready is not None:
            return Change.NONE if self.ready == before else Change.READY
        return Change.LATE if self._waited_s() > self._start_s else Change.NONE

    def plan_restart(self) -> float | None:
        """Take away what is left of it and plan the next start.

        Returns:
            Seconds until then, doubled from one failure to the next; None if it failed too often.
        """
        self.kill()
        self.ready = None
        self._failures += 1
        if self._failures > RESTARTS_MAX:
            return None
        pause = min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** (self._failures - 1))
        self._restart_at = self._now() + pause
        return pause

    def kill(self) -> None:
        """SIGKILL to it and its children, and wait until its JVM is gone too."""
        jvm = int((self.ready or {}).get("jvm_pid") or 0)
        self.child.kill()
        if jvm:
            # It ends by itself when its Python parent is gone, but not at once.
            wait_until_gone(jvm, _JVM_EXIT_S)

    def why(self, lines: int = 15) -> str:
        """How it ended, with the last lines of its log, for people."""
        status = self.child.poll()
        late = f"was not ready after {self._start_s:g} {self._unit}"
        what = late if status is None else f"ended with status {status}"
        if self.child.log is None:
            return f"{self.name} (process {self.child.pid}) {what}; see its lines above"
        tail = "".join(f"\n    {line}" for line in self.child.last_lines(lines))
        return f"{self.name} {what}; the end of {self.child.log}:{tail}"

    def _begin(self) -> None:
        self._ready_file.parent.mkdir(parents=True, exist_ok=True)
        self._ready_file.unlink(missing_ok=True)
        self.child.start()

    def _waited_s(self) -> float:
        """How much of `start_s` is gone: how long it has said nothing since its start."""
        # Who has said that it is there waits for the job, which has limits of its own.
        if self._ready_file.exists():
            return 0.0
        said_bytes = self.child.log_bytes()
        if said_bytes != self._said_bytes:
            self._said_bytes, self._said_at = said_bytes, self._now()
        return self._now() - self._said_at

    def _read_ready(self) -> dict[str, Any] | None:
        try:
            content = json.loads(self._ready_file.read_text())
        except (OSError, ValueError):
            return None
        if not isinstance(content, dict) or (content.get("job") == AWAY and not self._alone):
            return None
        return content


class Broker(Part):
    """A part that is a local server: ready once it answers, late at its limit whatever it says until then."""

    _unit = "s"

    def __init__(self, server: LocalServer, *, start_s: float) -> None:
        super().__init__(server.name.lower(), (), log=None, run_dir=server.data_dir, start_s=start_s)
        self._server = server

    def _begin(self) -> None:
        (self.child,) = self._server.begin()

    def _waited_s(self) -> float:
        return self.seconds

    def _read_ready(self) -> dict[str, Any] | None:
        return None if self._server.unready() else {"pid": self.child.pid}


def look_after(parts: Iterable[Part], say: Callable[[str], None], *, restart: bool = True) -> bool:
    """Look at each once, say what has become of it, and plan to start it again if it has ended.

    Returns:
        Whether one got ready or ended.

    Raises:
        WeirError: one ended and is not to be started again, or too often; with the end of its log.
    """
    changed = False
    for part in parts:
        change = part.look()
        changed = changed or change is not Change.NONE
        if change is Change.READY:
            say(f"{part.name} (process {part.child.pid}) is ready ({part.seconds:.1f} s)")
        elif change is not Change.NONE:
            why = part.why()
            if not restart:
                raise WeirError(why)
            if (pause := part.plan_restart()) is None:
                raise WeirError(f"{why}\n{part.name} failed too often")
            say(f"{why}\nrestarting {part.name} in {pause:.1f} s")
    return changed


def stop_all(parts: Sequence[Part], limit_s: float, say: Callable[[str], None]) -> None:
    """Stop them at the same time; who has not ended within the limit is killed, which is said."""
    for part in parts:
        part.child.terminate()
    until = time.monotonic() + limit_s
    for part in parts:
        if not part.child.wait(until - time.monotonic()):
            say(f"{part.name} did not stop in time and was killed")
        part.kill()
