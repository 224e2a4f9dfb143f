"""What runs in an event loop until a signal, or until a part of it fails."""

import asyncio
import contextlib
import sys
from collections.abc import Coroutine, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from streaming.job.process.stop import stop_signals


class _WithoutPandas(MetaPathFinder):
    """Arrow would import it at the first array that it makes: 37 MiB, and the loop stood for 0.4 s."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("nothing of Weir that runs in an event loop uses pandas", name=name)
        return None


def run_in_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run what a process is for, in uvloop and without pandas."""
    # Here and not above: `weir --help` need not load it.
    import uvloop

    sys.meta_path.insert(0, _WithoutPandas())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def stop_event() -> asyncio.Event:
    """Set by `stop_signals` from now on; in the loop."""
    stop = asyncio.Event()
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def until_stopped(
    stop: asyncio.Event,
    parts: Sequence[Coroutine[Any, Any, None]],
    orderly: Sequence[Coroutine[Any, Any, None]] = (),
) -> None:
    """Run parts until all have ended, one fails, or `stop` is set.

    Args:
        stop: then `parts` are cancelled, and so are all when one has failed.
        parts: what may be cancelled at any time.
        orderly: what ends by itself once `stop` is set.

    Raises:
        Exception: that of the first that failed.
    """
    cancelled = [asyncio.create_task(part) for part in parts]
    tasks = [*cancelled, *(asyncio.create_task(part) for part in orderly)]
    waiting = asyncio.create_task(stop.wait())
    running = set(tasks)
    try:
        while running and not stop.is_set():
            ended, _ = await asyncio.wait({*running, waiting}, return_when=asyncio.FIRST_COMPLETED)
            running -= ended
            for task in ended - {waiting}:
                task.result()
        for task in cancelled:
            task.cancel()
        for task in running:
            with contextlib.suppress(asyncio.CancelledError):
                await task
    finally:
        for task in (*tasks, waiting):
            task.cancel()
        await asyncio.gather(*tasks, waiting, return_exceptions=True)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, Any]) -> bool:
    """Do some work, but cancel it when `stop` is set; returns whether it was done."""
    task, waiting = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        task.cancel()
        waiting.cancel()
        await asyncio.gather(task, waiting, return_exceptions=True)
