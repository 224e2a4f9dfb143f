"""Whether a process was asked to stop, as the handler of a signal may say."""

import contextlib
import signal
from queue import Empty, SimpleQueue


class Stopped(Exception):
    """A stop was asked for."""


def stop_signals() -> list[signal.Signals]:
    """What asks a process to stop: that its terminal goes away too, unless nohup has it ignore that."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if ignored else [signal.SIGHUP])]


class Stop:
    """Asked for once, and waited for by one thread.

    No Event: Python runs handlers between two instructions of the main thread. Where it waits for an Event it
    holds that one's lock between some, and the handler would wait for the lock for ever.

    Attributes:
        asked: True from the first time on.
    """

    def __init__(self) -> None:
        self.asked = False
        self._woken: SimpleQueue[None] = SimpleQueue()

    def ask(self) -> None:
        """Stop; also in a signal's handler."""
        self.asked = True
        self._woken.put(None)

    def wait(self, limit_s: float) -> bool:
        """Sleep until a stop is asked for or `limit_s` has passed; returns `asked`."""
        if not self.asked:
            with contextlib.suppress(Empty):
                self._woken.get(timeout=max(0.0, limit_s))
        return self.asked

    def sleep(self, limit_s: float) -> None:
        """As `wait`, for who does nothing else in between: a stop raises Stopped."""
        if self.wait(limit_s):
            raise Stopped
