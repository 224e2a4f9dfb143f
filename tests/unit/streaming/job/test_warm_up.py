"""What a worker compiles before it is forked; that it is all: tests/spark/test_warm_up.py."""

from typing import Any

import pytest
from numba.core.dispatcher import Dispatcher

from streaming.job import operator
from streaming.laws.shares import intake
from streaming.state import cold_rows


def test_packed_reports_and_rows_that_rest_are_compiled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch with one of them took as long as that does."""
    needed: list[Any] = [intake._check, cold_rows._hash_all]
    # What single events lead to takes a minute to compile.
    monkeypatch.setattr(operator, "step", lambda *_: (None, None))
    monkeypatch.setattr(operator, "_route", lambda _event: None)
    operator.warm_up()
    assert all(isinstance(each, Dispatcher) and each.signatures for each in needed)
