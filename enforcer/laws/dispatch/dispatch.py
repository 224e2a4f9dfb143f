"""Dispatch rates at this proxy, for one event loop: asks the counters, reports deliveries, takes decisions.

A protocol's side names the upstream broker (`broker-<id>`), the full name of the topic and the subscription
(docs/contract.md 3.3, "On Kafka"), asks what is left before it delivers, and says what it has delivered.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Final

from prometheus_client import CollectorRegistry

from enforcer.core.account import DISPATCH
from enforcer.core.law import Accounts, Context, EnforcerLaw
from enforcer.core.lines import Counter, Lines, Others
from enforcer.laws.dispatch.counter import Delivery
from enforcer.laws.dispatch.counter_table import CounterTable, Moment
from enforcer.laws.dispatch.decisions import READER, CounterStatement
from enforcer.laws.dispatch.left import UNLIMITED, Left, both, debt_of, left_of, left_of_account
from enforcer.laws.dispatch.reports import DeliveryReports
from enforcer.laws.dispatch.terms import Place, Terms, all_names, terms_of
from streaming.contract.names import namespace_of
from streaming.laws.dispatch.law import DIMENSIONS, FORGET_MS
from streaming.metrics import MetricTable, Sample, read_counter, read_gauge
from streaming.policy.policy_set import PolicySet

DISPATCH_TAIL_MAX: Final = 20_000
"""Own deliveries through one broker whose decision was not read; the oldest are summed up."""
_PLACE: Final = "broker topic subscription"
_EVENT: Final = "namespace topic subscription reason"
_THROTTLED: Final = "pulsar_subscription_dispatch_throttled_"


@dataclass(slots=True)
class DeliveryTotals:
    """What was delivered of a topic to a subscription through a broker.

    Attributes:
        last: when, ms on the brokers' clock.
        totals: messages, bytes, and the entries (batches) that held them, since the start.
        before: the same until an hour passed without a delivery.
    """

    last: int = -1
    totals: tuple[int, int, int] = (0, 0, 0)
    before: tuple[int, int, int] = (0, 0, 0)

    def take(self, ts: int, msgs: int, size: int, entries: int) -> None:
        """Add a delivery."""
        had = self.totals
        if ts - self.last > FORGET_MS:
            self.before = had
        self.last = ts
        self.totals = had[0] + msgs, had[1] + size, had[2] + entries


class DispatchMetrics(MetricTable):
    """What the proxy tells Prometheus of dispatch rates: PIP-406's counters, and what Pulsar does not show.

    PIP-406 types its counters as gauges; here they are counters, and count the times that a plan was cut or
    held back, as there. The rest is read off the counters that limit deliveries when it is asked for.

    Args:
        places_max: of each sort so many have series of their own, those that were used last.
    """

    prefix = "weir_dispatch_"

    counters = read_gauge("Counters of dispatch rates known")
    own_deliveries = read_gauge("Deliveries whose decision was not read", of="_dispatch.table.tail")
    uncommon = read_counter("Deliveries out of the ordinary", "what")
    msg_events = read_counter("Times that a limit in msgs cut a plan", _EVENT, name=f"{_THROTTLED}msg_events")
    bytes_events = read_counter(
        "Times that a limit in bytes cut a plan", _EVENT, name=f"{_THROTTLED}bytes_events"
    )
    delivered_msgs = read_counter("Delivered under a rate, msgs", _PLACE)
    delivered_bytes = read_counter("Delivered under a rate, bytes", _PLACE)
    delivered_entries = read_counter("Delivered under a rate, entries", _PLACE)
    available = read_gauge("May still be delivered in this period", f"{_PLACE} dimension")
    debt = read_gauge(
        "Delivered beyond the period's rate, to be paid off by the next ones", f"{_PLACE} dimension"
    )
    resume_seconds = read_gauge("Time until something may be delivered again", _PLACE)
    limited_by = read_gauge("1 for what frees last", f"{_PLACE} level dimension")

    def __init__(self, registry: CollectorRegistry, dispatch: "Dispatch", places_max: int) -> None:
        self._dispatch, self._places_max = dispatch, places_max
        self._throttled: OrderedDict[tuple[str, str, str, str], int] = OrderedDict()
        super().__init__(registry)

    def throttled(self, topic: str, subscription: str, level: str, dimension: str) -> None:
        """A plan was cut or held back."""
        counts, series = self._throttled, (topic, subscription, level, dimension)
        if series not in counts and len(counts) >= self._places_max:
            counts.popitem(last=False)
        counts[series] = counts.get(series, 0) + 1
        counts.move_to_end(series)

    def read_samples(self) -> Iterator[Sample]:
        """See there."""
        yield from self.read_paths((), self)
        yield self.counters, (), len(self._dispatch.table.counters)
        for what, count in asdict(self._dispatch.table.counts).items():
            yield self.uncommon, [what], count
        for (topic, subscription, level, dimension), count in list(self._throttled.items()):
            events = self.msg_events if dimension == "msgs" else self.bytes_events
            yield events, [namespace_of(topic), topic, subscription, level], count
        for place, each in list(self._dispatch.seen.items())[-self._places_max :]:
            delivered = self.delivered_msgs, self.delivered_bytes, self.delivered_entries
            yield from ((row, place, total) for row, total in zip(delivered, each.totals, strict=True))
            yield from self._presents(place)

    def _presents(self, place: tuple[str, str, str]) -> Iterator[Sample]:
        at = self._dispatch.brokers_ms()
        presents = self._dispatch.table.presents(*place, at, self._dispatch.terms())
        now = left_of(presents, at)
        yield self.resume_seconds, place, now.wait_ms / 1000
        if now.level:
            yield self.limited_by, [*place, now.level, now.dimension], 1
        debts = debt_of(presents)
        for dimension, free, owed in zip(DIMENSIONS, (now.msgs, now.bytes), debts, strict=True):
            if free < inf:
                yield self.available, [*place, dimension], free
                yield self.debt, [*place, dimension], owed


class Dispatch(EnforcerLaw):
    """What one proxy process knows of dispatch rates.

    Attributes:
        active: some policy in force sets a dispatch rate; while none does nothing else here need be called.
        generation: goes up when limits may have changed.
        begun: how often it has become active: before, nobody looked at what passes.
        by_entry: entries are counted, not messages (dispatchThrottlingOnBatchMessageEnabled).
        all_charged: deliveries without a backlog too (dispatchThrottlingOnNonBacklogConsumerEnabled).
        by_subscription: some policy in force sets a rate per subscription, so groups must be learnt.
        lines: who waits for what, in what order.
        reports: deliveries on their way to the job.
        table: the counters.
        seen: what was delivered, by broker, topic and subscription, the newest last.
        brokers_ms: the brokers' time, ms.

    Args:
        accounts: hold this proxy's shares of rates across brokers.
    """

    reads = READER

    def __init__(self, context: Context, accounts: Accounts) -> None:
        settings, policies, proxy_id = context.settings, context.policies, context.proxy_id
        self.active = False
        self.generation = self.begun = 0
        self.lines = Lines(context.clock.steady_ms)
        self._accounts = accounts
        self._clock = context.clock
        self._membership = context.membership
        self._policies = policies
        self.brokers_ms = context.brokers_ms
        self._use(policies.at(self.brokers_ms()))
        self.table = CounterTable(
            policies.timeline,
            counters_max=settings.dispatch_rows,
            tail_max=DISPATCH_TAIL_MAX,
        )
        policies.follow(self.table.policies_changed, self.table.sweep)
        self.reports = DeliveryReports(context, self.table.counts)
        self._proxy_id = proxy_id
        self._id_head = f"{proxy_id}-dispatch-{context.clock.wall_ms()}-"
        self._seq = 0
        self.seen: OrderedDict[Place, DeliveryTotals] = OrderedDict()
        self._seen_max = settings.dispatch_rows
        self._metrics = DispatchMetrics(context.metrics.registry, self, settings.metric_subjects)

    def terms(self) -> Terms:
        """What the policies in force say, as of the last look."""
        return self._terms

    def look(self) -> None:
        """Called now and then: follow the policies as they come into force, and who is alive."""
        policies = self._policies.at(self.brokers_ms())
        if policies is not self._in_force:
            self._use(policies)
        self.table.set_proxies(self.proxies)

    @property
    def tracks(self) -> bool:
        """Whether nothing is held back: the mode is `track`."""
        return self._in_force.tracks

    @property
    def proxies(self) -> int:
        """How many proxies are alive that may stand before the same brokers, this one among them."""
        return max(1, self._membership.peers)

    @property
    def standing_ms(self) -> int:
        """As long as a share stands: a rate may be one across brokers."""
        return self._accounts.share_life_ms if self.active else 0

    def limits(self, topic: str, subscription: str) -> bool:
        """Whether a rate of any level limits deliveries of a topic to a subscription.

        Args:
            subscription: "": of consumers without one.
        """
        terms = self._terms
        return terms.limits(("",)) or terms.limits(("", topic)) or terms.limits(("", topic, subscription))

    def limits_group(self, topic: str, subscription: str) -> bool:
        """Whether a rate of its own limits a subscription of a topic."""
        return self._terms.limits(("", topic, subscription))

    def may_limit_groups(self, topic: str) -> bool:
        """Whether some subscription of a topic may have a rate of its own."""
        return self._terms.may_limit_groups(topic)

    def moment(self, broker: str) -> Moment:
        """A broker as it is now: read once for the hundreds of topics of a request."""
        return self.table.moment(broker, self.brokers_ms())

    def left_at(self, moment: Moment, topic: str, subscription: str, others: Others | None = None) -> Left:
        """What may be delivered in a moment, all in mode `track`; arguments as `CounterTable.left`."""
        if self._in_force.tracks:
            return UNLIMITED
        left = self.table.left(moment, topic, subscription, others)
        for level, group in self._terms.groups(topic, subscription):
            account = self._accounts.of_group(group)
            if account is None:
                continue
            share = left_of_account(account, level, self._clock.steady_ms())
            if others is not None:
                share = share.beside(others((group,)))
            left = both(left, share)
        return left

    def counters(self, broker: str, topic: str, subscription: str) -> list[Counter]:
        """Whose counters limit deliveries, groups among them; arguments as `left_at`, and the broker."""
        terms = self._terms
        found: list[Counter] = [names for _, names, _ in terms.limiting((broker, topic, subscription))]
        return found + [(group,) for _, group in terms.groups(topic, subscription)]

    def deliver_at(
        self, moment: Moment, topic: str, subscription: str, *, msgs: int, size: int, entries: int,
        backlog: bool,
    ) -> None:  # fmt: skip
        """Count what was delivered, and report it, if any level limits it.

        Args:
            moment: of the upstream broker, `broker-<id>`.
            topic: its full name.
            subscription: "": of consumers without one, counted at broker and topic alone.
            msgs: messages.
            size: bytes.
            entries: the batches that held them.
            backlog: more was left unread.
        """
        self._seq += 1
        delivery = Delivery(self._seq, 0, msgs, size, entries, backlog, (topic, subscription))
        ts = self.table.deliver(moment, delivery)
        groups = self._terms.groups(topic, subscription)
        if ts is None and not groups:
            return
        place = moment.broker, topic, subscription
        self._see(place, delivery.ts, msgs, size, entries)
        if backlog or self.all_charged:
            units = entries if self.by_entry else msgs
            for _, group in groups:
                account = self._accounts.of_group(group)
                if account is None:
                    self._accounts.unmetered += 1
                else:
                    account.charge(DISPATCH, units, size, self._clock.steady_ms())
        if ts is None:
            return
        self.reports.put(moment.broker, {
            "id": f"{self._id_head}{self._seq}", "ts": ts, "broker": moment.broker, "topic": topic,
            "subscription": subscription, "msgs": msgs, "bytes": size, "entries": entries, "backlog": backlog,
            "proxy": self._proxy_id,
        })  # fmt: skip

    def mean_entry(self, broker: str, topic: str, subscription: str) -> tuple[float, float]:
        """Mean messages and bytes of an entry delivered so far through this proxy, for planning.

        As the law's averages it is forgotten after an hour without a delivery; (1.0, 0.0): nothing was seen.
        """
        seen = self.seen.get((broker, topic, subscription))
        if seen is None or self.brokers_ms() - seen.last > FORGET_MS:
            return 1.0, 0.0
        now, before = seen.totals, seen.before
        entries = now[2] - before[2]
        return ((now[0] - before[0]) / entries, (now[1] - before[1]) / entries) if entries else (1.0, 0.0)

    def throttled(self, broker: str, topic: str, subscription: str, level: str, dimension: str) -> None:
        """What was to be delivered was cut, or held back, by a level's limit in a dimension; for metrics."""
        self._metrics.throttled(topic, subscription, level, dimension)

    def take(self, decisions: Sequence[CounterStatement]) -> None:
        """Decisions were read, our own and those of others, in order."""
        for said in decisions:
            own = None
            if said.id.startswith(self._id_head):
                number = said.id.removeprefix(self._id_head)
                # Anyone's id: of thousands of digits none makes a number.
                own = int(number) if number.isdecimal() and len(number) < 20 else None
            self.table.state(said, own)
            if self.table.proxies > 1:
                for names in all_names((said.broker, said.topic, said.subscription)):
                    self.lines.wake(names)

    def stop(self) -> None:
        """Hand over what waits to be reported."""
        self.reports.flush()

    def _use(self, policies: PolicySet) -> None:
        self._in_force = policies
        self._terms = terms = terms_of(policies)
        self.begun += terms.active and not self.active
        self.active, self.by_subscription = terms.active, terms.by_subscription
        self.by_entry, self.all_charged = terms.by_entry, terms.all_charged
        self.generation += 1

    def _see(self, place: Place, ts: int, msgs: int, size: int, entries: int) -> None:
        seen = self.seen.get(place)
        if seen is None:
            if len(self.seen) >= self._seen_max:
                self.seen.popitem(last=False)
            seen = self.seen[place] = DeliveryTotals()
        else:
            self.seen.move_to_end(place)
        seen.take(ts, msgs, size, entries)
