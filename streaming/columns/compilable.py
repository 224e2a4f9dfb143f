"""Marks for functions that are plain Python here and machine code where `columns.compiled.machine` asks.

A law's arithmetic runs in two kinds of process: in the job and in replay over millions of events, compiled;
in an enforcer over a few, where loading a compiler would cost more memory than all the rest. So the functions
say only that they can be compiled, and nothing here knows how.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
MARK: Final = "_compilable"
LEAN: Final = "lean"
WITH_ARRAYS: Final = "with_arrays"


def compilable(function: Function) -> Function:
    """Mark a function that makes arrays of its own; see `columns.compiled.compiled`."""
    setattr(function, MARK, WITH_ARRAYS)
    return function


def compilable_lean(function: Function) -> Function:
    """Mark a function that makes no arrays; see `columns.compiled.lean`."""
    setattr(function, MARK, LEAN)
    return function
