"""What a local Kafka and a local Pulsar have in common: child processes, started until they are ready."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Self

from streaming.contract.errors import WeirError
from weir.foreground import StopSignal
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
        self.children = []
        try:
            self._begin()
            while why := self._unready():
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
    def _unready(self) -> str:
        """Why it is not ready yet; empty: it is."""

    def _check_alive(self) -> None:
        for child in self.children:
            if not child.alive():
                said = " | ".join(child.last_lines(5))
                raise WeirError(f"{child.name} ended with status {child.poll()}: {said}; see {child.log}")


class Broker:
    """A server that `weir up` runs, and what is told of it.

    Args:
        name: how messages call it.
        server: not yet started.
        stop: asked while it starts.
        say: takes lines for people.
        start_s: limit for its start.
        restart: start it again when it ends by itself.
    """

    def __init__(
        self,
        name: str,
        server: LocalServer,
        *,
        stop: StopSignal,
        say: Callable[[str], None],
        start_s: float,
        restart: bool,
    ) -> None:
        self.name = name
        self.server = server
        self._stop = stop
        self._say = say
        self._start_s = start_s
        self._restart = restart

    @property
    def pid(self) -> int | None:
        """Process id, None before the first start."""
        return next(iter(self.server.pids), None)

    def run(self) -> None:
        """Start it; a stop that is requested meanwhile ends that without a word.

        Raises:
            WeirError: it ended, or was not ready in time.
        """
        begun = time.monotonic()
        try:
            self.server.start(self._start_s, lambda: self._stop.asked)
        except WeirError:
            if self._stop.asked:
                return
            raise
        self._say(f"{self.name} is ready ({time.monotonic() - begun:.1f} s)")

    def look(self) -> bool:
        """Start it again if it has ended; returns whether process ids have changed.

        Raises:
            WeirError: it ended and is not to be restarted, with the end of its log.
        """
        child = next(iter(self.server.children), None)
        if child is None or child.alive() or self._stop.asked:
            return False
        tail = "".join(f"\n    {line}" for line in child.last_lines())
        why = f"{self.name} ended with status {child.poll()}; the end of {child.log}:{tail}"
        if not self._restart:
            raise WeirError(why)
        self._say(f"{why}\nrestarting {self.name}")
        self.run()
        return True
