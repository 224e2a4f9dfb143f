"""How every part shows its metrics: over HTTP, with labels that no terminal obeys."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Metric, start_http_server
from prometheus_client.registry import Collector

from streaming.contract.errors import WeirError
from streaming.contract.printable import is_printable, printable


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


def serve_metrics(registry: CollectorRegistry, host: str, port: int) -> str:
    """Serve a registry from a thread; returns its URL, since port 0 takes any free one.

    Raises:
        WeirError: the port is taken, or the address not ours.
    """
    try:
        server, _ = start_http_server(port, host, PrintableLabels(registry))
    except OSError as error:
        raise WeirError(f"cannot serve metrics on {host}:{port}: {error.strerror or error}") from error
    return f"http://{host}:{server.server_port}/metrics"
