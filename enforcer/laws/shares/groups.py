"""Resource groups at this proxy: the meter with everything around it, for one event loop."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from enforcer.core.account import Account, State
from enforcer.core.law import Context, EnforcerLaw
from enforcer.laws.shares.decisions import READER, Members, OthersShares, slots_of
from enforcer.laws.shares.meter import Meter
from enforcer.laws.shares.usage import UsageReports
from streaming.contract.decisions import Share
from streaming.contract.usage_events import DIMENSIONS
from streaming.metrics import MetricTable, Sample, read_counter, read_gauge

_PULSAR: Final = "pulsar_resource_group_"
_CLASS: Final = "ResourceGroup MonitoringClass"
_REMOTE: Final = "ResourceGroup RemoteBroker MonitoringClass"
_LIMIT: Final = "group dimension"
_NONE: Final = (0.0,) * len(DIMENSIONS)
_REMOTE_MAX: Final = 100
"""Other members of a group that have series of their own."""


class Groups(EnforcerLaw):
    """Ties policies, shares, meter, reports and metrics together.

    Attributes:
        meter: holds the accounts.
        reports: what is told to the job.

    Args:
        context: its name is the `broker` of reports and shares.
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


class GroupMetrics(MetricTable):
    """What the proxy tells Prometheus of resource groups: Pulsar's names, and what Pulsar lacks.

    Pulsar's "calculated quota" adds up over rounds (docs/protocol_notes.md 4.3), so the present share cannot
    be read from it; here it is a gauge under the same name. Nothing is kept for the scrape: the numbers are
    those that the meter works with.

    Args:
        context: see there; groups and quota subjects with series of their own are the first ones in use.
        members: of each group, as its shares tell.
    """

    prefix = "weir_group_"

    groups = read_gauge("Groups and quota subjects metered here", name="weir_proxy_groups")
    unmetered = read_counter(
        "Times that traffic was not counted", of="_meter.unmetered", name="weir_proxy_unmetered"
    )
    messages_used = read_counter("What passed here, messages", _CLASS, name=f"{_PULSAR}messages_used")
    messages_quota = read_gauge(
        "May be used here, messages per second", _CLASS, name=f"{_PULSAR}calculated_messages_quota"
    )
    messages_elsewhere = read_gauge(
        "Used elsewhere, messages per second", _REMOTE, name=f"{_PULSAR}remote_usage_messages_used"
    )
    bytes_used = read_counter("What passed here, bytes", _CLASS, name=f"{_PULSAR}bytes_used")
    bytes_quota = read_gauge(
        "May be used here, bytes per second", _CLASS, name=f"{_PULSAR}calculated_bytes_quota"
    )
    bytes_elsewhere = read_gauge(
        "Used elsewhere, bytes per second", _REMOTE, name=f"{_PULSAR}remote_usage_bytes_used"
    )
    reported = read_counter("Usage reports", "ResourceGroup", name=f"{_PULSAR}local_usage_reported")
    limit = read_gauge("Limit of the whole group, per second", _LIMIT)
    share = read_gauge("This proxy's newest share of it, per second", _LIMIT)
    use = read_gauge("Use here in the last round, per second", _LIMIT)
    debt = read_gauge("What has passed here and is not waited off yet", _LIMIT)
    unmet_ratio = read_gauge("Part of the last round in which demand was held back here", _LIMIT)
    overshoot_ratio = read_gauge("Use of all members above the limit, as a part of it", _LIMIT)
    fairness_ratio = read_gauge(
        "Least use of a member that wants more by the greatest of any; 1 is fair", _LIMIT
    )
    throttled_seconds = read_counter("Time in debt: clients were held back", _LIMIT)
    forgiven = read_counter("Debt above proxy.debt_max_s, which nobody waits off", _LIMIT)
    refunded = read_counter("Charges taken back, since the broker refused the data", _LIMIT)
    state = read_gauge("1 for how the proxy stands towards its share", "group state")
    members = read_gauge("Members that have a share", "group")

    def __init__(
        self, context: Context, meter: Meter, reports: UsageReports, members: Mapping[str, Members]
    ) -> None:
        self._proxy_id, self._groups_max = context.proxy_id, context.settings.metric_subjects
        self._meter = meter
        self._reports = reports
        self._members = members
        super().__init__(context.metrics.registry)

    def read_samples(self) -> Iterator[Sample]:
        """See there."""
        yield from self.read_paths((), self)
        yield self.groups, (), len(self._meter.accounts)
        for account in list(islice(list(self._meter.accounts.values()), self._groups_max)):
            yield self.reported, [account.name], self._reports.reported.get(account.name, 0)
            for state in State:
                yield self.state, [account.name, state.value], float(account.state is state)
            members = self._known_members(account)
            if members is not None:
                yield self.members, [account.name], len(members)
            yield from self._passed(account)
            yield from self._limited(account, members)

    def _passed(self, account: Account) -> Iterator[Sample]:
        # A scrape has a thread of its own: the group may go meanwhile.
        members = self._members.get(account.name)
        usage = {} if members is None else members.usage()
        usage.pop(self._proxy_id, None)
        for place, dimension in enumerate(DIMENSIONS):
            used, quota, elsewhere = (
                (self.bytes_used, self.bytes_quota, self.bytes_elsewhere)
                if place % 2
                else (self.messages_used, self.messages_quota, self.messages_elsewhere)
            )
            direction = "Publish" if place < 2 else "Dispatch"
            yield used, [account.name, direction], account.used[place]
            if (own := account.rate(place)) is not None:
                yield quota, [account.name, direction], own
            for broker, rates in islice(usage.items(), _REMOTE_MAX):
                if (rate := rates.get(dimension)) is not None:
                    yield elsewhere, [account.name, broker, direction], rate

    def _limited(self, account: Account, members: Members | None) -> Iterator[Sample]:
        use = self._reports.rates.get(account.name, _NONE)
        held_back = self._reports.held_back.get(account.name, _NONE)
        for place, dimension in enumerate(DIMENSIONS):
            limit, bucket = account.limits.rates[place], account.buckets[place]
            if limit is None or bucket is None:
                continue
            for row, value in (
                (self.throttled_seconds, bucket.debt_ms / 1000),
                (self.forgiven, bucket.forgiven),
                (self.refunded, account.refunded[place]),
                (self.limit, limit),
                (self.share, account.share[place]),
                (self.use, use[place]),
                (self.debt, bucket.debt),
                (self.unmet_ratio, held_back[place]),
                (self.overshoot_ratio, None if members is None else members.overshoot(place, limit)),
                (self.fairness_ratio, None if members is None else members.fairness(place)),
            ):
                if value is not None:
                    yield row, [account.name, dimension], value

    def _known_members(self, account: Account) -> Members | None:
        """What is known of all members; None: nothing, or not of others, whose packed shares are not read."""
        members, newcomers = self._members.get(account.name), self._meter.newcomers
        if members is not None and len(members) < 2 and newcomers.unread:
            return None if newcomers.stands(account.name, self._meter.clock.steady_ms()) else members
        return members
