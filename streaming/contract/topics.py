"""Names of the Kafka topics (docs/contract.md 1), and where they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

DEFAULT_PREFIX = "weir."
KEPT_MS = 7 * 24 * 3600 * 1000
"""How long they hold events and decisions where nothing else is said, ms."""


def address_text(host: str, port: int) -> str:
    """`HOST:PORT`. IPv6 has brackets: librdkafka and URLs find no port in `::1:9092`.

    >>> address_text("kafka", 9092), address_text("::1", 9092)
    ('kafka:9092', '[::1]:9092')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bare_host(text: str) -> str:
    """A host as others are told it, IPv6 without its brackets; raises ValueError if a port stands behind it.

    >>> bare_host("kafka"), bare_host("[::1]")
    ('kafka', '::1')
    """
    host = text.strip("[]")
    if ":" in host:
        ip_address(host)
    return host


@dataclass(frozen=True, slots=True)
class Topics:
    """The five topics of one Weir installation.

    Attributes:
        prefix: what every name begins with, so that several installations share a cluster.
    """

    prefix: str = DEFAULT_PREFIX

    @property
    def requests(self) -> str:
        """Request and refund events, key = quota entity."""
        return f"{self.prefix}requests"

    @property
    def usage(self) -> str:
        """Usage reports of brokers, proxies and collectors, and ticks."""
        return f"{self.prefix}usage"

    @property
    def policies(self) -> str:
        """Policy changes, key = policy path, compacted."""
        return f"{self.prefix}policies"

    @property
    def decisions(self) -> str:
        """What was decided, key = subject: the audit log."""
        return f"{self.prefix}decisions"

    @property
    def deadletter(self) -> str:
        """Records that could not be used, with the reason."""
        return f"{self.prefix}deadletter"

    def all(self) -> tuple[str, ...]:
        """Every topic, in the order in which they are created."""
        return (self.requests, self.usage, self.policies, self.decisions, self.deadletter)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster that holds Weir's topics, as options and settings say.

    Attributes:
        bootstrap: `HOST:PORT[,...]`.
        topics: names of our topics on it.
        client: librdkafka properties of our own connections.
        topics_kept_ms: how long they hold events and decisions, ms.
    """

    bootstrap: str
    topics: Topics = field(default_factory=Topics)
    client: Mapping[str, str] = field(default_factory=dict)
    topics_kept_ms: int = KEPT_MS

    @property
    def properties(self) -> dict[str, Any]:
        """librdkafka's, of a connection of ours."""
        return {**self.client, "bootstrap.servers": self.bootstrap}
