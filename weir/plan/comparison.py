"""What would have differed: the verdicts of one log under two sets of policies, side by side.

Verdicts are laid beside each other by what they answer. One that only one side has, since nothing limits
there, is beside a free one. All is counted by whom it concerns (`whose`): the quota entity, of shares the
group, of dispatch TOPIC/SUBSCRIPTION, else partition or topic, each by its law.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers
from streaming.contract.fields import INT64_MAX
from weir.plan.delays import NO_DELAYS, Counted, Delays, grouped
from weir.plan.verdicts import ALLOWED, REFUSED, THROTTLED, Outcomes, Verdicts, nth

HOUR_MS: Final = 3_600_000
SIDES: Final = ("policies", "against")
NOBODY: Final = -1
"""Number of a verdict that one side does not have."""
HURT, HELPED, SAME = "hurt", "helped", "same"
_OUTCOMES: Final = 3


class Difference(NamedTuple):
    """One decision that would have been another."""

    ts: int
    law: str
    id: str
    whose: str


@dataclass(slots=True)
class Counts:
    """Of somebody, or of an hour.

    Attributes:
        outcomes: by side, then ALLOWED, THROTTLED, REFUSED.
        refused, allowed: flips: let through before and refused after, and the other way round.
    """

    outcomes: Integers = field(default_factory=lambda: np.zeros((2, _OUTCOMES), dtype=np.int64))
    refused: int = 0
    allowed: int = 0

    @classmethod
    def of(cls, counted: Integers) -> Self:
        """What stands in a row of the counts of Comparison."""
        *_, refused, allowed = counted.tolist()
        return cls(counted[: 2 * _OUTCOMES].reshape(2, _OUTCOMES), refused, allowed)


@dataclass(slots=True)
class Row:
    """What would have differed for one entity under one law.

    Attributes:
        law, whose: who it is.
        counts: of the whole log.
        hours: by hour since the epoch, of whoever is hurt or helped.
        delay_ms: percentiles, by side.
        waited_ms: sum of all delays, by side.
        worst_ms: the most that one decision's delay grew; 0: none did.
        worst_id: which one.
        overshoot: of shares, see Verdicts, by side.
        entries: paths of the entries that limit it, by side.
    """

    law: str
    whose: str
    counts: Counts = field(default_factory=Counts)
    hours: dict[int, Counts] = field(default_factory=dict)
    delay_ms: list[dict[str, int]] = field(default_factory=lambda: [dict(NO_DELAYS), dict(NO_DELAYS)])
    waited_ms: list[int] = field(default_factory=lambda: [0, 0])
    worst_ms: int = 0
    worst_id: str = ""
    overshoot: list[float] = field(default_factory=lambda: [0.0, 0.0])
    entries: list[list[str]] = field(default_factory=lambda: [[], []])

    @property
    def hurt(self) -> tuple[int, int, int]:
        """How much worse off it is: more refusals, then more ms of waiting, then more that is throttled;
        negative: better off.
        """
        throttled = self.counts.outcomes[:, THROTTLED].tolist()
        waited = self.waited_ms[1] - self.waited_ms[0]
        return self.counts.refused - self.counts.allowed, waited, throttled[1] - throttled[0]

    @property
    def fate(self) -> str:
        """HURT, HELPED or SAME, as the first of these says that is not 0."""
        return SAME if self.hurt == (0, 0, 0) else HURT if self.hurt > (0, 0, 0) else HELPED


class Comparison:
    """Adds up verdicts, a law at a time or several times a law, as long as pairs come together."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], int] = {}
        self._listed: list[Row] = []
        self._delays = (Delays(), Delays())
        self._subjects: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._by_subject = (Delays(), Delays())
        # By somebody and hour: by side each outcome, then flips.
        self._cells = Counted(2 * _OUTCOMES + 2)
        self.first: Difference | None = None

    def add(self, before: Verdicts | None, after: Verdicts | None) -> None:
        """Take what a law said under either side; None: it had nothing to say."""
        some = before or after
        if some is None:
            return
        places = _paired(before, after)
        sides = (_Side.of(before, places[0]), _Side.of(after, places[1]))
        row = self._row_of(some.law, sides)
        for number, (verdicts, side) in enumerate(zip((before, after), sides, strict=True)):
            self._delays[number].add(row, side.delay_ms)
            if verdicts is not None:
                self._add_subjects(number, verdicts)
                for group, beyond in verdicts.overshoot.items():
                    own = self._listed[self._row(some.law, group)].overshoot
                    own[number] = max(own[number], beyond)
        self._count(row, *sides)
        self._note_first(some.law, row, *sides)

    def rows(self) -> list[Row]:
        """Everybody, those who are hurt most first and those who are helped most last."""
        for number, delays in enumerate(self._delays):
            for place, found in delays.percentiles().items():
                self._listed[place].delay_ms[number] = found
        whose, hour, count = self._cells.merged()
        first = np.flatnonzero(np.diff(whose, prepend=NOBODY))
        for begin, end in pairwise([*first.tolist(), len(whose)]):
            row = self._listed[int(whose[begin])]
            row.counts = Counts.of(count[begin:end].sum(axis=0))
            if row.fate != SAME:
                hours = hour[begin:end].tolist()
                row.hours = dict(zip(hours, map(Counts.of, count[begin:end]), strict=True))
        return sorted(self._listed, key=lambda row: ([-part for part in row.hurt], row.law, row.whose))

    def hours(self) -> dict[int, Counts]:
        """Of all together, by hour since the epoch."""
        _, hour, count = self._cells.merged()
        (known,), total = grouped((hour,), count, np.add)
        return dict(zip(known.tolist(), map(Counts.of, total), strict=True))

    def delay_ms(self, side: int) -> dict[str, int]:
        """Percentiles over all."""
        return self._delays[side].total()

    def delays_by_subject(self, side: int) -> dict[str, dict[str, int]]:
        """Percentiles by subject, as summaries name them."""
        found = self._by_subject[side].percentiles()
        return {name: found[number] for name, number in self._subjects[side].items() if number in found}

    def _add_subjects(self, side: int, verdicts: Verdicts) -> None:
        known = self._subjects[side]
        numbers = np.array([known.setdefault(name, len(known)) for name in verdicts.subjects], dtype=np.int64)
        self._by_subject[side].add(numbers[verdicts.subject], verdicts.delay_ms)

    def _row(self, law: str, name: str) -> int:
        number = self._rows.setdefault((law, name), len(self._rows))
        if number == len(self._listed):
            self._listed.append(Row(law=law, whose=name))
        return number

    def _row_of(self, law: str, sides: "tuple[_Side, _Side]") -> Integers:
        """Number of whom each pair concerns: whom it limits after, else before."""
        rows = np.full(len(sides[0].ts), NOBODY, dtype=np.int64)
        for side in sides:
            used = np.unique(side.whose[side.whose != NOBODY])
            # The last one is of NOBODY.
            number = np.full(len(side.names) + 1, NOBODY, dtype=np.int64)
            number[used] = [self._row(law, side.names[each]) if side.names[each] else NOBODY for each in used]
            found = number[side.whose]
            rows = np.where(found != NOBODY, found, rows)
        if (rows == NOBODY).any():
            rows[rows == NOBODY] = self._row(law, "")
        return rows

    def _count(self, row: Integers, before: "_Side", after: "_Side") -> None:
        hour = np.maximum(before.ts, after.ts) // HOUR_MS
        refused = (before.outcome != REFUSED) & (after.outcome == REFUSED)
        allowed = (before.outcome == REFUSED) & (after.outcome != REFUSED)
        flags = [side.outcome == outcome for side in (before, after) for outcome in range(_OUTCOMES)]
        self._cells.count(row, hour, np.stack([*flags, refused, allowed], axis=1).astype(np.int64))
        for number, side in enumerate((before, after)):
            waited = np.bincount(row, side.delay_ms, len(self._listed))
            for place in np.flatnonzero(waited).tolist():
                own = self._listed[place].waited_ms
                own[number] = min(INT64_MAX, own[number] + int(waited[place]))
        self._note_worst(row, before, after)

    def _note_worst(self, row: Integers, before: "_Side", after: "_Side") -> None:
        added = after.delay_ms - before.delay_ms
        order = np.lexsort((-added, row))
        first = order[np.flatnonzero(np.diff(row[order], prepend=NOBODY))]
        for place in first[added[first] > 0].tolist():
            own = self._listed[int(row[place])]
            if added[place] > own.worst_ms:
                own.worst_ms, own.worst_id = int(added[place]), after.id_of(place)

    def _note_first(self, law: str, row: Integers, before: "_Side", after: "_Side") -> None:
        changed = np.flatnonzero((before.outcome != after.outcome) | (before.delay_ms != after.delay_ms))
        if not len(changed):
            return
        ts = np.maximum(before.ts, after.ts)[changed]
        for place in changed[ts == ts.min()].tolist():
            name = before.id_of(place) or after.id_of(place)
            found = Difference(int(ts.min()), law, name, self._listed[int(row[place])].whose)
            self.first = found if self.first is None else min(self.first, found)


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of pairs, a row each; what it does not have is free, and concerns NOBODY."""

    verdicts: Verdicts | None
    places: Integers
    names: Sequence[str]
    whose: Integers
    ts: Integers
    outcome: Outcomes
    delay_ms: Integers

    @classmethod
    def of(cls, verdicts: Verdicts | None, places: Integers) -> "_Side":
        def taken(column: NDArray[Any], missing: int) -> NDArray[Any]:
            found = np.full_like(column, missing, shape=len(places))
            found[there] = column[places[there]]
            return found

        there = places != NOBODY
        if verdicts is None:
            free = np.zeros(len(places), dtype=np.int64)
            return cls(None, places, (), places, free, free.astype(np.int8), free)
        return cls(
            verdicts, places, verdicts.names, taken(verdicts.name, NOBODY), taken(verdicts.ts, 0),
            taken(verdicts.outcome, ALLOWED), taken(verdicts.delay_ms, 0),
        )  # fmt: skip

    def id_of(self, place: int) -> str:
        """Id of one's decision; empty: there is none."""
        at = int(self.places[place])
        return "" if at == NOBODY or self.verdicts is None else str(self.verdicts.ids[at].as_py())


def _paired(before: Verdicts | None, after: Verdicts | None) -> tuple[Integers, Integers]:
    """Verdicts of one law side by side: by side their places, NOBODY where there is none."""
    if not before or not after:
        count = len(before or after or ())
        there, none = np.arange(count), np.full(count, NOBODY)
        return (none, there) if after else (there, none)
    keys = _keys(before, after)
    if len(keys[0]) == len(keys[1]) and (keys[0] == keys[1]).all():
        return np.arange(len(before)), np.arange(len(after))
    order = np.argsort(keys[1], kind="stable")
    place = np.searchsorted(keys[1], keys[0], sorter=order)
    found = order[np.minimum(place, len(order) - 1)]
    found = np.where(keys[1][found] == keys[0], found, NOBODY)
    alone = np.setdiff1d(np.arange(len(after)), found)
    first = np.concatenate([np.arange(len(before)), np.full(len(alone), NOBODY)])
    return first, np.concatenate([found, alone])


def _keys(before: Verdicts, after: Verdicts) -> tuple[Integers, Integers]:
    """What each verdict answers, as a number that no other verdict of its side has."""
    if (before.source >= 0).all() and (after.source >= 0).all():
        most = max(int(side.source.max(initial=0)) for side in (before, after)) + 1
        # A record may be answered several times: by each sample of it.
        return tuple(nth(side.source) * most + side.source for side in (before, after))  # type: ignore[return-value]
    numbers: dict[str, int] = defaultdict(lambda: len(numbers))
    named = (np.array([numbers[name] for name in side.ids.to_pylist()], np.int64) for side in (before, after))
    return next(named), next(named)


def flips(rows: Iterable[Row]) -> tuple[int, int]:
    """Newly refused, and newly let through, of all."""
    counts = [row.counts for row in rows]
    return sum(each.refused for each in counts), sum(each.allowed for each in counts)
