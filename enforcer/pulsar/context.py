"""What all connections of a Pulsar proxy share."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Protocol

from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.host.dial import Introduced
from enforcer.host.doors.certificates import Visitor
from enforcer.host.sockets import Address
from enforcer.host.turns import Turns
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


class Context(Protocol):
    """The proxy, as its connections see it.

    Attributes:
        settings: what all proxies have.
        pulsar: what only this one has.
        metrics: counts.
        pulsar_metrics: counts that only this one has.
        targets: brokers that clients may be connected to.
        turns: shares the loop out, and its log.
        parts: make the concerns of a new connection, in the order in which they see its frames.
    """

    settings: ProxySettings
    pulsar: PulsarSettings
    metrics: Metrics
    pulsar_metrics: PulsarMetrics
    targets: Targets
    turns: Turns
    parts: list[Callable[[Link], Part]]

    def now_ms(self) -> float:
        """The steady clock."""

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a delay."""

    def bootstrap(self) -> Address:
        """The broker of a client that names none."""

    def visitor(self, connection: object, transport: asyncio.BaseTransport) -> Visitor:
        """What is known of a client that has come."""

    @property
    def upstream_tls(self) -> ssl.SSLContext | None:
        """How brokers are spoken to; None: in plain text."""

    def introduce(self, connection: Introduced) -> bytes:
        """What a broker hears of a client before all else (PROXY protocol), if it is to."""

    def admit(self, connection: Any) -> str:
        """Take a new client in; returns why not, if that cannot be."""

    def identify(self, connection: Any, user: str) -> bool:
        """A client is this user; False: that one has as many connections as it may."""

    def placed(self, connection: Any) -> None:
        """Its broker is known now."""

    def forget(self, connection: Any) -> None:
        """A client is gone."""
