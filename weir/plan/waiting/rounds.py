"""Brokers that use no more of a group than their share, and send the rest later; see `loop`."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers
from streaming.columns.outputs import DecisionRows
from streaming.contract.events import Tick
from streaming.contract.usage_events import DIMENSIONS
from streaming.laws.law import Batch, Entry, LawSpec
from streaming.laws.shares.columns import no_reports
from streaming.laws.shares.intake import ReportBatch, Reports
from streaming.laws.shares.rounds import NO_SOURCE
from streaming.policy.groups import round_rules
from streaming.policy.timeline import PolicyTimeline
from weir.plan.verdicts import ALLOWED, EXACT_MAX, THROTTLED, Verdicts, as_rows, nth, overshoot_of
from weir.plan.waiting.queues import HELD_MAX_MS

Doubles = NDArray[np.float64]
_OF_ROWS = ("at", "ts", "period_ms", "source", "ticks", "counts", "throttled_ms", "group", "broker")


class _Waiting:
    """What members of groups have and hold back; a row a pair of group and broker, a column a dimension.

    Args:
        reports: all of a log.
    """

    def __init__(self, reports: Reports) -> None:
        groups, brokers = reports.groups.to_pylist(), reports.brokers.to_pylist()
        pairs, member = np.unique(reports.group * len(brokers) + reports.broker, return_inverse=True)
        self.member = member.ravel()
        """Of each report."""
        self._numbers = {
            (groups[pair // len(brokers)], brokers[pair % len(brokers)]): number
            for number, pair in enumerate(pairs.tolist())
        }
        self._share = np.full((len(pairs), len(DIMENSIONS)), np.nan)
        self._held = np.zeros((len(pairs), len(DIMENSIONS)))
        self.delay_ms = np.zeros(len(pairs), dtype=np.int64)

    def take(self, decided: DecisionRows) -> Integers:
        """Take new shares; how long each one's member holds back what is left of the round before, ms."""
        names = (decided.rows[name].to_pylist() for name in ("group", "broker"))
        member = np.array([self._numbers[pair] for pair in zip(*names, strict=True)], dtype=np.int64)
        delay_ms = self.delay_ms[member]
        said = (decided.rows[name].to_pylist() for name in ("limits", "shadow"))
        for own, limits, shadow in zip(member.tolist(), *said, strict=True):
            shares = {} if shadow or limits is None else dict(limits)
            self._share[own] = [shares.get(name, np.nan) for name in DIMENSIONS]
        # Where there is no share any more nothing is held back.
        self._held[np.isnan(self._share)] = 0.0
        return delay_ms

    def passed(self, reports: Reports, which: Integers) -> Reports:
        """These reports, of a member one at most, with what their shares let pass; the rest is held."""
        member, period_ms = self.member[which], reports.period_ms[which, np.newaxis]
        share, wanted = self._share[member], reports.counts[which] + self._held[member]
        limited = ~np.isnan(share)
        room = np.where(limited, np.floor(share * period_ms / 1000.0), wanted)
        counts = np.minimum(wanted, room)
        held = np.minimum(wanted - counts, np.where(limited, share * HELD_MAX_MS / 1000.0, 0.0))
        self._held[member] = held
        with np.errstate(invalid="ignore"):
            delays = np.where(limited, np.ceil(held / share * 1000.0), 0.0)
        self.delay_ms[member] = delays.max(axis=1)
        throttled_ms = np.where(held > 0.0, period_ms, np.where(limited, 0, reports.throttled_ms[which]))
        rows = {name: getattr(reports, name)[which] for name in _OF_ROWS}
        # Doubles count exactly up to there.
        exact = np.where(limited, np.minimum(counts, EXACT_MAX), 0).astype(np.int64)
        changed = {"counts": np.where(limited, exact, reports.counts[which]), "throttled_ms": throttled_ms}
        return reports._replace(**rows | changed)


def reports_that_wait(law: LawSpec, batch: Batch) -> Verdicts:
    """What the law of shares would have said, round by round.

    Args:
        law: the law of shares.
        batch: what it was asked of the log as recorded.
    """
    asked: ReportBatch = batch.events
    reports, table = asked.reports, law.table.from_columns({})
    waiting = _Waiting(reports)
    said, delays = list[DecisionRows](), list[Integers]()

    def decide(some: Reports, upto: int | None, *, end: bool = False) -> None:
        ticks = [] if upto is None else [Entry(Tick(id="", ts=upto, at=upto), NO_SOURCE)]
        said.append(as_rows(table.fold(replace(batch, events=ReportBatch(some, ticks), end=end))))
        delays.append(waiting.take(said[-1]))

    closed = 0
    for begin, end, steps in _rounds(reports, waiting.member, batch.timeline):
        if begin > closed:
            # Who was silent for long has no share any more.
            decide(no_reports(), begin)
        for which in steps[:-1]:
            decide(waiting.passed(reports, which), None)
        decide(waiting.passed(reports, steps[-1]), end)
        closed = end
    decide(no_reports(), None, end=True)
    rows, delay_ms = _joined(said), np.concatenate(delays)
    outcome = np.where(delay_ms > 0, THROTTLED, ALLOWED).astype(np.int8)
    return Verdicts.of(law, rows, outcome, delay_ms, overshoot_of(rows.rows))


def _rounds(
    reports: Reports, member: Integers, timeline: PolicyTimeline
) -> Iterator[tuple[int, int, list[Integers]]]:
    """When each round with reports begins and ends, ms, and its reports, those of a member one by one."""
    first = 0
    while first < len(reports.at):
        every = round_rules(timeline.at(int(reports.at[first]))).interval_ms
        begin = int(reports.at[first]) // every * every
        last = int(np.searchsorted(reports.at, begin + every))
        which = np.arange(first, last)
        turn = nth(member[which])
        yield begin, begin + every, [which[turn == number] for number in range(int(turn.max()) + 1)]
        first = last


def _joined(said: list[DecisionRows]) -> DecisionRows:
    """All of them as one."""
    table = pa.concat_tables(
        [pa.Table.from_batches([each.rows]) for each in said], promote_options="default"
    ).unify_dictionaries()
    columns = [column.combine_chunks() for column in table.columns]
    return replace(
        said[0], rows=pa.RecordBatch.from_arrays(columns, table.schema.names),
        source=np.concatenate([each.source for each in said]),
        keys=pa.concat_arrays([each.keys for each in said]),
    )  # fmt: skip
