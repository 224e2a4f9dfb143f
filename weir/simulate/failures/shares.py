"""Traffic of resource groups and byte rates, held to each proxy's share (docs/contract.md 3.2)."""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Final

from enforcer.core.account import DISPATCH, PUBLISH, SHARE_BURST_S, Account
from enforcer.core.law import EnforcerLaw
from enforcer.laws.shares.groups import Groups
from enforcer.laws.shares.newcomers import JOINING_FRACTION
from streaming.contract.usage_events import DIMENSIONS, GroupUsage
from streaming.policy.timeline import PolicyTimeline
from weir.simulate.failures.excess import Found
from weir.simulate.failures.proxy import Proxy
from weir.simulate.failures.scenario import Facts
from weir.simulate.failures.world import Traffic

STEP_MS: Final = 100
"""Clients send so often what they have."""
_DIRECTIONS: Final = (PUBLISH, DISPATCH)


class Shares(Traffic):
    """What members of groups want, spread evenly over the time of each report.

    A recorded broker's traffic comes to the proxy of the same place in their order; if there are more proxies
    it is divided evenly among those that are left to it, and so is that of one that is gone.
    """

    job = ("shares",)

    def __init__(self, recorded: Sequence[GroupUsage], found: Found, timeline: PolicyTimeline) -> None:
        super().__init__(recorded, found, timeline)
        self._brokers = sorted({report.broker for report in recorded})
        self._laws: dict[str, Groups] = {}
        # Of each group and direction: what comes in each step from each broker, and what waits at a proxy.
        self._wanted: dict[tuple[str, str, int], tuple[float, float, int]] = {}
        self._waiting: dict[str, dict[tuple[str, int], list[float]]] = {}
        self._interval_s = 0.0

    def enforce(self, proxy: Proxy) -> list[EnforcerLaw]:
        """See world.Traffic."""
        law = self._laws[proxy.name] = Groups(proxy.context, proxy.meter)
        proxy.meter.set_policies(proxy.context.policies.now)
        self._interval_s = proxy.meter.interval_ms / 1000
        self._waiting[proxy.name] = defaultdict(lambda: [0.0, 0.0])
        return [law]

    def opened(self, proxy: Proxy) -> None:
        """See world.Traffic: from now on it reports each round."""
        proxy.each_round(self._laws[proxy.name].reports.report)

    def begin(self) -> None:
        """See world.Traffic."""
        for report in self.recorded:
            self.world.at(report.ts - report.period_ms, partial(self._want, report))
        self.world.every(STEP_MS, self._step)

    def bound(self, name: str, facts: Facts) -> float:
        """See world.Traffic: docs/laws.md, "shares"."""
        found, rate = self.found[name], self.found[name].limit
        joining_s = JOINING_FRACTION * 2 * self._interval_s if facts.joins else 0.0
        return facts.proxies * found.largest + rate * (facts.late_s + facts.cut_s + joining_s)

    def _want(self, report: GroupUsage) -> None:
        """A report's traffic begins."""
        for group, own in report.usage:
            for direction in _DIRECTIONS:
                count, size = (own.counts[direction + n] * STEP_MS / report.period_ms for n in range(2))
                self._wanted[report.broker, group, direction] = count, size, report.ts

    def _step(self) -> None:
        now, proxies = self.world.now, self.world.proxies
        for (broker, group, direction), (count, size, until) in self._wanted.items():
            if now > until or not (count or size):
                continue
            for number, part in self._homes(broker):
                waiting = self._waiting[proxies[number].name][group, direction]
                waiting[0] += count * part
                waiting[1] += size * part
        for proxy in proxies:
            if not proxy.on and (left := self._waiting[proxy.name]):
                # It was killed: its clients send what waited there through the others.
                self._move(left, [other for other in proxies if other.open])
                continue
            for (group, direction), waiting in self._waiting[proxy.name].items():
                if proxy.open and (waiting[0] >= 1.0 or waiting[1] >= 1.0):
                    self._pass(proxy, group, direction, waiting)

    def _homes(self, broker: str) -> list[tuple[int, float]]:
        """Which proxies a recorded broker's traffic comes to, and which part of it to each."""
        place, count = self._brokers.index(broker), len(self._brokers)
        there = [number for number, proxy in enumerate(self.world.proxies) if proxy.open]
        if not there:
            return []
        all_there = len(self.world.proxies)
        own = [number for number in there if number % count == place] if all_there >= count else []
        own = own or ([place % all_there] if place % all_there in there else there)
        return [(number, 1.0 / len(own)) for number in own]

    def _move(self, left: dict[tuple[str, int], list[float]], others: list[Proxy]) -> None:
        for key, counts in left.items():
            for other in others:
                own = self._waiting[other.name][key]
                own[:] = (had + count / len(others) for had, count in zip(own, counts, strict=True))
        left.clear()

    def _pass(self, proxy: Proxy, group: str, direction: int, waiting: list[float]) -> None:
        """Send what has come, as one request, if the account owes nothing."""
        account = proxy.meter.of_group(group)
        now_ms = proxy.context.clock.steady_ms()
        if account is not None and account.debt(direction, now_ms) is not None:
            return
        # A client has one step's traffic in a request; what waited goes on in the next ones.
        records, size = int(waiting[0]), int(waiting[1])
        if account is not None:
            largest = self._largest(account, direction)
            records, size = min(records, largest[0]), min(size, largest[1])
            account.charge(direction, records, size, now_ms)
            self._note(account, direction, proxy.world.now, (records, size))
        waiting[0], waiting[1] = waiting[0] - records, waiting[1] - size

    def _largest(self, account: Account, direction: int) -> tuple[int, int]:
        """The most that one request holds: a tenth of a second of the group's whole limit."""
        rates = account.limits.rates[direction : direction + 2]
        most = [2**62 if rate is None else max(1, int(rate * STEP_MS / 1000)) for rate in rates]
        return most[0], most[1]

    def _note(self, account: Account, direction: int, now: int, counts: tuple[int, int]) -> None:
        if account.limits.shadow:
            return
        for place, count in enumerate(counts, start=direction):
            rate = account.limits.rates[place]
            if rate is not None and count:
                found = self.found.of(f"{account.name} {DIMENSIONS[place]}")
                found.even(now, count, rate, SHARE_BURST_S * rate)
