"""The gate of `weir replay --against` where nobody reads what it prints."""

from argparse import Namespace
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from weir.commands import replay

GIVEN = dict.fromkeys(
    ("policies", "events", "against", "decisions", "as_decided", "summary", "out", "dead_letters",
     "report", "max_new_refused", "max_added_delay")
)  # fmt: skip


def gone(*_: Any) -> None:
    """Who read it is."""
    raise BrokenPipeError


@pytest.fixture(autouse=True)
def tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log whose gate says no."""
    replayed = SimpleNamespace(decisions=[b"{}"], dead_letters=[b"{}"], write=lambda *_: None)
    planned = nullcontext(SimpleNamespace(replayed=replayed, plans=["tighter"]))
    monkeypatch.setattr("weir.plan.run.plan", lambda *_, **__: planned)
    monkeypatch.setattr("weir.plan.run.objections", lambda plan, *_: [f"{plan}: 1 newly refused"])


def test_the_gate_holds_where_nobody_reads_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`weir replay --against FILE --max-new-refused 0 | head`: what it refuses is said, with status 1."""
    monkeypatch.setattr(replay, "_write", lambda *_: None)
    monkeypatch.setattr("weir.plan.shown.table.show", gone)
    assert replay._plan(Namespace(**GIVEN)) == 1
    assert capsys.readouterr().err == "weir: tighter: 1 newly refused\n"


def test_the_gate_holds_where_nobody_reads_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with `2>&1 | head -1`: no bound was looked at, and the status was 0."""
    monkeypatch.setattr("weir.plan.shown.table.show", lambda _: None)
    monkeypatch.setattr("sys.stderr", SimpleNamespace(write=gone, flush=gone))
    assert replay._plan(Namespace(**GIVEN)) == 1
