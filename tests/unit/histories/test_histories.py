"""Whole histories on a simulated clock and network break no rule (docs/reliability.md).

By itself, one history: SEED=468 .venv/bin/python -m pytest tests/unit/histories -k alone
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from law_kit import T0
from simulated_case import JOB, OWN, Fault, Wish, befalls_job, draw
from simulated_histories import SIDE_BY_SIDE, alone, broken, company, failing, run, shrunk
from simulated_job import Job
from simulated_town import Town

from enforcer.core.bounds import OPEN_QUESTIONS_MAX

COUNT, MANY = 125, 10_000
ROOT = Path(__file__).resolve().parents[3]
DIGEST = "from test_histories import digest; print(digest())"


def told(seeds: Sequence[int]) -> str:
    """What the first of some histories breaks, and how to see it by itself."""
    for seed, found in failing(seeds):
        least = shrunk(seed)
        how = "only among those beside it" if least is None else f"with no more than {least}"
        return f"{found}\n{how}\nSEED={seed} .venv/bin/python -m pytest tests/unit/histories -k alone"
    return ""


def digest() -> str:
    """Of some histories, byte by byte."""
    towns = run([draw(seed) for seed in range(8)])
    return hashlib.sha256(b"\n\n".join(town.to_bytes() for town in towns)).hexdigest()


def test_histories_break_no_rule() -> None:
    """Whatever befalls their proxies and their job."""
    assert told(range(COUNT)) == ""


@pytest.mark.soak
@pytest.mark.parametrize("first", range(COUNT, MANY, SIDE_BY_SIDE))
def test_many_histories_break_no_rule(first: int) -> None:
    """The same for long."""
    assert told(range(first, first + SIDE_BY_SIDE)) == ""


def test_one_history_alone_breaks_no_rule() -> None:
    """That of SEED, with nobody beside it."""
    town = alone(int(os.environ.get("SEED", "0")))
    assert broken(town) == {}, town.to_bytes().decode()


def still(*wishes: Wish) -> Town:
    """One proxy, which stands still from 5 to 9 s; strict."""
    case, faults = draw(0), [Fault(5_000, "stop", 0, 4_000)]
    quota = {"controller_mutation_rate": 2.0, "controller_mutation_burst": 8.0, "decide": "strict"}
    job = Job(0, {case.path: quota}, [])
    return Town(replace(case, links=[(5, 5, 0)], quota=quota, wishes=list(wishes), faults=faults), job)


def test_who_wakes_does_nothing_that_was_cancelled() -> None:
    """A time limit that passed while it stood still and is cancelled by the answer, which is there before."""
    town, done = still(), list[tuple[str, int]]()

    def begin() -> None:
        life = town.lives[0]
        limit = life.after(2_000, lambda: done.append(("limit", town.now)))
        life.after(1_500, limit.cancel)
        life.after(1_600, lambda: done.append(("other", town.now)))

    town.at(T0 + 4_900, begin)
    town.job.run()
    assert done == [("other", T0 + 9_000)]


def test_who_stands_still_sees_no_client_leave() -> None:
    """But when it wakes: the decision that came before has it carried out."""
    town = still(Wish(4_990, 0.0, "h0", True, False, ("t",), (1,), frozenset(), 200))
    town.job.run()
    found = [(entry["what"], entry["at"]) for entry in town.entries if entry.get("n") == 0]
    assert found == [("asked", 4_990), ("done", 9_000), ("told", 9_005)]


def test_who_stands_still_reads_late() -> None:
    """All the time of a request that came meanwhile begins then: the last four wait for their turn."""
    count = OPEN_QUESTIONS_MAX + 4
    names = [f"t{n}" for n in range(count)]
    town = still(*(Wish(5_100, 0.0, "h0", True, False, (name,), (1,), frozenset(), None) for name in names))
    town.job.run()
    outcomes = [entry["outcome"] for entry in town.entries if entry["what"] == "told"]
    assert len(outcomes) > count and set(outcomes) == {"allow", "reject"}


def test_a_seed_says_all() -> None:
    """Another process, with other hashes, has the same history byte by byte."""
    paths = [str(ROOT), *(str(ROOT / "tests" / name) for name in ("kit", "soak")), str(Path(__file__).parent)]
    given = {**os.environ, "PYTHONPATH": ":".join(paths), "PYTHONHASHSEED": "7"}
    other = subprocess.run(
        [sys.executable, "-c", DIGEST], env=given, capture_output=True, text=True, timeout=300, check=True
    )
    assert other.stdout.strip() == digest()


def test_each_fault_befalls_some_history() -> None:
    """Of those that make test runs."""
    own = {fault.what for seed in range(COUNT) for fault in draw(seed).faults}
    of_job = {fault.what for number in range(company(MANY)) for fault in befalls_job(number)}
    assert own == set(OWN) and of_job == set(JOB)
