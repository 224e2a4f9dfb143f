"""What runs beside the connections of a process for as long as it lives."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine

from prometheus_client import Histogram

BEAT_S = 0.05

logger = logging.getLogger(__name__)


class Tasks:
    """Tasks of one event loop; one that ends by an error is said loudly: nobody does its work then."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Begin something that runs until it is cancelled, or ends."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def cancel(self) -> None:
        """End all of them, soon."""
        for task in list(self._tasks):
            task.cancel()

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical("a part of this process has ended, restart it: %r", error, exc_info=error)


async def beat(delay: Histogram, on_beat: Callable[[], None]) -> None:
    """Measure how late a timer is, s, and call a function, again and again.

    Whatever holds the loop holds up all clients.
    """
    loop = asyncio.get_running_loop()
    while True:
        due_s = time.monotonic() + BEAT_S
        await asyncio.sleep(BEAT_S)
        delay.observe(max(0.0, time.monotonic() - due_s))
        # By the loop, so that a mistake of its ends nothing but it.
        loop.call_soon(on_beat)
