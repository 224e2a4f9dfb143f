"""The gate of `weir replay --against` where nobody reads its table."""

from argparse import Namespace
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from weir.commands import replay


def test_the_gate_holds_where_nobody_reads_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`weir replay --against FILE --max-new-refused 0 | head`: what it refuses is said, with status 1."""

    def show(planned: Any) -> None:
        raise BrokenPipeError

    planned = nullcontext(SimpleNamespace(replayed=None, plans=["tighter"]))
    monkeypatch.setattr("weir.plan.run.plan", lambda *_, **__: planned)
    monkeypatch.setattr("weir.plan.shown.table.show", show)
    monkeypatch.setattr("weir.plan.gate.objections", lambda plan, *_: [f"{plan}: 1 newly refused"])
    monkeypatch.setattr(replay, "_write", lambda *_: None)
    given = dict.fromkeys(
        ("policies", "events", "against", "decisions", "as_decided", "summary", "out", "report",
         "max_new_refused", "max_added_delay")
    )  # fmt: skip
    assert replay._plan(Namespace(**given)) == 1
    assert capsys.readouterr().err == "weir: tighter: 1 newly refused\n"
