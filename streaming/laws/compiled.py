"""Numba behind one typed decorator, so that a law reads and type-checks as plain Python."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile `function` to machine code at its first call and keep that code on disk.

    Kept, because a worker that compiled in production would hold its first batch up for seconds.
    No fast-math: the same events must give the same doubles compiled and interpreted.
    """
    return cast(Function, njit(cache=True)(function))
