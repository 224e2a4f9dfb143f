"""Twins of plain functions: the same numbers from machine code, and no compiler where none is asked for."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streaming.columns.compilable import compilable, compilable_lean
from streaming.columns.compiled import _say_that_none_is_kept, compiled, lean, machine
from streaming.laws.mutation import law, rates
from streaming.laws.mutation.rates import Doubles

ROOT = Path(__file__).resolve().parents[4]
LIMIT_S = 120


@compilable_lean
def half(number: float) -> float:
    """Called by `halves`."""
    return number / 2.0


@compilable
def halves(numbers: Doubles) -> Doubles:
    """Makes an array, and calls a marked function."""
    made = np.empty(len(numbers))
    for place in range(len(numbers)):
        made[place] = half(numbers[place])
    return made


def child(code: str) -> list[str]:
    """What a program of its own prints, by word."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, timeout=LIMIT_S, check=True, capture_output=True, text=True
    ).stdout.split()  # fmt: skip


def test_a_twin_gives_the_same_numbers() -> None:
    """Of a function, and of those that it calls; the plain one stays plain."""
    numbers = np.array([1.0, 3.0])
    assert machine(halves)(numbers).tolist() == halves(numbers).tolist() == [0.5, 1.5]
    assert type(law.walk) is type(half) and law.refill is rates.refill
    assert machine(rates.refill)(-60.0, 5.0, 500.0, 11_001) == rates.refill(-60.0, 5.0, 500.0, 11_001)


def test_the_same_function_has_one_twin() -> None:
    """Else each caller would compile its own."""
    assert machine(halves) is machine(halves)
    twin = machine(halves)
    assert getattr(twin, "py_func", twin).__globals__["half"] is machine(half)


def test_what_is_not_marked_is_not_compiled() -> None:
    """It may use what cannot be compiled."""
    with pytest.raises(ValueError, match="child is not marked"):
        machine(child)


def test_the_arithmetic_loads_no_compiler() -> None:
    """An enforcer takes the law for a few subjects: Numba alone would cost it 60 MB and half a second."""
    loaded = child(
        "import sys, streaming.laws.mutation.law\nprint(*{name.partition('.')[0] for name in sys.modules})"
    )
    assert "numpy" in loaded
    assert not {"numba", "llvmlite", "pyarrow", "pandas"} & set(loaded)


def test_where_nothing_can_be_kept_it_is_compiled_anew(caplog: pytest.LogCaptureFixture) -> None:
    """Read-only sources, of a user without a home: all commands that load a law ended in a traceback."""
    _say_that_none_is_kept.cache_clear()
    names: dict[str, Any] = {}
    # Of no file: nor does Numba find a folder for it.
    exec("def twice(number): return number * 2\ndef thrice(number): return number * 3", names)
    assert (compiled(names["twice"])(2), lean(names["thrice"])(2)) == (4, 6)
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "no folder to keep compiled laws in"
    ]


def test_machine_code_is_kept_on_disk() -> None:
    """Another process reads it: a worker that compiled would hold its first batch up for seconds."""
    code = (
        "from streaming.columns.compiled import machine\n"
        "from streaming.laws.mutation import rates\n"
        "refill = machine(rates.refill)\n"
        "refill(1.0, 1.0, 1.0, 1)\n"
        "print(sum(refill.stats.cache_hits.values()), sum(refill.stats.cache_misses.values()))"
    )
    machine(rates.refill)(1.0, 1.0, 1.0, 1)
    assert child(code) == ["1", "0"]
