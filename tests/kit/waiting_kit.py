"""Waiting for what others in the loop do."""

import asyncio
from collections.abc import Callable
from typing import Any

LIMIT_S = 20.0


async def until(found: Callable[[], Any]) -> None:
    """Let others work until it is so; for what no event tells of."""
    async with asyncio.timeout(LIMIT_S):
        while not found():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
