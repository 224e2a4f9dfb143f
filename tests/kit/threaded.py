"""What goes on beside a test, in threads of its own."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self


def until(found: Callable[[], Any], limit_s: float = 20.0, what: str = "", poll_s: float = 0.02) -> Any:
    """Wait until `found` gives something true; returns that."""
    deadline = time.monotonic() + limit_s
    while not (value := found()):
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what or found}"
        time.sleep(poll_s)
    return value


def together(*works: Callable[[], Any]) -> list[Any]:
    """Do all of it at a time, each in a thread; what each came to, once all have ended."""
    with ThreadPoolExecutor(len(works)) as pool:
        return [done.result() for done in [pool.submit(work) for work in works]]


class Threaded:
    """Works that go on, each in a thread, until they are told to stop; a context manager.

    Args:
        works: they end soon after `_stopping` is set.
        name: of the threads.
        limit_s: how long they may take to end.
    """

    def __init__(self, *works: Callable[[], None], name: str | None = None, limit_s: float = 60.0) -> None:
        self._stopping = threading.Event()
        self._limit_s = limit_s
        self._threads = [threading.Thread(target=work, name=name, daemon=True) for work in works]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(self._limit_s)
            assert not thread.is_alive(), thread.name
