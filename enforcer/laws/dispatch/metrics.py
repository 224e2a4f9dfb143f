"""What the proxy tells Prometheus of dispatch rates: PIP-406's counters, and what Pulsar does not show.

PIP-406 types its counters as gauges; here they are counters, and count the times that a plan was cut or held
back, as there. The rest is read off the counters that deliveries are limited by when it is asked for.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from enforcer.laws.dispatch.counter_table import CounterTable
from enforcer.laws.dispatch.left import debt_of, left_of
from enforcer.laws.dispatch.terms import Terms
from streaming.contract.names import namespace_of
from streaming.laws.dispatch.law import DIMENSIONS

Family = CounterMetricFamily | GaugeMetricFamily
_PLACE: Final = ("broker", "topic", "subscription")
_EVENTS: Final = {
    "msgs": "pulsar_subscription_dispatch_throttled_msg_events",
    "bytes": "pulsar_subscription_dispatch_throttled_bytes_events",
}


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


class DispatchCollector(Collector):
    """Reads the counters when it is asked.

    Args:
        table: the counters.
        seen: what was delivered, by broker, topic and subscription, the newest last.
        terms: tells what the policies in force say.
        brokers_ms: the brokers' time, ms.
        places_max: of each sort so many have series of their own, those that were used last.
    """

    def __init__(
        self,
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
        self._throttled: OrderedDict[tuple[str, str], dict[tuple[str, str], int]] = OrderedDict()

    def throttled(self, topic: str, subscription: str, level: str, dimension: str) -> None:
        """A plan was cut or held back."""
        place = topic, subscription
        counts = self._throttled.pop(place, None)
        if counts is None:
            if len(self._throttled) >= self._places_max:
                self._throttled.popitem(last=False)
            counts = {}
        counts[level, dimension] = counts.get((level, dimension), 0) + 1
        self._throttled[place] = counts

    def collect(self) -> Iterator[Family]:
        """All families, without deliveries too."""
        yield GaugeMetricFamily(
            "weir_dispatch_counters", "Counters of dispatch rates known", value=len(self._table.counters)
        )
        yield GaugeMetricFamily(
            "weir_dispatch_own_deliveries", "Deliveries whose decision was not read", value=self._table.tail
        )
        uncommon = CounterMetricFamily(
            "weir_dispatch_uncommon", "Deliveries out of the ordinary", labels=["what"]
        )
        for name, count in asdict(self._table.counts).items():
            uncommon.add_metric([name], count)
        yield uncommon
        yield from self._events()
        seen = list(self._seen.items())[-self._places_max :]
        yield from _totals(seen)
        yield from self._presents([place for place, _ in seen])

    def _events(self) -> Iterator[Family]:
        labels = ["namespace", "topic", "subscription", "reason"]
        places = [(place, dict(counts)) for place, counts in list(self._throttled.items())]
        for dimension, name in _EVENTS.items():
            events = CounterMetricFamily(name, f"Times that a limit in {dimension} cut a plan", labels=labels)
            for (topic, subscription), counts in places:
                for (level, by), count in counts.items():
                    if by == dimension:
                        events.add_metric([namespace_of(topic), topic, subscription, level], count)
            yield events

    def _presents(self, places: list[tuple[str, str, str]]) -> Iterator[Family]:
        left, debt = (
            GaugeMetricFamily(f"weir_dispatch_{name}", text, labels=[*_PLACE, "dimension"])
            for name, text in (
                ("available", "May still be delivered in this period"),
                ("debt", "Delivered beyond the period's rate, to be paid off by the next ones"),
            )
        )
        resume = GaugeMetricFamily(
            "weir_dispatch_resume_seconds", "Time until something may be delivered again", labels=_PLACE
        )
        limited_by = GaugeMetricFamily(
            "weir_dispatch_limited_by", "1 for what frees last", labels=[*_PLACE, "level", "dimension"]
        )
        at, terms = self._brokers_ms(), self._terms()
        for place in places:
            presents = self._table.presents(*place, at, terms)
            now = left_of(presents, at)
            resume.add_metric(place, now.wait_ms / 1000)
            if now.level:
                limited_by.add_metric([*place, now.level, now.dimension], 1)
            debts = debt_of(presents)
            for dimension, free, owed in zip(DIMENSIONS, (now.msgs, now.bytes), debts, strict=True):
                if free is not None:
                    left.add_metric([*place, dimension], free)
                    debt.add_metric([*place, dimension], owed)
        yield from (left, debt, resume, limited_by)


def _totals(seen: list[tuple[tuple[str, str, str], DeliveryTotals]]) -> Iterator[Family]:
    for number, name in enumerate(("msgs", "bytes", "entries")):
        total = CounterMetricFamily(
            f"weir_dispatch_delivered_{name}", f"Delivered under a rate, {name}", labels=_PLACE
        )
        for place, each in seen:
            total.add_metric(place, each.totals[number])
        yield total
