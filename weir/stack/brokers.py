"""The brokers that `weir up` runs itself: a Kafka, and a Pulsar if it is asked for."""

import time
from collections.abc import Callable
from typing import Protocol

from streaming.contract.errors import WeirError
from weir.foreground import StopSignal
from weir.stack.kafka import port_is_free
from weir.stack.process import Child


class Server(Protocol):
    """What LocalKafka and LocalPulsar have in common."""

    @property
    def children(self) -> list[Child]:
        """Its processes."""

    @property
    def pids(self) -> list[int]:
        """Their ids."""

    def start(self, limit_s: float, stopping: Callable[[], bool]) -> None:
        """Start it and wait until it is ready."""

    def stop(self, term_s: float) -> None:
        """Stop it in order, kill what still runs after `term_s`."""


class Broker:
    """One of them and what is told of it.

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
        server: Server,
        *,
        stop: StopSignal,
        say: Callable[[str], None],
        start_s: float,
        restart: bool,
    ) -> None:
        self.name = name
        self._server = server
        self._stop = stop
        self._say = say
        self._start_s = start_s
        self._restart = restart

    @property
    def pid(self) -> int | None:
        """Process id, None before the first start."""
        return next(iter(self._server.pids), None)

    def run(self) -> None:
        """Start it; a stop that is requested meanwhile ends that without a word.

        Raises:
            WeirError: it ended, or was not ready in time.
        """
        begun = time.monotonic()
        try:
            self._server.start(self._start_s, lambda: self._stop.requested)
        except WeirError:
            if self._stop.requested:
                return
            raise
        self._say(f"{self.name} is ready ({time.monotonic() - begun:.1f} s)")

    def look(self) -> bool:
        """Start it again if it has ended; returns whether process ids have changed.

        Raises:
            WeirError: it ended and is not to be restarted, with the end of its log.
        """
        child = next(iter(self._server.children), None)
        if child is None or child.alive() or self._stop.requested:
            return False
        tail = "".join(f"\n    {line}" for line in child.last_lines())
        why = f"{self.name} ended with status {child.poll()}; the end of {child.log}:{tail}"
        if not self._restart:
            raise WeirError(why)
        self._say(f"{why}\nrestarting {self.name}")
        self.run()
        return True

    def terminate(self) -> None:
        """Ask it to stop."""
        for child in self._server.children:
            child.terminate()

    def stop(self, term_s: float) -> None:
        """Stop it, kill it after `term_s`."""
        self._server.stop(term_s)

    def kill(self) -> None:
        """SIGKILL."""
        for child in self._server.children:
            child.kill()


def port_for(wanted: int, what: str, say: Callable[[str], None]) -> int:
    """The wanted port, or 0 for any free one if it is taken, which is said of `what`."""
    if port_is_free(wanted):
        return wanted
    say(f"port {wanted} is taken; {what} gets another one")
    return 0
