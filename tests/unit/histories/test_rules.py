"""Each rule of simulated histories finds a part that was broken on purpose (tests/kit/simulated_rules.py)."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from simulated_histories import alone, broken, shrunk
from simulated_job import Job
from simulated_rules import RULES

from enforcer.core.membership import Alive
from enforcer.laws.mutation.admission import Admission
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from enforcer.laws.mutation.events import OpenQuestions
from enforcer.laws.mutation.local_decisions import LocalDecisions
from enforcer.laws.mutation.waiting import PendingRequests
from weir.logs import dump_lines


def nothing(*_: Any, **__: Any) -> None:
    """Instead of something."""


def never(*_: Any, **__: Any) -> bool:
    """Whatever it is asked."""
    return False


def forget_the_batch(job: Job, begin: int, end: int, processed_ts: int) -> Any:
    """The state moves on though the batch is not over."""
    body, said = DECIDE(job, begin, end, processed_ts)
    job._body = body
    return body, said


DECIDE = Job._decide
PARTS: dict[str, tuple[str, Any, str, Callable[..., Any]]] = {
    "it gives nothing back": ("counted", QuotaCoordinator, "settle", nothing),
    "a batch is decided anew": ("decided", Job, "_decide", forget_the_batch),
    "it admits what is refused": ("answered", Admission, "_decided", lambda one, _: one._settle("allow")),
    "one that is cut off goes on": ("stops", Alive, "blind", never),
    "each takes itself to be alone": ("above", LocalDecisions, "set_proxies", nothing),
    "a dump does not say what was late": ("replayed", dump_lines.Annotator, "_mark", nothing),
    "a dump does not say when": ("replayed", dump_lines.History, "_apply", nothing),
    "a question is never over": ("waiting", OpenQuestions, "end", nothing),
    "it hears of no decision": ("agreed", LocalDecisions, "stated", nothing),
    "it knows no answer": ("back", PendingRequests, "decide", nothing),
}
"""What is broken: the rule that finds it, where, and what stands there instead."""
SEEDS = {
    "it gives nothing back": 0, "a batch is decided anew": 0, "it admits what is refused": 3,
    "one that is cut off goes on": 287, "each takes itself to be alone": 310,
    "a dump does not say what was late": 2, "a dump does not say when": 2, "a question is never over": 0,
    "it hears of no decision": 4, "it knows no answer": 1,
}  # fmt: skip
"""A history in which it matters."""


@cache
def breaks_none(seed: int) -> bool:
    """Whether a history breaks no rule while nothing is broken."""
    return broken(alone(seed)) == {}


@pytest.mark.parametrize("what", PARTS)
def test_each_rule_finds_a_broken_part(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And each has one at least (below)."""
    rule, owner, name, instead = PARTS[what]
    assert breaks_none(SEEDS[what])
    monkeypatch.setattr(owner, name, instead)
    assert rule in broken(alone(SEEDS[what]))


def test_every_rule_has_a_broken_part() -> None:
    """A rule that finds nothing here may find nothing at all."""
    assert {rule for rule, *_ in PARTS.values()} == set(RULES)


def test_a_failing_history_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the fault that it takes."""
    what = "one that is cut off goes on"
    _, owner, name, instead = PARTS[what]
    assert shrunk(SEEDS[what]) is None
    monkeypatch.setattr(owner, name, instead)
    least = shrunk(SEEDS[what])
    assert least is not None and [fault.what for fault in least] == ["cut"]
