"""A log under one set of policies, and two of them beside each other, some of it at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Self

import numpy as np

from enforcer.control.answers.ladder import entry_of, ladder
from enforcer.control.entities.laws import MEASURES, NAMES, Entity, Law
from streaming.columns.byte_strings import Integers
from streaming.columns.outputs import DecisionRows
from streaming.laws.law import FOR_EVER, Batch, StepContext
from streaming.laws.registry import LAWS
from streaming.laws.shard import BatchContent
from streaming.log.deciding import Replay
from streaming.policy.policy_set import PolicySet
from weir.plan.comparison import Comparison, Row
from weir.plan.verdicts import Judge, Verdicts, as_rows
from weir.plan.waiting.loop import that_wait
from weir.plan.waiting.queues import NOBODY

_LAWS: Final = dict(zip(NAMES, Law, strict=True))


class Said(NamedTuple):
    """What a law says of some of a log; None: nothing.

    Attributes:
        decided: its decisions.
        recorded: what they come to.
        waiting: what comes to be meanwhile if clients wait and try again,
        late: and the sources of what still waits.
        closed: of what is told by the round: all of these times (ms) is told.
    """

    decided: DecisionRows | None
    recorded: Verdicts | None
    waiting: Verdicts | None
    late: Integers
    closed: int


class Side:
    """A log under some policies, some of it after the other.

    Args:
        context: these.

    Attributes:
        replay: what decides.
        end_ms: the newest time that anything was decided at.
    """

    def __init__(self, context: StepContext) -> None:
        self.replay, self.end_ms = Replay(context), 0
        self._judges = {name: Judge(law) for name, law in LAWS.by_name.items()}
        self._waiting = {
            name: that_wait(law, self.replay.timelines[name]) for name, law in LAWS.by_name.items()
        }

    @property
    def beyond(self) -> int:
        """How many could not wait, since too many did."""
        return sum(waiting.beyond for waiting in self._waiting.values())

    def decide(self, read: BatchContent, first: int = 0, upto: int = FOR_EVER) -> dict[str, Said]:
        """Decide what comes next, by law.

        Args:
            read: what its records say.
            first: how many records came before.
            upto: ms; all that follows is of this time or later. FOR_EVER: nothing follows.
        """
        own: dict[str, tuple[Batch | None, DecisionRows]] = {
            law.name: (batch, as_rows(decided))
            for law, batch, decided in self.replay.decide(read, last=upto == FOR_EVER)
        }
        said = {}
        for name, waiting in self._waiting.items():
            batch, decided = own.get(name, (None, None))
            recorded = None
            if decided is not None:
                recorded = self._judges[name].verdicts(None if batch is None else batch.events, decided)
                # Numbers of records of the whole log.
                known = recorded.source >= 0
                recorded = replace(recorded, source=np.where(known, recorded.source + first, recorded.source))
                self.end_ms = max(self.end_ms, int(recorded.ts.max(initial=0)))
            waited, late = waiting.step(batch, decided, recorded, upto)
            recorded, waited = (each and each.of_clients() for each in (recorded, waited))
            said[name] = Said(decided, recorded, waited, late, waiting.closed)
        return said


NOTHING_SAID: Final = dict.fromkeys(LAWS.by_name, Said(None, None, None, NOBODY, FOR_EVER))
"""Of a side without policies."""


class _Meeting:
    """Keeps what one side has decided until the other has, too."""

    def __init__(self) -> None:
        self._kept: list[Verdicts | None] = [None, None]

    def pairs(self, before: Said, after: Said) -> Iterator[Verdicts | None]:
        """What both sides have decided, or only one ever will."""
        for number, (own, other) in enumerate(((before, after), (after, before))):
            kept, new = self._kept[number], own.waiting
            some, self._kept[number] = kept if new is None else new.behind(kept), None
            if some is not None:
                early = np.isin(some.source, other.late) | (some.ts > other.closed)
                if early.any():
                    self._kept[number], some = some.only(early), some.only(~early)
            yield some


@dataclass(slots=True, kw_only=True)
class Plan:
    """Two sides beside each other.

    Attributes:
        name: of the file of the policies that are tried.
        recorded, waiting: what differs in either run.
        rows: of `recorded`, those who are hurt most first, and `waiting_rows` of the other by law and name.
        totals: by side, then subject: what `weir replay --summary` says.
        beyond: how many could not wait, since too many did; of either side together.
    """

    name: str
    recorded: Comparison = field(default_factory=Comparison)
    waiting: Comparison = field(default_factory=Comparison)
    rows: list[Row] = field(default_factory=list)
    waiting_rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    totals: tuple[dict[str, Any], dict[str, Any]] = field(default_factory=lambda: ({}, {}))
    beyond: int = 0
    _meetings: dict[str, _Meeting] = field(
        default_factory=lambda: {name: _Meeting() for name in LAWS.by_name}
    )

    def add(self, before: Mapping[str, Said], after: Mapping[str, Said]) -> None:
        """Compare what either side said of the same part of a log."""
        for law, meeting in self._meetings.items():
            self.recorded.add(before[law].recorded, after[law].recorded)
            self.waiting.add(*meeting.pairs(before[law], after[law]))

    def finish(self, before: Side | None, after: Side) -> Self:
        """All was added; either side knows the policies of the end. None: nothing limits before."""
        self.rows = self.recorded.rows()
        sides = [side for side in (before, after) if side is not None]
        at, self.beyond = max(side.end_ms for side in sides), sum(side.beyond for side in sides)
        for row in self.rows:
            for number, side in enumerate((before, after)):
                if side is not None and row.whose:
                    policies = side.replay.timelines[row.law].at(at)
                    row.entries[number] = entries_of(policies, row.law, row.whose)
        self.waiting_rows = {(row.law, row.whose): row for row in self.waiting.rows()}
        return self


def entries_of(policies: PolicySet, law: str, whose: str) -> list[str]:
    """Paths of the entries that set any of a law's limits for somebody, as `weir explain` looks for them."""
    of = _LAWS[law]
    levels = (ladder(policies, Entity(of, whose), measure) for measure in range(len(MEASURES[of])))
    return list(dict.fromkeys(path for path in map(entry_of, levels) if path is not None))
