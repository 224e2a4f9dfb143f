"""Resource groups at this proxy: the meter with everything around it, for one event loop."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from enforcer.core import bounds
from enforcer.core.clock import Clock
from enforcer.core.feeds.policies import Policies
from enforcer.core.feeds.shares import Elsewhere, Members, Share, slots_of
from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.laws.shares.group_metrics import GroupCollector
from enforcer.laws.shares.meter import Meter
from enforcer.laws.shares.usage import USAGE_RECORD_BYTES, Send, SendPack, UsageReports
from streaming.policy.groups import LIFE_ROUNDS

_LOOK_S: Final = 0.25
"""How often the time is looked at: policies come into force, and shares end, at most so late."""


class Groups:
    """Ties policies, shares, meter, reports and metrics together.

    Attributes:
        meter: holds the accounts.
        alive: tells how many proxies are alive, this one among them; None: not known. Set by whoever follows
            them.
        reports: what is told to the job.

    Args:
        proxy_id: name of the proxy: the `broker` of its reports and shares.
        settings: bounds and rules.
        metrics: gets the groups' numbers too.
        clock: tells the time.
        send: takes usage reports.
        send_pack: takes packed ones.
        policies: as far as they were read.
    """

    def __init__(
        self,
        proxy_id: str,
        settings: ProxySettings,
        metrics: Metrics,
        clock: Clock,
        send: Send,
        send_pack: SendPack,
        policies: Policies,
    ) -> None:
        self.meter = Meter(settings, clock)
        self.alive: Callable[[], int | None] = lambda: None
        self._proxy_id = proxy_id
        self._clock = clock
        self._policies = policies
        self.reports = UsageReports(
            proxy_id,
            self.meter,
            send,
            send_pack,
            clock,
            record_bytes=USAGE_RECORD_BYTES,
            pack_min=bounds.PACK_MIN,
        )
        self._members: dict[str, Members] = {}
        metrics.registry.register(
            GroupCollector(self.meter, self.reports, self._members, proxy_id, settings.metric_subjects_max)
        )

    @property
    def share_life_ms(self) -> int:
        """For how long a share stands at most when it is not repeated."""
        return LIFE_ROUNDS * self.meter.interval_ms

    def look(self) -> None:
        """Follow the time: policies come into force, shares end."""
        self.meter.set_policies(self._policies.now)
        self.meter.newcomers.set_alive(self.alive(), self._clock.steady_ms())
        self.meter.look()

    def take(self, shares: Iterable[Share | Elsewhere]) -> None:
        """Shares of this proxy, and what those of others say of groups that are in use here."""
        now_ms = self._clock.steady_ms()
        for share in shares:
            if isinstance(share, Elsewhere):
                self.meter.newcomers.stand(share.slots, now_ms, share.ttl_ms)
                self.meter.newcomers.unread = True
                continue
            if share.broker == self._proxy_id:
                self.meter.take_share(share, self._policies.at(share.ts))
            elif share.limits:
                self.meter.newcomers.stand(slots_of([share.group]), now_ms, share.ttl_ms)
            if share.group in self.meter.accounts:
                self._members.setdefault(share.group, Members()).take(share)

    async def run(self) -> None:
        """Report each round, until cancelled."""
        next_ms = self._clock.steady_ms() + self.meter.interval_ms
        while True:
            left_s = max(0.0, next_ms - self._clock.steady_ms()) / 1000
            await asyncio.sleep(min(_LOOK_S, left_s))
            now_ms = self._clock.steady_ms()
            self.look()
            next_ms = min(next_ms, now_ms + self.meter.interval_ms)
            if now_ms >= next_ms:
                # After a stall the next round is a whole one again: a rate over a few ms says nothing.
                late = now_ms >= next_ms + self.meter.interval_ms
                next_ms = (now_ms if late else next_ms) + self.meter.interval_ms
                self.reports.report()
                for group in self._members.keys() - self.meter.accounts.keys():
                    del self._members[group]

    def stop(self) -> None:
        """Tell the job that this proxy needs no shares any more."""
        self.reports.farewell()
