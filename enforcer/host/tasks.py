"""What runs beside the connections of a proxy for as long as it lives."""

import asyncio
import logging
from collections.abc import Coroutine

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
            logger.critical("a part of the proxy has ended, restart it: %r", error, exc_info=error)
