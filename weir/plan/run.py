"""A log under its own policies and under others: what `weir replay --against` does."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from streaming.columns.outputs import Outputs
from streaming.laws.law import StepContext
from streaming.laws.registry import LAWS
from streaming.log.reading import read_records
from streaming.policy.files import load_policies
from streaming.replay import Replayed, drafts, in_order, summarise
from weir.plan.identity import prove
from weir.plan.progress import Progress
from weir.plan.sides import Plan, Side, candidate_of


@dataclass(frozen=True, slots=True)
class Planned:
    """What came of it.

    Attributes:
        replayed: the log under its own policies, as any replay has it; gone after the context.
        proven: how many recorded decisions came out again; None: none were given.
        plans: one for each file of policies that was tried.
    """

    replayed: Replayed
    proven: int | None
    plans: list[Plan]


@contextmanager
def plan(
    policies: str, events: Sequence[str], against: Sequence[str], recorded: Sequence[str] = (), *,
    as_decided: bool = False, totals: bool = False, near: str | None = None,
) -> Iterator[Planned]:  # fmt: skip
    """Decide a log, prove that it is to be trusted, and try other policies on it.

    Args:
        policies: file with the policies in force at the start.
        events: event files, in order.
        against: files of policies to try: these alone, all the time, whatever the log says of policies.
        recorded: files of decisions that must come out again; empty: nothing is proven.
        as_decided: what proxies have decided stands on the log's own side.
        totals: add up what each subject got, too.
        near: see `drafts`.

    Raises:
        ConfigError: policies are wrong.
        WeirError: a file cannot be read, or the log is not to be trusted.
    """
    initial, names = load_policies(policies), _names(against)
    candidates = [candidate_of(file) for file in against]
    context = StepContext(initial=initial, replay=True, fail_fast=True, as_decided=as_decided)
    steps = (len(LAWS.by_name) + 2) * (1 + len(against)) + 1
    with ExitStack() as held:
        with Progress(steps) as progress:
            progress.step("reading")
            records, outputs = read_records(events), Outputs()
            before = Side.of(records, context, outputs, progress.step)
            progress.step("writing")
            to = held.enter_context(drafts(near))
            to.bury(records, outputs)
            to.add(outputs.columns, records)
            replayed = to.finish()
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
        yield Planned(replayed, proven, plans)


def _names(files: Sequence[str]) -> list[str]:
    """Base names, and those that are not enough as they were given."""
    bases = Counter(map(os.path.basename, files))
    return [base if bases[base := os.path.basename(file)] == 1 else file for file in files]
