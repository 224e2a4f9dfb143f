"""A log under one set of policies, and two of them beside each other."""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import orjson

from streaming.columns.outputs import Outputs
from streaming.columns.records import Records
from streaming.laws.law import CandidatePolicies, StepContext
from streaming.laws.registry import LAWS
from streaming.log.deciding import replay_laws
from streaming.policy.files import load_policies
from streaming.policy.timeline import PolicyTimeline
from weir.plan.comparison import Comparison, Row
from weir.plan.entries import entries_of
from weir.plan.verdicts import Verdicts, as_rows, verdicts_of
from weir.plan.waiting.loop import that_wait


@dataclass(slots=True)
class Side:
    """What a log comes to under some policies.

    Attributes:
        recorded: by law, of the log as recorded.
        waiting: by law, of clients that wait and try again.
        timelines: by law, the policies that it goes by.
        end_ms: the newest time that anything was decided at.
    """

    recorded: dict[str, Verdicts] = field(default_factory=dict)
    waiting: dict[str, Verdicts] = field(default_factory=dict)
    timelines: dict[str, PolicyTimeline] = field(default_factory=dict)
    end_ms: int = 0

    @classmethod
    def of(
        cls, records: Records, context: StepContext, outputs: Outputs, tell: Callable[[str], None]
    ) -> Self:
        """Decide a log.

        Args:
            records: the log.
            context: by which policies, and how.
            outputs: takes what was written.
            tell: told what is done next, for people.
        """
        side = cls()
        tell("deciding")
        for law, batch, decided in replay_laws(records, context, outputs):
            outputs.add(decided)
            tell(f"{law.name}, clients that wait")
            rows = as_rows(decided)
            verdicts = verdicts_of(law, batch.events, rows)
            side.recorded[law.name] = verdicts
            side.waiting[law.name] = that_wait(law, batch, rows, verdicts)
            side.timelines[law.name] = batch.timeline
            side.end_ms = max(side.end_ms, int(verdicts.ts.max(initial=0)))
        return side


@dataclass(slots=True, kw_only=True)
class Plan:
    """Two sides beside each other.

    Attributes:
        name: of the file of the policies that are tried.
        recorded, waiting: what differs in either run.
        rows: of `recorded`, those who are hurt most first, and `waiting_rows` of the other by law and name.
        totals: by side, then subject: what `weir replay --summary` says.
    """

    name: str
    recorded: Comparison
    waiting: Comparison
    rows: list[Row]
    waiting_rows: dict[tuple[str, str], Row]
    totals: tuple[dict[str, Any], dict[str, Any]] = field(default_factory=lambda: ({}, {}))

    @classmethod
    def of(cls, name: str, before: Side, after: Side) -> Self:
        """Compare."""
        recorded, waiting = Comparison(), Comparison()
        for law in LAWS.by_name:
            recorded.add(before.recorded.get(law), after.recorded.get(law))
            waiting.add(before.waiting.get(law), after.waiting.get(law))
        rows = recorded.rows()
        at = max(before.end_ms, after.end_ms)
        for row in rows:
            for number, side in enumerate((before, after)):
                if row.law in side.timelines and row.whose:
                    row.entries[number] = entries_of(side.timelines[row.law].at(at), row.law, row.whose)
        found = {(row.law, row.whose): row for row in waiting.rows()}
        return cls(name=name, recorded=recorded, waiting=waiting, rows=rows, waiting_rows=found)


def candidate_of(file: str) -> CandidatePolicies:
    """The policies of a file, to be tried.

    Raises:
        ConfigError: they are wrong.
    """
    entries: Mapping[str, Any] = load_policies(file)
    digest = hashlib.sha256(orjson.dumps(entries, option=orjson.OPT_SORT_KEYS)).digest()
    return CandidatePolicies(name=os.path.basename(file), entries=entries, digest=digest)
