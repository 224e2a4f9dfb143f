"""How late the event loop runs: whatever holds it holds up all clients."""

import asyncio
import time
from collections.abc import Callable

from prometheus_client import Histogram

BEAT_S = 0.05


async def beat(delay: Histogram, on_beat: Callable[[], None]) -> None:
    """Measure how late a timer is, s, and call a function, again and again."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = time.monotonic() + BEAT_S
        await asyncio.sleep(BEAT_S)
        delay.observe(max(0.0, time.monotonic() - due_s))
        # By the loop, so that a mistake of its ends nothing but it.
        loop.call_soon(on_beat)
