"""Limits from a log, and what they would have done to it: what `weir propose` does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from streaming.columns.outputs import Outputs
from streaming.columns.records import Records
from streaming.contract.errors import WeirError
from streaming.laws.law import CandidatePolicies, StepContext
from streaming.laws.shard import NEVER
from streaming.log.deciding import Replay
from streaming.log.reading import read_records
from streaming.policy.files import load_policies
from streaming.replay import in_order
from weir.plan.progress import Progress
from weir.plan.sides import NOTHING_SAID, Plan, Side
from weir.plan.verdicts import as_rows
from weir.propose.demand import asked_of
from weir.propose.entries import propose
from weir.propose.proposal import Asked, Proposal


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """What came of it.

    Attributes:
        proposal: the entries, and what stands behind each.
        plan: the log under no limit, and under these.
        events: how many there are that could be used, be it in part.
        span: the first and the last time of these, ms since the epoch.
        dead_letters: lines that could not be used.
    """

    proposal: Proposal
    plan: Plan
    events: int
    span: tuple[int, int]
    dead_letters: list[bytes]


def asked_in(records: Records, context: StepContext, outputs: Outputs) -> tuple[Asked, int]:
    """What a whole log asked for, by kind and measure, and how many of its events could be used, be it in
    part; `outputs` takes the dead letters."""
    replay = Replay(context)
    read = replay.read(records, outputs)
    events = int(np.count_nonzero(read.times(len(records)) != NEVER))
    asked = {
        (kind, measure): demand
        for law, batch, decided in replay.decide(read, last=True)
        if batch is not None
        for kind, measure, demand in asked_of(law.name, batch, as_rows(decided))
    }
    return asked, events


def run(
    files: Sequence[str], headroom: float, policies: str | None, kafka: str | None = None
) -> Proposed:
    """Look at a log, propose limits, and try them on it.

    Args:
        files: event files, in order.
        headroom: how many times what is usual limits are.
        policies: file with the policies in force at the start of the log; None: none but those in it.
        kafka: the cluster whose topics the files were made of; None: they are the caller's own.

    Raises:
        ConfigError: the policies are wrong.
        WeirError: a file cannot be read, or says of nobody what was asked.
    """
    initial: Mapping[str, Any] = {} if policies is None else load_policies(policies)
    context = StepContext(initial=initial, replay=True, fail_fast=True)
    with Progress(3) as progress:
        progress.step("reading")
        records = read_records(files)
        outputs = Outputs()
        asked, events = asked_in(records, context, outputs)
        progress.step("looking for what is usual")
        proposal, dead_letters = propose(asked, headroom), [*in_order(records, outputs).dead_letters]
        if not proposal.entries:
            also = "; {:,} lines could not be used, the first {topic}:{offset}: {reason}"
            raise WeirError(
                f"{kafka or ', '.join(files)}: nobody asks for anything, so there is nothing to propose"
                + (also.format(len(dead_letters), **orjson.loads(dead_letters[0])) if dead_letters else "")
            )
        proposal.keep_members(initial)
        progress.step("trying it")
        tried = CandidatePolicies.of("proposed", proposal.entries)
        plan, after = Plan(name=tried.name), Side(context.tried(tried))
        plan.add(NOTHING_SAID, after.decide(after.replay.read(records, Outputs())))
        plan.finish(None, after)
    times = [demand.at for demand in asked.values() if len(demand.at)]
    return Proposed(
        proposal=proposal, plan=plan, events=events, dead_letters=dead_letters,
        span=(min(int(at.min()) for at in times), max(int(at.max()) for at in times)),
    )  # fmt: skip
