"""The rounds of resource groups, told broker by broker: the reference of docs/contract.md 3.2.

Plain objects, one group at a time, one report and one round after the other. A property test holds what the
job runs, streaming/laws/shares/rounds.py, equal to it in every decision, its order and what it answers.

A share of 100 messages a second, of which one broker uses 80 and another 20, is first divided as it is
used, when the second minute begins; in the next round both want more, and half the way to 50 is gone:

>>> from streaming.contract.usage_events import GroupUsage
>>> policies = PolicyTimeline({
...     "resourcegroups.rg1": {"publishRateInMsgs": 100}, "broker": {"resourceUsageMemberExpiryRounds": 1},
... })
>>> rounds, minute = Rounds(), 60_000
>>> def report(number, broker, rate):
...     told = GroupReport(counts=(60 * rate, 0, 0, 0), throttled_ms=(None,) * 4)
...     ts = number * minute
...     return GroupUsage(id="", ts=ts, at=ts, broker=broker, period_ms=minute, usage=(("rg1", told),))
>>> def told(*events):
...     for _, d in rounds.fold([Entry(event, 0) for event in events], policies):
...         print(d["round"], d["broker"], d["limits"] or d["removed"])
>>> told(report(0, "b1", 80), report(0, "b2", 20))
>>> told(report(1, "b1", 80), report(1, "b2", 20))
0 b1 {'publishRateInMsgs': 80.0}
0 b2 {'publishRateInMsgs': 20.0}
>>> told(report(2, "b1", 65))
1 b1 {'publishRateInMsgs': 65.0}
1 b2 {'publishRateInMsgs': 35.0}

Here one round is allowed, and b2 was last heard of in round 1:

>>> told(report(3, "b1", 70), report(4, "b1", 70))
2 b1 {'publishRateInMsgs': 71.5}
2 b2 {'publishRateInMsgs': 28.5}
3 b2 expired
3 b1 {'publishRateInMsgs': 100.0}

Of rounds of silence nothing is said until somebody expires in them:

>>> told(Tick(id="", ts=6 * minute, at=6 * minute))
4 b1 {'publishRateInMsgs': 100.0}
>>> told(Tick(id="", ts=60 * minute, at=60 * minute))
6 b1 expired
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any, Final

import numpy as np

from streaming.contract.events import Tick
from streaming.contract.usage_events import DIMENSIONS, GroupReport, GroupUsage
from streaming.laws.law import Decision, Entry
from streaming.laws.shares.intake import NO_SOURCE
from streaming.laws.shares.law import FREE, HUNGRY_PARTS, NOT_REPORTED, THROTTLED, share_out
from streaming.laws.shares.rounds import STALE_ROUNDS
from streaming.policy.groups import LIFE_ROUNDS, GroupLimits, group_limits, round_rules
from streaming.policy.timeline import PolicyTimeline

NO_SHARES: Final = (nan,) * len(DIMENSIONS)


@dataclass(slots=True)
class Member:
    """What a broker last reported, and what it was allowed.

    Attributes:
        ts: time of its last report, ms.
        used: rate per second in each of DIMENSIONS.
        throttled: THROTTLED, FREE or NOT_REPORTED in each of them.
        shares: its last share in each of them; NaN: none.
        told: its last decision gave it shares, so its leaving must be told too.
    """

    ts: int
    used: Sequence[float]
    throttled: Sequence[int]
    shares: Sequence[float] = NO_SHARES
    told: bool = False

    def uses(self, limits: GroupLimits) -> bool:
        """Whether it is a member: it uses some limited dimension. Its shares of others are dropped."""
        used = [rate is not None and u > 0.0 for rate, u in zip(limits.rates, self.used, strict=True)]
        self.shares = [share if its else nan for share, its in zip(self.shares, used, strict=True)]
        return any(used)


@dataclass(slots=True)
class Group:
    """A resource group with brokers that report.

    Attributes:
        name: the group.
        end: when its open round ends, ms; set while it has brokers, as are the next two.
        every: length of the open round, ms, as the policies had it when the round began.
        newest: time of its newest report, ms.
        touched: a report came in the open round.
        members: last reports by broker, of those that are no members now too, until they expire.
    """

    name: str
    end: int = 0
    every: int = 0
    newest: int = 0
    touched: bool = False
    members: dict[str, Member] = field(default_factory=dict)

    def take(self, event: GroupUsage, report: GroupReport, timeline: PolicyTimeline) -> list[Decision] | None:
        """Take a report in; returns the decisions of the rounds that it closed, None if it is stale."""
        known = self.members.get(event.broker)
        if known is not None and event.ts < known.ts:
            return None
        if self.members and self.newest // self.every - event.ts // self.every > STALE_ROUNDS:
            return None
        decisions = self.close_until(event.at, timeline)
        if not self.members:
            self._open(event.at, timeline)
            self.newest = event.ts
        self.newest = max(self.newest, event.ts)
        self.touched = True
        before = self.members.get(event.broker)
        self.members[event.broker] = Member(
            ts=event.ts,
            used=[count * 1000.0 / event.period_ms for count in report.counts],
            throttled=[_throttled(time_ms, event.period_ms) for time_ms in report.throttled_ms],
            shares=NO_SHARES if before is None else before.shares,
            told=before is not None and before.told,
        )
        return decisions

    def close_until(self, upto: int, timeline: PolicyTimeline) -> list[Decision]:
        """Close the rounds that end at `upto` ms or before."""
        decisions: list[Decision] = []
        while self.members and self.end <= upto:
            decisions += self._close(timeline)
            self._open(self.end, timeline)
        return decisions

    def finish(self, timeline: PolicyTimeline) -> list[Decision]:
        """Close the open round if it has a report: the input ends."""
        return self.close_until(self.end, timeline) if self.touched else []

    def _close(self, timeline: PolicyTimeline) -> list[Decision]:
        """Close the open round by the policies of its end; the caller opens the next."""
        policies = timeline.at(self.end)
        limits = group_limits(policies, self.name)
        removed = self._expire(round_rules(policies).expiry_rounds)
        touched, self.touched = self.touched, False
        if limits is None:
            for member in self.members.values():
                member.shares, member.told = NO_SHARES, False
            return []
        for broker, member in self.members.items():
            if not member.uses(limits) and member.told:
                member.told = False
                removed[broker] = "idle"
        decisions = [self._removal(broker, removed[broker], limits) for broker in sorted(removed)]
        return decisions + self._share_out(limits) if touched or removed else decisions

    @property
    def _round(self) -> int:
        return self.end // self.every - 1

    def _open(self, start: int, timeline: PolicyTimeline) -> None:
        """Open the round that holds `start`; it ends as the policies of that time say."""
        self.every = round_rules(timeline.at(start)).interval_ms
        self.end = (start // self.every + 1) * self.every

    def _expire(self, expiry_rounds: int) -> dict[str, str]:
        """Drop the brokers whose report is too old; returns those that had shares."""
        gone = [
            broker
            for broker, member in self.members.items()
            if self._round - member.ts // self.every > expiry_rounds
        ]
        return {broker: "expired" for broker in gone if self.members.pop(broker).told}

    def _share_out(self, limits: GroupLimits) -> list[Decision]:
        # By name, so that the sums do not depend on who reported first.
        members = sorted((broker, m) for broker, m in self.members.items() if m.uses(limits))
        if not members:
            return []
        shares = []
        for place, rate in enumerate(limits.rates):
            own = ((m.used[place], m.throttled[place], m.shares[place]) for _, m in members)
            used, throttled, last = map(np.array, zip(*own, strict=True))
            shares.append([nan] * len(members) if rate is None else share_out(rate, used, throttled, last))
        for place, (_, member) in enumerate(members):
            member.shares, member.told = [float(share[place]) for share in shares], True
        return [self._share(broker, member, limits) for broker, member in members]

    def _share(self, broker: str, member: Member, limits: GroupLimits) -> Decision:
        limited = [place for place, rate in enumerate(limits.rates) if rate is not None]
        return {
            **self._head(broker),
            "usage": {DIMENSIONS[place]: member.used[place] for place in limited},
            "limits": {
                DIMENSIONS[place]: member.shares[place]
                for place in limited
                if not isnan(member.shares[place])
            },
            "shadow": limits.shadow,
            "ttl_ms": LIFE_ROUNDS * self.every,
        }

    def _removal(self, broker: str, why: str, limits: GroupLimits) -> Decision:
        last = {"limits": None, "removed": why, "shadow": limits.shadow, "ttl_ms": LIFE_ROUNDS * self.every}
        return self._head(broker) | last

    def _head(self, broker: str) -> dict[str, Any]:
        return {
            "type": "share",
            "id": f"{self.name}/{broker}@{self._round}",
            "ts": self.end,
            "group": self.name,
            "broker": broker,
            "round": self._round,
        }


def _throttled(time_ms: int | None, period_ms: int) -> int:
    if time_ms is None:
        return NOT_REPORTED
    return THROTTLED if time_ms * HUNGRY_PARTS >= period_ms else FREE


class Rounds:
    """The groups of a shard.

    Attributes:
        stale_reports: reports ignored as stale so far.
        groups: those that have brokers, by name.
    """

    def __init__(self) -> None:
        self.stale_reports = 0
        self.groups: dict[str, Group] = {}

    def fold(
        self, entries: Sequence[Entry], timeline: PolicyTimeline, *, end: bool = False
    ) -> list[tuple[int, Decision]]:
        """Take reports and ticks in order, group by group, since groups do not touch each other.

        Args:
            entries: what happened, in order.
            timeline: the policies.
            end: no more will come: rounds with a report are closed.

        Returns:
            (source, decision), in the order of the events that closed the rounds, those of one event by name
            of group; what the end decides answers the group's last report here, else the last event.
        """
        decided: list[tuple[int, int, Decision]] = []
        sources = [entry.source for entry in entries] or [NO_SOURCE]
        named = [event.usage for entry in entries if isinstance(event := entry.event, GroupUsage)]
        for name in sorted(self.groups.keys() | {name for usage in named for name, _ in usage}):
            group = self.groups.setdefault(name, Group(name))
            for position, entry in enumerate(entries):
                written = self._move(group, entry, timeline)
                decided += [(position, entry.source, decision) for decision in written]
            if end:
                own = [entry.source for entry in entries if _concerns(entry, name)] or sources
                decided += [(len(entries), own[-1], decision) for decision in group.finish(timeline)]
        self.groups = {name: group for name, group in self.groups.items() if group.members}
        decided.sort(key=lambda each: each[0])
        return [(source, decision) for _, source, decision in decided]

    def _move(self, group: Group, entry: Entry, timeline: PolicyTimeline) -> list[Decision]:
        event: object = entry.event
        if isinstance(event, Tick):
            return group.close_until(event.at, timeline)
        assert isinstance(event, GroupUsage)
        decisions: list[Decision] = []
        for name, report in event.usage:
            if name == group.name:
                taken = group.take(event, report, timeline)
                self.stale_reports += taken is None
                decisions += taken or []
        return decisions


def _concerns(entry: Entry, name: str) -> bool:
    return isinstance(entry.event, GroupUsage) and any(group == name for group, _ in entry.event.usage)
