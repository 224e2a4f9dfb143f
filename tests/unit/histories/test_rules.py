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
PARTS: dict[str, tuple[str, int, Any, str, Callable[..., Any]]] = {
    "it gives nothing back": ("counted", 0, QuotaCoordinator, "settle", nothing),
    "a batch is decided anew": ("decided", 0, Job, "_decide", forget_the_batch),
    "it admits what is refused": ("answered", 3, Admission, "_decided", lambda one, _: one._settle("allow")),
    "one that is cut off goes on": ("stops", 287, Alive, "blind", never),
    "each takes itself to be alone": ("above", 310, LocalDecisions, "set_proxies", nothing),
    "a dump does not say what was late": ("replayed", 2, dump_lines.Annotator, "_mark", nothing),
    "a dump does not say when": ("replayed", 2, dump_lines.History, "_apply", nothing),
    "a question is never over": ("waiting", 0, OpenQuestions, "end", nothing),
    "it hears of no decision": ("agreed", 4, LocalDecisions, "stated", nothing),
    "it knows no answer": ("back", 1, PendingRequests, "decide", nothing),
}
"""What is broken: the rule that finds it, a history in which it matters, where, and what stands there."""


@cache
def breaks_none(seed: int) -> bool:
    """Whether a history breaks no rule while nothing is broken."""
    return broken(alone(seed)) == {}


@pytest.mark.parametrize("what", PARTS)
def test_each_rule_finds_a_broken_part(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And each has one at least (below)."""
    rule, seed, owner, name, instead = PARTS[what]
    assert breaks_none(seed)
    monkeypatch.setattr(owner, name, instead)
    assert rule in broken(alone(seed))


def test_every_rule_has_a_broken_part() -> None:
    """A rule that finds nothing here may find nothing at all."""
    assert {rule for rule, *_ in PARTS.values()} == set(RULES)


def test_a_failing_history_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the fault that it takes."""
    _, seed, owner, name, instead = PARTS["one that is cut off goes on"]
    assert shrunk(seed) is None
    monkeypatch.setattr(owner, name, instead)
    least = shrunk(seed)
    assert least is not None and [fault.what for fault in least] == ["cut"]
