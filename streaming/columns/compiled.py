"""Numba behind typed decorators, so that a law reads and type-checks as plain Python."""

import logging
from functools import cache
from types import FunctionType
from typing import Any, Final, cast

from numba import njit

from streaming.columns.compilable import LEAN, MARK, Function

# A way in from C, which nothing takes, is compiled only where it is not refused.
_COMPILED: Final[dict[str, Any]] = {"cache": True, "nogil": True, "no_cfunc_wrapper": True}
_LEAN: Final = _COMPILED | {"_nrt": False, "forceinline": True}
_INNER: Final = _LEAN | {"no_cpython_wrapper": True}


def compiled(function: Function) -> Function:
    """Compile `function` to machine code at its first call and keep that code on disk.

    Kept, because a worker that compiled in production would hold its first batch up for seconds.
    Without Python's lock, so that a replay reads and writes meanwhile. No fast-math: the same events must
    give the same doubles compiled and interpreted.
    """
    return _compiled(function, _COMPILED)


def lean(function: Function) -> Function:
    """As `compiled`, for functions that make no arrays: they only read and write those that they are given.

    Numba counts references to every array at every look at it, in case a function keeps it; where many small
    functions hand columns to each other that is most of the time (scanner: 3.8 us an event with it, 1.2
    without, 0.5 also inlined). A function that makes an array cannot be compiled so, and says that at once.
    """
    return _compiled(function, _LEAN)


def inner(function: Function) -> Function:
    """As `lean`, for functions that compiled ones alone call: Python has no way in, which takes long."""
    return _compiled(function, _INNER)


def _compiled(function: Function, options: dict[str, Any]) -> Function:
    try:
        return cast(Function, njit(**options)(function))
    except RuntimeError:
        # Numba found no folder: read-only sources, of a user without a home.
        _say_that_none_is_kept()
        return cast(Function, njit(**options | {"cache": False})(function))


def kept() -> bool:
    """Whether there is a folder for the machine code of all that was compiled."""
    return not _say_that_none_is_kept.cache_info().currsize


@cache
def _say_that_none_is_kept() -> None:
    logging.getLogger("weir").warning(
        "no folder to keep compiled laws in: each start compiles them anew; set NUMBA_CACHE_DIR"
    )


@cache
def machine(function: Function) -> Function:
    """The compiled twin of a function that `columns.compilable` has marked.

    The functions marked so that it calls by a name of its module become twins too, in a copy of that module's
    names: the module itself goes on in plain Python. The same function gives the same twin. One whose name
    begins with _ is called by those of its module alone: its twin is `inner`.

    Raises:
        ValueError: it is not marked, so it was not written to be compiled.
    """
    mark = getattr(function, MARK, None)
    if mark is None:
        raise ValueError(f"{function.__qualname__} is not marked by columns.compilable")
    plain = cast(FunctionType, function)
    called = {name: plain.__globals__.get(name) for name in plain.__code__.co_names}
    twins = {
        name: machine(callee)
        for name, callee in called.items()
        if hasattr(callee, MARK) and callee is not function
    }
    twin = FunctionType(
        plain.__code__, plain.__globals__ | twins, plain.__name__, plain.__defaults__, plain.__closure__
    )
    twin.__qualname__ = plain.__qualname__
    compile_ = compiled if mark != LEAN else inner if plain.__name__.startswith("_") else lean
    return cast(Function, compile_(twin))
