"""Brokers that use no more of a group than their share, and send the rest later; see `loop`."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from streaming.columns.byte_strings import Integers
from streaming.columns.outputs import DecisionRows
from streaming.contract.usage_events import DIMENSIONS
from streaming.laws.law import FOR_EVER, Batch, LawSpec
from streaming.laws.shares.intake import Reports, no_reports
from streaming.policy.groups import round_rules
from streaming.policy.timeline import PolicyTimeline
from weir.plan.verdicts import ALLOWED, EXACT_MAX, THROTTLED, Verdicts, as_rows, nth, overshoot_of
from weir.plan.waiting.queues import HELD_MAX_MS, NOBODY, Waiting

_OF_ROWS = ("at", "ts", "period_ms", "source", "ticks", "counts", "throttled_ms", "group", "broker")


class _Members:
    """What members of groups have and hold back; a row a pair of group and broker, a column a dimension."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._share = self._held = np.empty((0, len(DIMENSIONS)))
        self.delay_ms = np.empty(0, dtype=np.int64)

    def of(self, reports: Reports) -> Integers:
        """The number of each report's member."""
        groups, brokers = reports.groups.to_pylist(), reports.brokers.to_pylist()
        pairs, which = np.unique(reports.group * len(brokers) + reports.broker, return_inverse=True)
        known = self._numbers
        numbers = [
            known.setdefault((groups[pair // len(brokers)], brokers[pair % len(brokers)]), len(known))
            for pair in pairs.tolist()
        ]
        fresh = len(known) - len(self.delay_ms)
        self._share = np.pad(self._share, ((0, fresh), (0, 0)), constant_values=np.nan)
        self._held = np.pad(self._held, ((0, fresh), (0, 0)))
        self.delay_ms = np.pad(self.delay_ms, (0, fresh))
        member: Integers = np.array(numbers, dtype=np.int64)[which.ravel()]
        return member

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

    def passed(self, reports: Reports, which: Integers, member: Integers) -> Reports:
        """These reports, of a member one at most, with what their shares let pass; the rest is held."""
        period_ms = reports.period_ms[which, np.newaxis]
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
        # Doubles count exactly up to there.
        exact = np.where(limited, np.minimum(counts, EXACT_MAX), 0).astype(np.int64)
        return _only(reports, which)._replace(
            counts=np.where(limited, exact, reports.counts[which]), throttled_ms=throttled_ms,
            # The only tick is the one that closes their round.
            ticks=np.zeros(len(which), dtype=np.int64),
        )  # fmt: skip


class ReportsThatWait(Waiting):
    """What the law of shares would have said, round by round.

    Args:
        law: the law of shares.
        timeline: the policies, which go on while the log does.

    Attributes:
        closed: see `queues.Waiting`.
    """

    def __init__(self, law: LawSpec, timeline: PolicyTimeline) -> None:
        self._law, self._timeline = law, timeline
        self._table, self._members = law.table.from_columns({}), _Members()
        self.closed = 0
        self._held = no_reports().reports

    def step(
        self, batch: Batch | None, decided: DecisionRows | None, recorded: Verdicts | None, upto: int
    ) -> tuple[Verdicts | None, Integers]:
        """See `queues.Waiting`; reports of rounds that are not over by then wait for what follows."""
        reports = self._held if batch is None else _behind(self._held, batch.events.reports)
        said, delays = list[DecisionRows](), list[Integers]()

        def decide(some: Reports, begin: int | None, *, end: bool = False) -> None:
            events = no_reports(*([] if begin is None else [begin]))._replace(reports=some)
            asked = Batch(events=events, timeline=self._timeline, processed_ts=None, end=end)
            said.append(as_rows(self._table.fold(asked)))
            delays.append(self._members.take(said[-1]))

        member, done = self._members.of(reports), 0
        for begin, end, first, after in _rounds(reports, self._timeline):
            if end >= upto:
                # Policies of that very time may still come.
                break
            if begin > self.closed:
                # Who was silent for long has no share any more.
                decide(no_reports().reports, begin)
            turn = nth(member[first:after])
            for number in range(last := int(turn.max()) + 1):
                which = first + np.flatnonzero(turn == number)
                passed = self._members.passed(reports, which, member[which])
                decide(passed, end if number + 1 == last else None)
            self.closed, done = end, after
        self._held = _only(reports, np.arange(done, len(reports.at)))
        if upto == FOR_EVER:
            decide(no_reports().reports, None, end=True)
            self.closed = FOR_EVER
        if not said:
            return None, NOBODY
        rows, delay_ms = _joined(said), np.concatenate(delays)
        outcome = np.where(delay_ms > 0, THROTTLED, ALLOWED).astype(np.int8)
        return Verdicts.of(self._law, rows, outcome, delay_ms, overshoot_of(rows.rows)), NOBODY


def _only(reports: Reports, which: Integers) -> Reports:
    return reports._replace(**{name: getattr(reports, name)[which] for name in _OF_ROWS})


def _behind(before: Reports, reports: Reports) -> Reports:
    """Both, with names of their own."""
    if not len(before.at):
        return reports
    if len(reports.at):
        # Each stretch counts its records from 0; events are told apart by them.
        reports = reports._replace(source=reports.source + before.source.max() + 1)
    rows = {name: np.concatenate([getattr(before, name), getattr(reports, name)]) for name in _OF_ROWS}
    for name in ("group", "broker"):
        both = pa.concat_arrays(
            [getattr(each, f"{name}s").take(pa.array(getattr(each, name))) for each in (before, reports)]
        ).dictionary_encode()
        rows |= {name: both.indices.to_numpy().astype(np.int64), f"{name}s": both.dictionary}
    return Reports(**rows)


def _rounds(reports: Reports, timeline: PolicyTimeline) -> Iterator[tuple[int, int, int, int]]:
    """When each round with reports begins and ends, ms, its first report, and the first one behind it."""
    first = 0
    while first < len(reports.at):
        every = round_rules(timeline.at(int(reports.at[first]))).interval_ms
        begin = int(reports.at[first]) // every * every
        last = int(np.searchsorted(reports.at, begin + every))
        yield begin, begin + every, first, last
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
