"""Which processes a run had, and which of them are still there."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from weir.stack.process import running


class Seen:
    """Processes by id and start: an id may have gone to somebody else meanwhile."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, str], str] = {}

    def add(self, name: str, pid: int) -> None:
        """One that runs."""
        if begun := started(pid):
            self._names[pid, begun] = name

    def left(self) -> list[tuple[str, int]]:
        """Name and id of those that run yet."""
        return [
            (name, pid)
            for (pid, begun), name in self._names.items()
            if running(pid) and started(pid) == begun
        ]

    def kill(self) -> None:
        """SIGKILL to what is left."""
        for _, pid in self.left():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def started(pid: int) -> str:
    """When, in the kernel's ticks; empty: no such process."""
    try:
        # The name before it stands in brackets and may hold any character.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def below(pid: int) -> list[int]:
    """Processes below one, the newest last."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *below(child)]
    return sorted(found)
