"""What all connections of a Pulsar proxy share."""

from collections.abc import Callable
from typing import Any, Protocol

from enforcer.host.server import Hosting
from enforcer.host.sockets import Address
from enforcer.pulsar.link import Link, Part
from enforcer.pulsar.lookup.targets import Targets
from enforcer.pulsar.settings import PulsarSettings
from streaming.metrics import MetricTable, counter, gauge


class PulsarMetrics(MetricTable):
    """What only the Pulsar proxy tells Prometheus (docs/metrics.md)."""

    prefix = "weir_pulsar_"

    lookups = counter("Answers to lookups, by what the client got", "outcome")
    redirects = counter("Lookups followed to another broker, by how that went", "result")
    refused_targets = counter("Clients that asked for a broker nobody knows")
    targets = gauge("Brokers known from lookups")
    broker_frames = counter("Frames read from brokers")
    moved = counter("Producers and consumers that brokers sent elsewhere, by how", "how")


class Context(Hosting, Protocol):
    """The proxy, as its connections see it.

    Attributes:
        pulsar: settings that only this one has.
        pulsar_metrics: counts that only this one has.
        targets: brokers that clients may be connected to.
        parts: make the concerns of a new connection, in the order in which they see its frames.
    """

    pulsar: PulsarSettings
    pulsar_metrics: PulsarMetrics
    targets: Targets
    parts: list[Callable[[Link], Part]]

    def bootstrap(self) -> Address:
        """The broker of a client that names none."""

    def identify(self, connection: Any, user: str) -> bool:
        """A client is this user; False: that one has as many connections as it may."""

    def placed(self, connection: Any) -> None:
        """Its broker is known now."""
