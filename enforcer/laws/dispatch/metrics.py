"""What the proxy tells Prometheus of dispatch rates: PIP-406's counters, and what Pulsar does not show.

PIP-406 types its counters as gauges; here they are counters, and count the times that a plan was cut or held
back, as there. The rest is read off the counters that deliveries are limited by when it is asked for.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from prometheus_client import CollectorRegistry

from enforcer.laws.dispatch.counter_table import CounterTable
from enforcer.laws.dispatch.left import debt_of, left_of
from enforcer.laws.dispatch.terms import Terms
from streaming.contract.names import namespace_of
from streaming.laws.dispatch.law import DIMENSIONS
from streaming.metrics import MetricTable, Sample, read_counter, read_gauge

_PLACE: Final = "broker topic subscription"
_EVENT: Final = "namespace topic subscription reason"
_THROTTLED: Final = "pulsar_subscription_dispatch_throttled_"


@dataclass(slots=True)
class DeliveryTotals:
    """What was delivered of a topic to a subscription through a broker.

    Attributes:
        last: when, ms on the brokers' clock.
        msgs: messages, until an hour passes without a delivery.
        bytes: the same.
        entries: the same, the batches that held them.
        totals: all three since the start.
    """

    last: int = -1
    msgs: int = 0
    bytes: int = 0
    entries: int = 0
    totals: tuple[int, int, int] = (0, 0, 0)

    def take(self, ts: int, msgs: int, size: int, entries: int) -> None:
        """Add a delivery."""
        self.last = ts
        self.msgs, self.bytes, self.entries = self.msgs + msgs, self.bytes + size, self.entries + entries
        before = self.totals
        self.totals = before[0] + msgs, before[1] + size, before[2] + entries


class DispatchMetrics(MetricTable):
    """Reads the counters when it is asked.

    Args:
        registry: shows them.
        table: the counters.
        seen: what was delivered, by broker, topic and subscription, the newest last.
        terms: tells what the policies in force say.
        brokers_ms: the brokers' time, ms.
        places_max: of each sort so many have series of their own, those that were used last.
    """

    prefix = "weir_dispatch_"

    counters = read_gauge("Counters of dispatch rates known")
    own_deliveries = read_gauge("Deliveries whose decision was not read", of="_table.tail")
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

    def __init__(
        self,
        registry: CollectorRegistry,
        table: CounterTable,
        seen: Mapping[tuple[str, str, str], DeliveryTotals],
        terms: Callable[[], Terms],
        brokers_ms: Callable[[], int],
        places_max: int,
    ) -> None:
        self._table = table
        self._seen = seen
        self._terms = terms
        self._brokers_ms = brokers_ms
        self._places_max = places_max
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
        yield self.counters, (), len(self._table.counters)
        for what, count in asdict(self._table.counts).items():
            yield self.uncommon, [what], count
        for (topic, subscription, level, dimension), count in list(self._throttled.items()):
            events = self.msg_events if dimension == "msgs" else self.bytes_events
            yield events, [namespace_of(topic), topic, subscription, level], count
        for place, each in list(self._seen.items())[-self._places_max :]:
            delivered = self.delivered_msgs, self.delivered_bytes, self.delivered_entries
            yield from ((row, place, total) for row, total in zip(delivered, each.totals, strict=True))
            yield from self._presents(place)

    def _presents(self, place: tuple[str, str, str]) -> Iterator[Sample]:
        at = self._brokers_ms()
        presents = self._table.presents(*place, at, self._terms())
        now = left_of(presents, at)
        yield self.resume_seconds, place, now.wait_ms / 1000
        if now.level:
            yield self.limited_by, [*place, now.level, now.dimension], 1
        debts = debt_of(presents)
        for dimension, free, owed in zip(DIMENSIONS, (now.msgs, now.bytes), debts, strict=True):
            if free is not None:
                yield self.available, [*place, dimension], free
                yield self.debt, [*place, dimension], owed
