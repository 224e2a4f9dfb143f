"""Tests that run in an event loop of their own."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own; its parameters pass."""

    @wraps(test)
    def run(*given: Any, **named: Any) -> None:
        asyncio.run(test(*given, **named))

    return run
