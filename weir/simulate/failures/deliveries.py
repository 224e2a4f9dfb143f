"""Deliveries under dispatch rates, each when its proxy has something left (docs/contract.md 3.3)."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil

from enforcer.core.law import EnforcerLaw
from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.laws.dispatch.terms import Place, terms_of
from streaming.contract.usage_events import DispatchUsage
from streaming.laws.dispatch.law import DIMENSIONS
from streaming.policy.dispatch_limits import NOT_LIMITED
from streaming.policy.timeline import PolicyTimeline
from weir.simulate.agenda import Timer
from weir.simulate.failures.excess import Found, S
from weir.simulate.failures.proxy import Proxy
from weir.simulate.failures.scenario import Facts
from weir.simulate.failures.world import Traffic


@dataclass(slots=True)
class _Line:
    """What one place's subscription has to get through one proxy, in order."""

    waiting: deque[DispatchUsage] = field(default_factory=deque)
    timer: Timer | None = None


class Deliveries(Traffic):
    """What subscriptions are sent."""

    job = ("dispatch",)

    def __init__(self, recorded: Sequence[DispatchUsage], found: Found, timeline: PolicyTimeline) -> None:
        super().__init__(recorded, found, timeline)
        self._laws: dict[str, Dispatch] = {}
        self._lines: dict[str, dict[Place, _Line]] = {}

    def enforce(self, proxy: Proxy) -> list[EnforcerLaw]:
        """See world.Traffic."""
        law = self._laws[proxy.name] = Dispatch(proxy.context, proxy.meter)
        self._lines[proxy.name] = {}
        return [law]

    def heard(self, proxy: Proxy) -> None:
        """See world.Traffic: what waits may go now."""
        for place, line in self._lines[proxy.name].items():
            if line.waiting:
                self._go_on(proxy, place, line)

    def bound(self, name: str, facts: Facts) -> float:
        """See world.Traffic: docs/laws.md, "dispatch", several proxies."""
        found = self.found[name]
        if facts.proxies == 1:
            return found.largest
        old_ms = (facts.late_s + facts.cut_s) * S
        return facts.proxies * found.largest + found.limit * ceil(old_ms / found.every_ms)

    def _come(self, number: int, each: DispatchUsage) -> None:
        proxy = self.world.home(number)
        if proxy is not None:
            self._put(proxy, each)

    def _put(self, proxy: Proxy, each: DispatchUsage) -> None:
        place = each.broker, each.topic, each.subscription
        line = self._lines[proxy.name].setdefault(place, _Line())
        line.waiting.append(each)
        if len(line.waiting) == 1:
            self._go_on(proxy, place, line)

    def _go_on(self, proxy: Proxy, place: Place, line: _Line) -> None:
        """Deliver what may be, and come again when more may."""
        if line.timer is not None:
            line.timer.cancel()
            line.timer = None
        if not proxy.open:
            # It was killed; its consumers go to the others, and read on there.
            waiting, line.waiting = line.waiting, deque()
            for number, each in enumerate(waiting):
                self._come(number, each)
            return
        law = self._laws[proxy.name]
        while line.waiting:
            moment = law.moment(place[0])
            left = law.left_at(moment, *place[1:])
            if left.wait_ms > 0:
                line.timer = proxy.world.after(left.wait_ms, partial(self._go_on, proxy, place, line))
                return
            each = line.waiting.popleft()
            law.deliver_at(
                moment, *place[1:], msgs=each.msgs, size=each.bytes, entries=each.entries,
                backlog=each.backlog,
            )  # fmt: skip
            self._note(proxy.world.now, place, each)

    def _note(self, now: int, place: Place, each: DispatchUsage) -> None:
        policies = self.timeline.at(now)
        terms = terms_of(policies)
        if policies.tracks or (not each.backlog and not terms.all_charged):
            return
        units = each.entries if terms.by_entry else each.msgs
        for _, names, limit in terms.limiting(place):
            for dimension, count in enumerate((units, each.bytes)):
                rate = limit.rate[dimension]
                if rate != NOT_LIMITED:
                    name = "/".join((*names, DIMENSIONS[dimension]))
                    found = self.found.of(name)
                    found.by_period(now, count, rate, limit.period_ms)
