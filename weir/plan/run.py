"""A log under its own policies and under others: what `weir replay --against` does."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from streaming.columns.outputs import Outputs
from streaming.laws.law import StepContext
from streaming.laws.registry import LAWS
from streaming.policy.files import load_policies
from streaming.replay import ReplayResult, in_order, read_records, summarise
from weir.plan.identity import prove
from weir.plan.progress import Progress
from weir.plan.sides import Plan, Side, candidate_of


@dataclass(frozen=True, slots=True)
class Planned:
    """What came of it.

    Attributes:
        replayed: the log under its own policies, as any replay has it.
        proven: how many recorded decisions came out again; None: none were given.
        plans: one for each file of policies that was tried.
    """

    replayed: ReplayResult
    proven: int | None
    plans: list[Plan]


def plan(
    policies: str, events: Sequence[str], against: Sequence[str], recorded: Sequence[str] = (), *,
    as_decided: bool = False, totals: bool = False,
) -> Planned:  # fmt: skip
    """Decide a log, prove that it is to be trusted, and try other policies on it.

    Args:
        policies: file with the policies in force at the start.
        events: event files, in order.
        against: files of policies to try: these alone, all the time, whatever the log says of policies.
        recorded: files of decisions that must come out again; empty: nothing is proven.
        as_decided: what proxies have decided stands on the log's own side.
        totals: add up what each subject got, too.

    Raises:
        ConfigError: policies are wrong.
        WeirError: a file cannot be read, or the log is not to be trusted.
    """
    initial, names = load_policies(policies), _names(against)
    candidates = [candidate_of(file) for file in against]
    context = StepContext(initial=initial, replay=True, fail_fast=True, as_decided=as_decided)
    steps = (len(LAWS.by_name) + 2) * (1 + len(against)) + 1
    with Progress(steps) as progress:
        progress.step("reading")
        records = read_records(events)
        outputs = Outputs()
        before = Side.of(records, context, outputs, progress.step)
        progress.step("writing")
        replayed = in_order(records, outputs)
        del outputs
        proven = prove(recorded, replayed.decisions) if recorded else None
        own_totals = summarise(replayed.decisions)["subjects"] if totals else {}
        plans = []
        for name, candidate in zip(names, candidates, strict=True):
            outputs = Outputs()
            after = Side.of(records, context.tried(candidate), outputs, progress.step)
            progress.step(f"comparing {name}")
            found = Plan.of(name, before, after)
            if totals:
                found.totals = own_totals, summarise(in_order(records, outputs).decisions)["subjects"]
            plans.append(found)
    return Planned(replayed, proven, plans)


def _names(files: Sequence[str]) -> list[str]:
    """Base names, and those that are not enough as they were given."""
    bases = Counter(map(os.path.basename, files))
    return [base if bases[base := os.path.basename(file)] == 1 else file for file in files]
