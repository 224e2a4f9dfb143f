"""Threads for calls that block, which do not keep the process from ending."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Threads(ThreadPoolExecutor):
    """Runs each call in a daemon thread of its own; nobody waits for them at the end.

    What is under way then may take its whole time limit, and a process has to end within seconds. How many
    there are at a time is bounded by who calls.
    """

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Begin a call."""
        future: Future[Any] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = function(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001  # told to who waits
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=run, name="call", daemon=True).start()
        return future


def use_threads() -> None:
    """Let asyncio.to_thread in this loop use them."""
    asyncio.get_running_loop().set_default_executor(Threads())
