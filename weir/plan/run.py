"""A log under its own policies and under others: what `weir replay --against` does."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from streaming.columns.outputs import Decided
from streaming.laws.law import FOR_EVER, CandidatePolicies, StepContext
from streaming.log.reading import as_text
from streaming.log.stretches import Stretch
from streaming.policy.files import load_policies
from streaming.replay import Decider, Drafts, ReplayResult, drafts, replaying, summarise
from weir.plan.comparison import SIDES, flips
from weir.plan.identity import prove
from weir.plan.progress import Progress
from weir.plan.sides import Plan, Said, Side


@dataclass(frozen=True, slots=True)
class Planned:
    """What came of it.

    Attributes:
        replayed: the log under its own policies, as any replay has it; gone after the context.
        proven: how many recorded decisions came out again; None: none were given.
        plans: one for each file of policies that was tried.
    """

    replayed: ReplayResult
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
        near: see `room_near`.

    Raises:
        ConfigError: policies are wrong.
        WeirError: a file cannot be read, or the log is not to be trusted.
    """
    named = zip(_names(against), against, strict=True)
    tried = [CandidatePolicies.of(name, load_policies(file)) for name, file in named]
    made = list[_Sides]()

    def decider(context: StepContext) -> _Sides:
        made.append(_Sides(context, tried, (lambda: held.enter_context(drafts(near))) if totals else None))
        return made[-1]

    with ExitStack() as held:
        with Progress() as progress:
            replayed = held.enter_context(replaying(
                policies, events, as_decided=as_decided, near=near, tell=progress.tell, decider=decider
            ))  # fmt: skip
            proven = prove(recorded, replayed.decisions, near) if recorded else None
            plans = made[-1].finish()
            own = summarise(replayed.decisions)["subjects"] if totals else {}
            for plan, to in zip(plans, made[-1].written, strict=True):
                if to is not None:
                    plan.totals = own, summarise(to.finish().decisions)["subjects"]
        yield Planned(replayed, proven, plans)


class _Sides(Decider):
    """A log under its own policies, and under those that are tried.

    Args:
        context: as recorded.
        tried: what is tried.
        drafts: makes room for what would be decided; None: nobody wants to know.
    """

    def __init__(
        self, context: StepContext, tried: Sequence[CandidatePolicies], drafts: Callable[[], Drafts] | None
    ) -> None:
        self._before = Side(context)
        self.replay, self._records = self._before.replay, 0
        self._tried = [(Side(context.tried(each)), Plan(name=each.name)) for each in tried]
        self.written = [None if drafts is None else drafts() for _ in tried]

    def decide(self, stretch: Stretch, *, last: bool) -> list[Decided]:
        """Decide what comes next by all of them, and compare."""
        upto = FOR_EVER if last else stretch.upto
        before = self._before.decide(stretch.read, self._records, upto)
        for (side, plan), to in zip(self._tried, self.written, strict=True):
            after = side.decide(stretch.read, self._records, upto)
            plan.add(before, after)
            if to is not None:
                to.add(_decided(after), stretch.records, stretch.upto)
        self._records += len(stretch.records)
        return _decided(before)

    def finish(self) -> list[Plan]:
        """The whole log was decided."""
        return [plan.finish(self._before, side) for side, plan in self._tried]


def _decided(said: Mapping[str, Said]) -> list[Decided]:
    return [each.decided for each in said.values() if each.decided is not None]


def _names(files: Sequence[str]) -> list[str]:
    """Base names; those that are not enough, or are keys of a summary themselves, as paths."""
    told = [*map(as_text, files)]
    taken, paths = Counter([*SIDES, "flips", *map(os.path.basename, told)]), map(os.path.split, told)
    return [base if taken[base] == 1 else os.path.join(folder or os.curdir, base) for folder, base in paths]


def objections(plan: Plan, new_refused_max: int | None, added_delay_max_s: float | None) -> Iterator[str]:
    """What is beyond the bounds, a line each, with who is worst off; of the log as recorded.

    Args:
        plan: what differs.
        new_refused_max: how many that are let through may be refused, of all together; None: any.
        added_delay_max_s: by how much one decision's delay may grow, s; None: by any.
    """
    refused, _ = flips(plan.rows)
    if new_refused_max is not None and refused > new_refused_max:
        worst = max(plan.rows, key=lambda row: row.counts.refused)
        yield (
            f"{plan.name}: {refused} newly refused, {new_refused_max} allowed by --max-new-refused;"
            f" worst: {worst.whose} ({worst.law}) with {worst.counts.refused}"
        )
    slowest = max(plan.rows, key=lambda row: row.worst_ms, default=None)
    if slowest is None or added_delay_max_s is None:
        return
    if slowest.worst_ms > added_delay_max_s * 1000:
        yield (
            f"{plan.name}: {slowest.worst_ms / 1000:g} s of delay added, {added_delay_max_s:g} s allowed by"
            f" --max-added-delay; worst: {slowest.whose} ({slowest.law}) at {slowest.worst_id}"
        )
