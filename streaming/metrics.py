"""How every part declares its metrics, and shows them: over HTTP, with labels that no terminal obeys."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from operator import attrgetter
from typing import Any, Final, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from streaming.contract.printable import is_printable, printable

_COUNTED: Final[Mapping[str, Any]] = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}
_READ: Final[Mapping[str, Any]] = {
    "counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One family of a table of metrics.

    Attributes:
        kind: counter, gauge or histogram.
        text: its help.
        labels: their names, with spaces between.
        name: its own; empty: its table's prefix, and the attribute that it is there.
        of: read when somebody asks, at this path of attributes (empty: its table does); None: counted.
        begun: of each label the values that are there from the start, with spaces between. For alerts: a
            series that appears with 1 shows no increase.
        more: what else the library is told.
    """

    kind: str
    text: str
    labels: str = ""
    name: str = ""
    of: str | None = None
    begun: Sequence[str] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    def counted(self, name: str, registry: CollectorRegistry) -> Any:
        """What is counted with."""
        metric = _COUNTED[self.kind](name, self.text, self.labels.split(), registry=registry, **self.more)
        for values in product(*map(str.split, self.begun)) if self.begun else ():
            metric.labels(*values)
        return metric

    def family(self, name: str) -> Any:
        """What takes the samples of one look."""
        return _READ[self.kind](name, self.text, labels=self.labels.split())


Sample = tuple[Row, Sequence[str], float] | tuple[Row, Sequence[str], list[tuple[str, float]], float]
"""A row, the values of its labels, and the number; of a histogram its buckets, and its sum."""


def counter(text: str, labels: str = "", *begun: str, name: str = "") -> Counter:
    """Declare a counter; see Row."""
    return cast(Counter, Row("counter", text, labels, name, begun=begun))


def gauge(text: str, labels: str = "", name: str = "") -> Gauge:
    """Declare a gauge that is set."""
    return cast(Gauge, Row("gauge", text, labels, name))


def histogram(text: str, buckets: Sequence[float], labels: str = "", name: str = "") -> Histogram:
    """Declare a histogram."""
    return cast(Histogram, Row("histogram", text, labels, name, more={"buckets": buckets}))


def read_counter(text: str, labels: str = "", of: str = "", name: str = "") -> Row:
    """Declare a counter that somebody else keeps."""
    return Row("counter", text, labels, name, of)


def read_gauge(text: str, labels: str = "", of: str = "", name: str = "") -> Row:
    """Declare a gauge that is read."""
    return Row("gauge", text, labels, name, of)


class MetricTable(Collector):
    """All that a part tells Prometheus of one thing: each family is a row, an attribute of the class.

    An instance has what is counted with under the same names.

    Attributes:
        prefix: see Row.
        registry: shows it.

    Args:
        registry: see there; None: one of its own.
    """

    prefix = "weir_"

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._read: dict[Row, str] = {}
        for attribute, row in vars(type(self)).items():
            if isinstance(row, Row):
                name = row.name or self.prefix + attribute
                if row.of is None:
                    setattr(self, attribute, row.counted(name, self.registry))
                else:
                    self._read[row] = name
        if self._read:
            self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """All families that are read, those without samples too."""
        families = {row: row.family(name) for row, name in self._read.items()}
        for row, labels, *values in self.read_samples():
            families[row].add_metric(labels, *values)
        yield from families.values()

    def read_samples(self) -> Iterable[Sample]:
        """What stands now."""
        return self.read_paths((), self)

    def read_paths(self, labels: Sequence[str], owner: object) -> Iterator[Sample]:
        """The rows that have a path, which begins at `owner`."""
        for row in self._read:
            if row.of:
                yield row, labels, attrgetter(row.of)(owner)


class PrintableLabels(Collector):
    """A registry whose labels are shown by `printable`: topics, client ids and users are others' choice.

    An escape character in one would reach the terminal of whoever looks at /metrics, and what is no text at
    all (a surrogate) would keep all metrics from being shown.

    Args:
        registry: of all metrics of a part.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are, but for such labels."""
        for metric in self._registry.collect():
            metric.samples = [
                sample
                if all(map(is_printable, sample.labels.values()))
                else sample._replace(labels={name: printable(text) for name, text in sample.labels.items()})
                for sample in metric.samples
            ]
            yield metric

    def restricted_registry(self, names: Iterable[str]) -> "PrintableLabels":
        """Those of some names; asked for by `/metrics?name[]=NAME`."""
        return PrintableLabels(self._registry.restricted_registry(names))  # type: ignore[arg-type]
