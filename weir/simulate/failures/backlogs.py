"""Backlogs of topics whose producers are blocked beyond a quota (docs/contract.md 3.5)."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import orjson

from enforcer.core.law import EnforcerLaw
from enforcer.laws.backlog.block import EXCEPTION, HOLD
from enforcer.laws.backlog.blocks import Blocks
from streaming.collect.backlog.packed_reports import rows_of
from streaming.contract.broker_events import Backlog
from streaming.laws.backlog.law import judge, rules_for
from streaming.policy.policy_set import UNLIMITED, PolicySet
from streaming.policy.timeline import PolicyTimeline
from streaming.policy.topics import BacklogKind, backlog_quota, check_interval_s
from weir.simulate.failures.excess import Found
from weir.simulate.failures.proxy import Proxy
from weir.simulate.failures.scenario import Facts
from weir.simulate.failures.world import Traffic

STEP_MS: Final = 1_000
"""Producers write so often."""
_NO_LIMIT: Final = 2**62


class Backlogs(Traffic):
    """What producers write, an even part through each proxy, and what the collector reports of it.

    Between two recorded reports a backlog grows or falls evenly, and begins within its limit. What a block
    keeps out is never written, and the collector, one, looks each check interval. A quota that evicts is the
    collector's to carry out, not a proxy's, and is left out.
    """

    job = ("backlog",)

    def __init__(self, recorded: Sequence[Backlog], found: Found, timeline: PolicyTimeline) -> None:
        super().__init__(recorded, found, timeline)
        self._laws: dict[str, Blocks] = {}
        self._by_topic: dict[str, list[Backlog]] = {}
        for report in recorded:
            self._by_topic.setdefault(report.topic, []).append(report)
        self._topics: list[_Topic] = []
        self._number = self._interval_s = 0

    def enforce(self, proxy: Proxy) -> list[EnforcerLaw]:
        """See world.Traffic."""
        law = self._laws[proxy.name] = Blocks(proxy.context)
        return [law]

    def begin(self) -> None:
        """See world.Traffic."""
        world = self.world
        policies = self.timeline.at(world.now)
        for topic, reports in self._by_topic.items():
            limit = _limit(policies, topic)
            if limit is not None:
                sizes = [float(judge(one, rules_for(policies, topic))["backlogSize"]) for one in reports]
                self._topics.append(_Topic(topic, limit, reports, sizes))
        self._interval_s = check_interval_s(policies)
        if self._topics:
            world.every(STEP_MS, self._step)
            world.every(self._interval_s * 1000, self._check)

    def bound(self, name: str, facts: Facts) -> float:
        """See world.Traffic: docs/laws.md, "backlog": what is written from check to check, and unseen."""
        topic = next(topic for topic in self._topics if topic.name == name)
        blind_s = self._interval_s + facts.late_s + max(facts.away_s, facts.cut_s)
        return topic.fastest * (blind_s + STEP_MS / 1000)

    def _step(self) -> None:
        there = [proxy for proxy in self.world.proxies if proxy.open]
        policies = self.timeline.at(self.world.now)
        for topic in self._topics:
            limit = _limit(policies, topic.name)
            topic.limit = _NO_LIMIT if limit is None else limit
            let_in = sum(self._laws[proxy.name].block(topic.name) is None for proxy in there)
            topic.advance(self.world.now, let_in / len(there) if there else 0.0)
            if topic.passed:
                found = self.found.of(topic.name)
                found.stand(self.world.now, round(topic.size), topic.limit)

    def _check(self) -> None:
        for topic in self._topics:
            self._number += 1
            event = topic.report(f"check-{self._number}", self.world.now)
            if event is not None:
                self.world.stand_usage("backlog", orjson.dumps(event))


def _limit(policies: PolicySet, topic: str) -> int | None:
    """How large its backlog may grow before proxies block its producers; None: they do not."""
    quota = backlog_quota(policies, topic, BacklogKind.SIZE)
    holds = quota.actions and quota.policy in (HOLD, EXCEPTION) and quota.limit != UNLIMITED
    return quota.limit if holds else None


class _Topic:
    """One topic: recorded sizes over time, and what of them was let in.

    Attributes:
        fastest: bytes a second by which the recorded size grew at most.
    """

    def __init__(self, name: str, limit: int, reports: list[Backlog], sizes: list[float]) -> None:
        self.name, self.limit = name, limit
        self.size = min(sizes[0], float(limit))
        self.passed = False
        self._reports, self._sizes = reports, sizes
        self._next = 0
        self._recorded = sizes[0]
        pairs = zip(pairwise(reports), pairwise(sizes), strict=True)
        self.fastest = max([0.0, *(1000 * (b - a) / max(1, y.ts - x.ts) for (x, y), (a, b) in pairs)])

    def advance(self, now: int, part: float) -> None:
        """Go on to a time; of what is written so much is let in."""
        while self._next < len(self._reports) and self._reports[self._next].ts <= now:
            self._next += 1
        if not 0 < self._next < len(self._reports):
            return
        self.passed = True
        before, after = self._reports[self._next - 1], self._reports[self._next]
        at = (now - before.ts) / max(1, after.ts - before.ts)
        recorded = self._sizes[self._next - 1] * (1.0 - at) + self._sizes[self._next] * at
        grown, self._recorded = recorded - self._recorded, recorded
        self.size = max(0.0, self.size + (grown * part if grown > 0 else grown))

    def report(self, name: str, now: int) -> dict[str, Any] | None:
        """What the collector says of it now; None: nothing was recorded yet."""
        if not self.passed:
            return None
        (event,) = rows_of([replace(self._reports[self._next - 1], id=name, ts=now)]).to_pylist()
        for last in event["ledgers"][-1:]:
            last["size"] = max(0, round(last["size"] + self.size - self._sizes[self._next - 1]))
        return {"type": "backlog", **event}
