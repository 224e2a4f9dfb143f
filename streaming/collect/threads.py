"""Calls that block, from asyncio, in threads that do not keep the process from ending."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As asyncio.to_thread; but who is cancelled meanwhile may end without waiting for the call.

    Raises:
        Exception: whatever the function raises.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value: T | None = None
        failure: BaseException | None = None
        try:
            value = function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001
            failure = error
        # The loop may have ended.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, value, failure)

    threading.Thread(target=run, name=getattr(function, "__name__", "call"), daemon=True).start()
    return await result
