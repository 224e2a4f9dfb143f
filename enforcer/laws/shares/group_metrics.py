"""What the proxy tells Prometheus of resource groups: Pulsar's names, and what Pulsar lacks.

Pulsar's "calculated quota" adds up over rounds (docs/protocol_notes.md 4.3), so the present share cannot be
read from it; here it is a gauge under the same name. Nothing is kept for the scrape: the numbers are those
that the meter works with.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from enforcer.core.account import Account, State
from enforcer.core.law import Context
from enforcer.laws.shares.decisions import Members
from enforcer.laws.shares.meter import Meter
from enforcer.laws.shares.usage import UsageReports
from streaming.contract.usage_events import DIMENSIONS

Family = CounterMetricFamily | GaugeMetricFamily

_DIRECTIONS: Final = (("Publish", 0), ("Dispatch", 2))
_UNITS: Final = (("messages", 0), ("bytes", 1))
_PULSAR: Final = "pulsar_resource_group_"
_NONE: Final = (0.0,) * len(DIMENSIONS)
_REMOTE_MAX: Final = 100
"""Other members of a group that have series of their own."""


class GroupCollector(Collector):
    """Reads the meter when it is asked.

    Args:
        context: see there; groups and quota subjects with series of their own are the first ones in use.
        meter: holds the accounts.
        reports: know the use of the last round.
        members: of each group, as its shares tell.
    """

    def __init__(
        self, context: Context, meter: Meter, reports: UsageReports, members: Mapping[str, Members]
    ) -> None:
        self._proxy_id, self._groups_max = context.proxy_id, context.settings.metric_subjects_max
        self._meter = meter
        self._reports = reports
        self._members = members

    def collect(self) -> Iterator[Family]:
        """All families, without groups too."""
        accounts = list(islice(list(self._meter.accounts.values()), self._groups_max))
        yield GaugeMetricFamily(
            "weir_proxy_groups", "Groups and quota subjects metered here", value=len(self._meter.accounts)
        )
        yield CounterMetricFamily(
            "weir_proxy_unmetered", "Times that traffic was not counted", value=self._meter.unmetered
        )
        yield from self._pulsar(accounts)
        yield from self._remote(accounts)
        yield from self._dimensions(accounts)
        yield from self._states(accounts)

    def _pulsar(self, accounts: list[Account]) -> Iterator[Family]:
        labels = ["ResourceGroup", "MonitoringClass"]
        for unit, place in _UNITS:
            used = CounterMetricFamily(f"{_PULSAR}{unit}_used", f"What passed here, {unit}", labels=labels)
            quota = GaugeMetricFamily(
                f"{_PULSAR}calculated_{unit}_quota", f"May be used here, {unit} per second", labels=labels
            )
            for account in accounts:
                for direction, first in _DIRECTIONS:
                    used.add_metric([account.name, direction], account.used[first + place])
                    rate = account.rate(first + place)
                    if rate is not None:
                        quota.add_metric([account.name, direction], rate)
            yield used
            yield quota
        reported = CounterMetricFamily(
            f"{_PULSAR}local_usage_reported", "Usage reports", labels=["ResourceGroup"]
        )
        for account in accounts:
            reported.add_metric([account.name], self._reports.reported.get(account.name, 0))
        yield reported

    def _remote(self, accounts: list[Account]) -> Iterator[Family]:
        labels = ["ResourceGroup", "RemoteBroker", "MonitoringClass"]
        for unit, place in _UNITS:
            remote = GaugeMetricFamily(
                f"{_PULSAR}remote_usage_{unit}_used", f"Used elsewhere, {unit} per second", labels=labels
            )
            for account in accounts:
                usage = self._members[account.name].usage() if account.name in self._members else {}
                usage.pop(self._proxy_id, None)
                for broker, rates in islice(usage.items(), _REMOTE_MAX):
                    for direction, first in _DIRECTIONS:
                        rate = rates.get(DIMENSIONS[first + place])
                        if rate is not None:
                            remote.add_metric([account.name, broker, direction], rate)
            yield remote

    def _dimensions(self, accounts: list[Account]) -> Iterator[Family]:
        labels = ["group", "dimension"]
        gauges = {
            name: GaugeMetricFamily(f"weir_group_{name}", text, labels=labels)
            for name, text in (
                ("limit", "Limit of the whole group, per second"),
                ("share", "This proxy's newest share of it, per second"),
                ("use", "Use here in the last round, per second"),
                ("debt", "What has passed here and is not waited off yet"),
                ("unmet_ratio", "Part of the last round in which demand was held back here"),
                ("overshoot_ratio", "Use of all members above the limit, as a part of it"),
                ("fairness_ratio", "Least use of a member that wants more by the greatest of any; 1 is fair"),
            )
        }
        throttled = CounterMetricFamily(
            "weir_group_throttled_seconds", "Time in debt: clients were held back", labels=labels
        )
        forgiven = CounterMetricFamily(
            "weir_group_forgiven", "Debt above proxy.debt_max_s, which nobody waits off", labels=labels
        )
        refunded = CounterMetricFamily(
            "weir_group_refunded", "Charges taken back, since the broker refused the data", labels=labels
        )
        for account in accounts:
            for place, dimension in enumerate(DIMENSIONS):
                limit, bucket = account.limits.rates[place], account.buckets[place]
                if limit is None or bucket is None:
                    continue
                names = [account.name, dimension]
                throttled.add_metric(names, bucket.debt_ms / 1000)
                forgiven.add_metric(names, bucket.forgiven)
                refunded.add_metric(names, account.refunded[place])
                for name, value in self._values(account, place, limit).items():
                    if value is not None:
                        gauges[name].add_metric(names, value)
        yield from (throttled, forgiven, refunded)
        yield from gauges.values()

    def _values(self, account: Account, place: int, limit: float) -> dict[str, float | None]:
        bucket, members = account.buckets[place], self._known_members(account)
        use = self._reports.rates.get(account.name, _NONE)
        held_back = self._reports.held_back.get(account.name, _NONE)
        return {
            "limit": limit,
            "share": account.share[place],
            "use": use[place],
            "debt": None if bucket is None else bucket.debt,
            "unmet_ratio": held_back[place],
            "overshoot_ratio": None if members is None else members.overshoot(place, limit),
            "fairness_ratio": None if members is None else members.fairness(place),
        }

    def _known_members(self, account: Account) -> Members | None:
        """What is known of all members; None: nothing, or not of others, whose packed shares are not read."""
        members = self._members.get(account.name)
        if members is not None and len(members) < 2 and self._meter.has_unread(account):
            return None
        return members

    def _states(self, accounts: list[Account]) -> Iterator[Family]:
        states = GaugeMetricFamily(
            "weir_group_state", "1 for how the proxy stands towards its share", labels=["group", "state"]
        )
        counts = GaugeMetricFamily("weir_group_members", "Members that have a share", labels=["group"])
        for account in accounts:
            for state in State:
                states.add_metric([account.name, state.value], float(account.state is state))
            if (members := self._known_members(account)) is not None:
                counts.add_metric([account.name], len(members))
        yield states
        yield counts
