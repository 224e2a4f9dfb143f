"""State of the share law in one shard, and the way of a batch of reports through it.

What happens in a group is in rounds.py; here names become numbers and policies columns.
"""

from collections.abc import Mapping
from math import nan
from typing import Self

import numpy as np
import pyarrow as pa

from streaming.columns.byte_strings import Integers
from streaming.columns.limit_index import NOTHING
from streaming.columns.outputs import DecisionRows
from streaming.laws.law import FOR_EVER, REPEAT_PARTS, Batch, LawState
from streaming.laws.shares.columns import (
    DONE,
    MORE_ROOM,
    NOT_WRITTEN,
    NOWHERE,
    WIDTH,
    Limits,
    Progress,
    Rules,
    Steps,
    Told,
    no_limits,
    no_told,
    room_for,
    steps_of,
    with_room,
)
from streaming.laws.shares.intake import ReportBatch, no_reports
from streaming.laws.shares.limits import limits_of
from streaming.laws.shares.rounds import walk
from streaming.laws.shares.share_rows import rows_of
from streaming.laws.shares.state import State
from streaming.policy.groups import LIFE_ROUNDS, round_rules
from streaming.policy.policy_set import PolicySet, Section
from streaming.policy.timeline import PolicyTimeline


class SharesTable(LawState):
    """Groups of a shard.

    Columns, a row per group: `group`, its open round, the round whose shares stand, and `members`, a list of
    its brokers with their last reports and shares. See columns.Groups and Members for their meaning.

    Attributes:
        stale_reports: reports of groups ignored as stale since this table was made (docs/contract.md 3.2).
    """

    def __init__(self) -> None:
        self.stale_reports = 0
        self._state = State.empty()
        self._columns: dict[str, pa.Array] | None = None

    def __len__(self) -> int:
        return len(self._state.members.ts)

    @classmethod
    def from_columns(cls, columns: Mapping[str, pa.Array]) -> Self:
        """The table that `columns` described; an empty mapping gives an empty table."""
        table = cls()
        if columns:
            table._state, table._columns = State.of(columns), dict(columns)
        return table

    def columns(self) -> dict[str, pa.Array]:
        """The table as Arrow columns, for the checkpoint; those that were read if nothing has changed."""
        if self._columns is None:
            self._columns = self._state.columns()
        return self._columns

    def fold(self, batch: Batch) -> DecisionRows:
        """Take reports and ticks in order and close the rounds that they end.

        An event with several groups gives the same decisions as one event per group: groups do not touch
        each other. What the batch's end decides has the source of the group's last report in this batch, else
        of the batch's last event, else NO_SOURCE. Decisions are in the order of the events that closed their
        rounds, those of one event by name of group, round and broker, those who leave first.
        """
        reported: ReportBatch = batch.events
        reports = reported.reports
        state, group, broker = self._state.widened(reports.groups, reports.brokers)
        rows = group[reports.group]
        slots = state.slots(rows, broker[reports.broker])
        steps = steps_of(reported, rows, slots, len(state.names), end=batch.end)
        concerned = np.diff(steps.first) > 0
        if len(steps.tick_at):
            concerned |= (state.groups.size > 0) & (state.groups.end <= steps.tick_at.max())
        if batch.end:
            concerned |= state.groups.touched
        return self._walk(state, np.flatnonzero(concerned), steps, batch.timeline)

    def finish(self, timeline: PolicyTimeline) -> DecisionRows:
        """Close the rounds that have a report."""
        return self.fold(Batch(events=no_reports(), timeline=timeline, processed_ts=None, end=True))

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Let brokers go that expired unseen: groups in which nobody has a share close their quiet rounds.

        A group with shares stays: its next round must tell whoever leaves.
        """
        groups = self._state.groups
        quiet = (groups.told_end == 0) & ~groups.touched & (groups.end <= horizon)
        if quiet.any():
            tick = no_reports(horizon)
            state, group, broker = self._state.widened(tick.reports.groups, tick.reports.brokers)
            steps = steps_of(tick, group, broker, len(state.names), end=False)
            self._walk(state, np.flatnonzero(quiet), steps, timeline)

    def policies_from(self, horizon: int) -> int:
        """The time (ms, at most `horizon`) before which no policy is needed any more.

        Open rounds are judged by the policies of their end, which may be long past where no tick came.
        """
        return min(horizon, int(self._state.groups.end.min(initial=horizon)))

    def repeats(self, now: int, timeline: PolicyTimeline) -> DecisionRows | None:
        """The shares that must be said again at `now` (ms, event time), as they were first written."""
        groups = self._state.groups
        stands = groups.told_end > 0
        fresh = stands & (groups.written == NOT_WRITTEN)
        due = stands & ~fresh & (groups.written + LIFE_ROUNDS * groups.told_every // REPEAT_PARTS <= now)
        if not (fresh | due).any():
            return None
        self._state.groups = groups._replace(written=np.where(fresh | due, now, groups.written))
        self._columns = None
        if not due.any():
            return None
        told = _standing(self._state, np.flatnonzero(due))
        return rows_of(told, np.arange(len(told.group)), self._state.names, self._state.brokers, repeat=True)

    def _walk(self, state: State, active: Integers, steps: Steps, timeline: PolicyTimeline) -> DecisionRows:
        """Take groups through what happens to them; the table is then `state`."""
        rules = _rules(timeline)
        count = len(state.names)
        progress = Progress(
            row=steps.first[:-1].copy(), tick=np.zeros(count, np.int64), fresh=np.zeros(count, np.bool_),
            need=np.full(count, DONE), stale=np.zeros(1, np.int64),
        )  # fmt: skip
        progress.need[active] = NOWHERE
        limits, told, slots = no_limits(count), no_told(0, 0), np.diff(state.groups.first)
        takers = room_for(int(slots.max(initial=0)))
        stretch = NOWHERE
        while stretch != DONE:
            waiting = active[progress.need[active] == stretch]
            if stretch != NOWHERE:
                since = int(rules.changes[stretch - 1]) if stretch else -1
                put_limits(limits, waiting, state.names, timeline.at(since))
            while len(waiting):
                told = with_room(told, 2 * len(waiting), int(slots[waiting].sum()))
                walk(
                    waiting, stretch, state.groups, state.members, steps, rules, limits, progress, told,
                    takers,
                )  # fmt: skip
                waiting = waiting[progress.need[waiting] == MORE_ROOM]
                progress.need[waiting] = stretch
            stretch = int(progress.need[active].min(initial=DONE))
        self.stale_reports += int(progress.stale[0])
        order = _in_order(told, count)
        written = rows_of(told, order, state.names, state.brokers, repeat=False)
        if len(active):
            self._state, self._columns = state.narrowed(), None
        return written


def _rules(timeline: PolicyTimeline) -> Rules:
    """The rhythm of rounds under each of the policies over time."""
    changes = np.array(timeline.changes(-1, FOR_EVER), dtype=np.int64)
    own = sorted({ts for ts, path in timeline.changed(-1, FOR_EVER) if path == Section.BROKER})
    rules = [round_rules(timeline.at(ts)) for ts in (-1, *own)]
    # Each stretch has the rules of the last change of them.
    which = np.searchsorted(np.array(own, dtype=np.int64), np.append(-1, changes), side="right")
    every, expiry = (np.array(column, dtype=np.int64)[which] for column in zip(
        *((rule.interval_ms, rule.expiry_rounds) for rule in rules), strict=True
    ))  # fmt: skip
    return Rules(changes=changes, every=every, expiry=expiry)


def put_limits(limits: Limits, groups: Integers, names: pa.Array, policies: PolicySet) -> None:
    """Write the limits of these groups under these policies into their rows."""
    known = limits_of(policies)
    number = known.of(names.take(pa.array(groups)))
    limits.known[groups] = number != NOTHING
    limits.shadow[groups] = known.field("shadow", number, False)
    limits.rates[groups] = known.field("rates", number, (nan,) * WIDTH)


def _in_order(told: Told, count: int) -> Integers:
    """The rounds by the event that closed them, then by group, then in their order."""
    rounds = int(told.filled[0])
    keys = told.position[:rounds] * count + told.group[:rounds]
    if (keys[1:] >= keys[:-1]).all():
        return np.arange(rounds)
    return np.argsort(keys, kind="stable")


def _standing(state: State, which: Integers) -> Told:
    """What was last told of these groups."""
    groups, members = state.groups, state.members
    group = np.repeat(np.arange(len(groups.end)), np.diff(groups.first))
    chosen = np.zeros(len(groups.end), dtype=np.bool_)
    chosen[which] = True
    slots = np.flatnonzero(members.told & chosen[group])
    nowhere = np.zeros(len(which), np.int64)
    return Told(
        position=nowhere, source=nowhere, group=which, end=groups.told_end[which],
        every=groups.told_every[which], limited=groups.told_limited[which],
        shadow=groups.told_shadow[which], first=np.searchsorted(group[slots], which),
        broker=members.broker[slots], why=np.zeros(len(slots), np.int8), used=members.told_used[slots],
        shares=members.shares[slots], filled=np.array([len(which), len(slots)]),
    )  # fmt: skip
