"""Resource groups at this proxy: the meter with everything around it, for one event loop."""

import asyncio
from collections.abc import Sequence

from enforcer.core.law import Context, EnforcerLaw
from enforcer.laws.shares.decisions import READER, Members, OthersShares, slots_of
from enforcer.laws.shares.group_metrics import GroupMetrics
from enforcer.laws.shares.meter import Meter
from enforcer.laws.shares.usage import UsageReports
from streaming.contract.decisions import Share


class Groups(EnforcerLaw):
    """Ties policies, shares, meter, reports and metrics together.

    Attributes:
        meter: holds the accounts.
        reports: what is told to the job.

    Args:
        context: its name is the `broker` of reports and shares.
        meter: see there.
    """

    reads = READER

    def __init__(self, context: Context, meter: Meter) -> None:
        self.meter = meter
        self._proxy_id = context.proxy_id
        self._clock = context.clock
        self._policies = context.policies
        self._membership = context.membership
        self.reports = UsageReports(context, meter)
        self._members: dict[str, Members] = {}
        GroupMetrics(context, meter, self.reports, self._members)

    @property
    def standing_ms(self) -> int:
        """As long as a share stands, where groups are metered."""
        return self.meter.share_life_ms if self.meter.active else 0

    def look(self) -> None:
        """Follow the time: policies come into force, shares end."""
        self.meter.set_policies(self._policies.now)
        self.meter.newcomers.set_alive(self._membership.metering, self._clock.steady_ms())
        self.meter.look()

    def take(self, shares: Sequence[Share | OthersShares]) -> None:
        """Shares of this proxy, and what those of others say of groups that are in use here."""
        now_ms = self._clock.steady_ms()
        for share in shares:
            if isinstance(share, OthersShares):
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
            await asyncio.sleep(min(self.look_s, left_s))
            now_ms = self._clock.steady_ms()
            self.look()
            next_ms = min(next_ms, now_ms + self.meter.interval_ms)
            if now_ms >= next_ms:
                # After a stall the next round is a whole one again: a rate over a few ms says nothing.
                late = now_ms >= next_ms + self.meter.interval_ms
                next_ms = (now_ms if late else next_ms) + self.meter.interval_ms
                self.end_round()

    def end_round(self) -> None:
        """Report, and forget the members of groups that have no account any more."""
        self.reports.report()
        for group in self._members.keys() - self.meter.accounts.keys():
            del self._members[group]

    def stop(self) -> None:
        """Tell the job that this proxy needs no shares any more."""
        self.reports.farewell()
