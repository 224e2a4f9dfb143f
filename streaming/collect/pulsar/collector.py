"""One cluster's collector: reads counters, reports usage, and pushes what shares and policies say.

A round: read the brokers, report what passed, work out what limiters should hold, push what really changed.
What fails costs that round its part of the work and no more:

- no answer from the admin API: nothing is reported or pushed, what was pushed stays in force;
- a report that Kafka does not take: nothing is pushed, since another collector might be at work meanwhile;
- a broker that does not answer: the others are reported; what it did counts if it answers within an hour.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from streaming.collect.pulsar.counters import Differences, Passage
from streaming.collect.pulsar.limits import Slot
from streaming.collect.pulsar.metrics import CollectMetrics
from streaming.collect.pulsar.plan import Plan, Planner
from streaming.collect.pulsar.pools import usage_events
from streaming.collect.pulsar.push import Change, Pusher, Result
from streaming.collect.pulsar.readings import BrokerReading, read_counters
from streaming.collect.pulsar.rest import Rest
from streaming.collect.pulsar.shares import Shares
from streaming.collect.reports import records
from streaming.collect.settings import PulsarCollectSettings
from streaming.contract.errors import TakenOver, WeirError
from streaming.contract.names import namespace_of
from streaming.contract.usage_events import COUNTS
from streaming.policy.groups import round_rules
from streaming.policy.policy_set import PolicySet, Section
from streaming.policy.topics import namespace_group

PASSES_MAX: Final = 11
"""At the stop those for newcomers are taken away first, then those of topics until ten of a namespace have
failed: each may take long."""

logger = logging.getLogger("weir.collect")

Report = Callable[[Sequence[tuple[str, dict[str, Any]]]], None]
"""Writes (broker, event) pairs, all or none; in a thread. Raises WeirError; TakenOver ends the collector."""


class Outcome(StrEnum):
    """What became of a round."""

    DONE = "done"
    FIRST = "first"
    UNREAD = "unread"
    UNREPORTED = "unreported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A round that is over.

    Attributes:
        outcome: how it ended.
        passed: what was read; None: nothing.
        plan: what limiters should hold; None: that could not be worked out.
        changes: what was to be pushed, or without pushing what would be.
        results: what became of those.
        seconds: how long it took.
    """

    outcome: Outcome
    passed: Passage | None = None
    plan: Plan | None = None
    changes: Sequence[Change] = ()
    results: Mapping[Any, Result] | None = None
    seconds: float = 0.0


class Collector:
    """The collector.

    Args:
        pusher: knows what was pushed.
        shares: those that stand; `take_share` adds.
        report: writes events.
        name: of this collector, the head of its events' ids.
        push: False: only meter, and say what would be pushed.
    """

    def __init__(
        self,
        rest: Rest,
        pusher: Pusher,
        settings: PulsarCollectSettings,
        *,
        policies: Callable[[], PolicySet],
        report: Report,
        name: str,
        push: bool,
        metrics: CollectMetrics,
    ) -> None:
        self.pusher = pusher
        self._rest, self._settings = rest, settings
        self._policies, self._report = policies, report
        self._name, self._push, self._metrics = name, push, metrics
        self._shares = Shares()
        self._differences = Differences()
        self._planner = Planner()
        self._told: dict[str, set[str]] = {}
        self._brokers: set[str] = set()
        self._number = 0

    def take_share(self, group: str, broker: str, limits: Mapping[str, float] | None, ttl_ms: int) -> None:
        """A share was decided or repeated; `ttl_ms` of its life are left."""
        ours = broker in self._brokers
        self._shares.take(group, broker, limits, now_ms() + ttl_ms, ours=ours)

    async def meet(self) -> None:
        """Learn which brokers there are, so that shares are known for theirs, and what time Kafka has.

        Raises:
            WeirError: no answer of use, or the first report was not written.
        """
        reading = await read_counters(self._rest, self._settings.source, lambda _namespace: False)
        self._brokers |= reading.brokers
        nothing = Passage(period_ms={}, counts={}, restarted=0, unknown=0)
        # Its acknowledgement tells which shares still stand.
        await asyncio.to_thread(self._report, self._events(Plan(), nothing, {}))

    def interval_s(self) -> float:
        """How long until the next round: a round of the shares is never without a report."""
        return min(self._settings.interval_ms, round_rules(self._policies()).interval_ms) / 1000

    async def round(self) -> Round:
        """One round.

        Raises:
            TakenOver: another collector of this cluster is at work.
        """
        began = time.monotonic()
        try:
            done = await self._round()
        except TakenOver:
            raise
        except Exception:
            # What a cluster answers may be anything, and its counters must be read again all the same.
            logger.exception("a round failed")
            done = Round(outcome=Outcome.UNREAD)
        seconds = time.monotonic() - began
        self._metrics.rounds.labels(done.outcome).inc()
        self._metrics.round_seconds.observe(seconds)
        return replace(done, seconds=seconds)

    async def _round(self) -> Round:
        policies = self._policies()
        at_ms = now_ms()
        self._rest.ask_again()
        answered = 0
        try:
            reading = await read_counters(self._rest, self._settings.source, concerns(policies))
            answered = len(reading.brokers)
            await self._recognize()
        except WeirError as failure:
            logger.warning("%s", failure)
            return Round(outcome=Outcome.UNREAD)
        finally:
            self._metrics.brokers.set(answered)
        passed = self._take(reading, at_ms)
        told: dict[str, set[str]] = {}
        plan = self._planner.plan(policies, passed, self._shares, self.pusher.pushed, now_ms())
        try:
            await asyncio.to_thread(self._report, self._events(plan, passed, told))
        except TakenOver:
            raise
        except WeirError as failure:
            self._metrics.reports.labels("failed").inc()
            logger.warning("%s", failure)
            return Round(outcome=Outcome.UNREPORTED, passed=passed, plan=plan)
        self._metrics.reports.labels("written").inc()
        if not passed.period_ms:
            # Nobody's traffic is known now: all topics would be newcomers.
            return Round(outcome=Outcome.FIRST, passed=passed, plan=plan)
        self._told |= told
        changes = self.pusher.changes(plan.wanted, plan.held, now_ms())
        if not self._push:
            return Round(outcome=Outcome.DONE, passed=passed, plan=plan, changes=changes)
        with self._metrics.push_seconds.time():
            results = await self.pusher.push(changes, now_ms())
        return Round(outcome=Outcome.DONE, passed=passed, plan=plan, changes=changes, results=results)

    async def _recognize(self) -> None:
        """Only to meter a cluster nobody need be allowed to read notes."""
        try:
            await self.pusher.recognize()
        except WeirError:
            if self._push:
                raise

    async def withdraw(self) -> None:
        """Take away all that was pushed, as far as it goes."""
        self._rest.ask_again()
        tried = set[Slot]()
        # No later round comes for what a failure leaves untried.
        for _ in range(PASSES_MAX):
            left = self.pusher.all_removals()
            # Where the limit for newcomers stays, topics must not fall back on it.
            kept = {one.slot.namespace for one in left if not one.slot.topic}
            left = [one for one in left if not (one.slot.topic and one.slot.namespace in kept)]
            left = [one for one in left if one.slot not in tried]
            tried.update(await self.pusher.push(left, now_ms()))

    def _take(self, reading: BrokerReading, at_ms: int) -> Passage:
        for failure in reading.failures:
            logger.warning("%s", failure)
        self._brokers |= reading.brokers
        passed = self._differences.take(at_ms, reading.brokers, reading.counters, reading.shows)
        self._metrics.places.set(len(reading.counters) - passed.unknown)
        self._metrics.unknown_places.inc(passed.unknown)
        self._metrics.counter_restarts.inc(passed.restarted)
        return replace(passed, whole=not reading.failures)

    def _events(
        self, plan: Plan, passed: Passage, told: dict[str, set[str]]
    ) -> list[tuple[str, dict[str, Any]]]:
        """What passed, as events; one at least, since each says that this collector is the one.

        `told` gets, by broker, the groups that they name as used.
        """
        self._number += 1
        periods = passed.period_ms or dict.fromkeys(self._brokers, 1)
        held_back = {
            place: {name: ms * periods.get(place[1], 0) for name, ms in said.items()}
            for place, said in plan.held_back.items()
        }
        events: list[tuple[str, dict[str, Any]]] = []
        # Of what nobody was asked, or nobody has answered, it is not known that it is used no more.
        before = self._told if passed.period_ms else {}
        for broker, event in usage_events(plan.pools, before, periods, held_back):
            usage: Any = event["usage"]
            told[broker] = {name for name, one in usage.items() if any(one[key] for key in COUNTS)}
            # Until it is known to be written both may stand.
            self._told[broker] = self._told.get(broker, set()) | told[broker]
            name = f"{self._name}-{broker}-{self._number}"
            events += [(broker, record) for record in records(event, name)]
        return events


def concerns(policies: PolicySet) -> Callable[[str], bool]:
    """Which namespaces have limits that need to be metered: a group's, or a rate across brokers."""
    shared = {
        namespace_of(path.removeprefix(f"{Section.TOPICS}."))
        for path, value in policies.entries.items()
        if path.startswith(f"{Section.TOPICS}.") and _across(value)
    }
    known: dict[str, bool] = {}

    def concern(namespace: str) -> bool:
        if namespace not in known:
            value = policies.entries.get(f"{Section.NAMESPACES}.{namespace}", {})
            group = namespace_group(policies, namespace)
            known[namespace] = group is not None or namespace in shared or _across(value)
        return known[namespace]

    return concern


def _across(value: Mapping[str, Any]) -> bool:
    """Whether some rate in an entry is one for all brokers."""
    own = [value.get("dispatchRate"), value.get("subscriptionDispatchRate")]
    own += [one.get("dispatchRate") for one in value.get("subscriptions", {}).values()]
    return any(rate is not None and rate.get("across_brokers", False) for rate in own)


def now_ms() -> int:
    """Steady time."""
    return time.monotonic_ns() // 1_000_000
