"""How late the event loop runs: whatever holds it holds up all clients."""

import asyncio
import time
from collections.abc import Callable

from prometheus_client import Histogram

BEAT_S = 0.05


class Heartbeat:
    """A timer that measures how late it is called.

    Args:
        delay: takes each lateness, s.
        on_beat: called at each beat.
    """

    def __init__(self, delay: Histogram, on_beat: Callable[[], None]) -> None:
        self._delay = delay
        self._on_beat = on_beat
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def start(self) -> None:
        """Begin."""
        self._due_s = time.monotonic() + BEAT_S
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        self._delay.observe(max(0.0, time.monotonic() - self._due_s))
        try:
            self._on_beat()
        finally:
            self.start()
