"""Runs one proxy in the foreground, whatever it speaks."""

import gc
import logging
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from enforcer.host.server import Host
from streaming.contract.topics import address_text
from weir.foreground import AWAY, HERE, forget_ready_file, keep_memory, wake_after_others, write_ready_file
from weir.stopping import run_in_loop, stop_event, unless

YOUNG_OBJECTS = 50_000
"""A Fetch of 500 topics makes thousands of objects, none of them in a circle. Looking for circles after each
700, as Python does, took a quarter of the time under dispatch limits. Of so many it takes some 5 ms."""
Ask = Callable[[], Coroutine[Any, Any, None]]
logger = logging.getLogger("weir.proxy")


async def nothing() -> None:
    """There is nothing to ask."""


def run_proxy(make: Callable[[], Host[Any]], ready_file: Path | None, ask: Ask = nothing) -> None:
    """Run until SIGINT or SIGTERM.

    Args:
        make: the proxy, in its event loop.
        ready_file: written when it decides, and again when the job does.
        ask: done before it starts; what it raises ends it.

    Raises:
        WeirError: it cannot start.
    """
    keep_memory()
    wake_after_others()
    gc.set_threshold(YOUNG_OBJECTS)
    run_in_loop(_serve(make, ready_file, ask))


async def _serve(make: Callable[[], Host[Any]], ready_file: Path | None, ask: Ask) -> None:
    stop, proxy, said = stop_event(), make(), False
    try:
        forget_ready_file(ready_file)
        # Each step may take long while Kafka or the job is away: a stop must not wait for it.
        for step in (ask, proxy.start, proxy.enforcement.serving.wait, proxy.enforcement.ready.wait):
            if not await unless(stop, step()):
                return
            # What the start has made stays for good: a full collection would stop all clients for 10 ms.
            gc.collect()
            gc.freeze()
            if proxy.enforcement.serving.is_set():
                # It has clients the second time: a full disk must not end it.
                write_ready_file(ready_file, _described(proxy), logger.warning if said else None)
                said = True
        await stop.wait()
    finally:
        await proxy.stop()


def _described(proxy: Host[Any]) -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "listen": address_text(*proxy.listen),
        "metrics": proxy.metrics_url,
        "job": HERE if proxy.enforcement.ready.is_set() else AWAY,
        **proxy.described,
    }
