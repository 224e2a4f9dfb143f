"""What a local Kafka and a local Pulsar have in common: child processes, started until they are ready."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Self

from streaming.contract.errors import WeirError
from weir.jars.wait import never
from weir.stack.process import Child

_POLL_S = 0.1


class LocalServer(ABC):
    """A server of child processes; a context manager.

    Ports stay the same when it is stopped and started again.

    Args:
        data_dir: all that it keeps, and what it says; used again if it holds a server's data.

    Attributes:
        children: its processes; none before the first start.
    """

    name: ClassVar[str]
    """How people call it."""
    start_limit_s: ClassVar[float]
    stop_limit_s: ClassVar[float]

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.children: list[Child] = []

    @property
    def pids(self) -> list[int]:
        """Process ids."""
        return [child.pid for child in self.children]

    def start(self, limit_s: float | None = None, stopping: Callable[[], bool] = never) -> None:
        """Start it and wait until it is ready.

        Args:
            limit_s: for all of it; None: its own.
            stopping: asked while waiting; True gives up.

        Raises:
            WeirError: it ended or was not ready within the limit; with its last log lines.
        """
        deadline = time.monotonic() + (self.start_limit_s if limit_s is None else limit_s)
        try:
            self.begin()
            while why := self.unready():
                self._check_alive()
                if stopping():
                    raise WeirError(f"stopped while {self.name} was starting")
                if time.monotonic() > deadline:
                    raise WeirError(why)
                time.sleep(_POLL_S)
            # A foreign listener on a port answers too.
            self._check_alive()
        except BaseException:
            self.stop(0.0)
            raise

    def begin(self) -> list[Child]:
        """Start its processes, which are not ready yet; they."""
        self.children = []
        self._begin()
        return self.children

    def terminate(self) -> None:
        """Ask it to stop."""
        for child in self.children:
            child.terminate()

    def stop(self, term_s: float | None = None) -> None:
        """Stop it: TERM, then KILL to what still runs after `term_s`; None: its own limit."""
        self.terminate()
        deadline = time.monotonic() + (self.stop_limit_s if term_s is None else term_s)
        # Who was started first is needed by the others: without it they would wait in vain.
        for child in reversed(self.children):
            child.stop(deadline - time.monotonic())

    def kill(self, number: int = 0) -> None:
        """kill -9 one process, numbered from 0."""
        if self.children:
            self.children[number].kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def _begin(self) -> None:
        """Start the processes, each noted in `children`."""

    @abstractmethod
    def unready(self) -> str:
        """Why it is not ready yet; empty: it is."""

    def _check_alive(self) -> None:
        for child in self.children:
            if not child.alive():
                said = " | ".join(child.last_lines(5))
                raise WeirError(f"{child.name} ended with status {child.poll()}: {said}; see {child.log}")
