"""The Pulsar proxy: ties the parts of its connections to its laws and to the brokers behind it."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from enforcer.core.control import ControlPlane
from enforcer.host.server import Host, ProxyConfig
from enforcer.host.sockets import Address
from enforcer.laws.backlog.blocks import Blocks
from enforcer.laws.concurrency.limits import ConcurrencyLimits
from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.laws.dispatch.smoothing import Smoothing
from enforcer.laws.enforcement import Enforcement
from enforcer.laws.mutation.law import MutationQuotas
from enforcer.pulsar.connection import Connection
from enforcer.pulsar.context import PulsarMetrics
from enforcer.pulsar.creation.known_topics import Office
from enforcer.pulsar.creation.part import CreationPart
from enforcer.pulsar.delivery.context import DeliveryContext
from enforcer.pulsar.delivery.limits import Laws
from enforcer.pulsar.delivery.part import DeliveryPart
from enforcer.pulsar.link import Link, Part
from enforcer.pulsar.lookup.part import Lookups
from enforcer.pulsar.lookup.targets import TARGETS_MAX, Targets
from enforcer.pulsar.publish.context import PublishContext
from enforcer.pulsar.publish.part import PublishingPart
from enforcer.pulsar.settings import PulsarSettings

NAMES: Final = "persistent://tenant/namespace/topic"
"""How topic names are made up, whatever `proxy.namespace_pattern` says of Kafka's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarProxyConfig(ProxyConfig):
    """Where a proxy stands.

    Attributes:
        pulsar: brokers for clients that name none, in turn.
        own_settings: what only this one has.
        sign: see Targets.
    """

    pulsar: tuple[Address, ...]
    own_settings: PulsarSettings = field(default_factory=PulsarSettings)
    sign: Path | None = None


class BrokersBehind:
    """The partitions of load of Pulsar's brokers (docs/contract.md 3.4), for ConcurrencyLimits."""

    @property
    def changes(self) -> int:
        """An address is always the same broker's."""
        return 0

    def partition_at(self, address: Address) -> str | None:
        """pulsar-HOST:PORT; None while a connection has no broker."""
        return "pulsar-{}:{}".format(*address) if address[0] else None


class PulsarProxy(Host[Connection]):
    """One proxy process of Pulsar's protocol.

    Attributes:
        parts: make the concerns of each new connection, in the order in which they see its frames.
        enforcement: the laws.

    Args:
        config: where it stands.
    """

    enforcement: Enforcement

    def __init__(self, config: PulsarProxyConfig) -> None:
        self.pulsar = pulsar = config.own_settings
        settings = config.settings.model_copy(update={"namespace_pattern": NAMES})
        super().__init__(config, settings, pulsar, pulsar.upstream_tls)
        self.pulsar_metrics = PulsarMetrics(self.metrics.registry)
        control = ControlPlane(
            self.proxy_id, self.settings, self.metrics, self.cluster, speaks="pulsar",
            upstreams=BrokersBehind(), connections=lambda: self.connections,
        )  # fmt: skip
        self.enforcement = enforcement = Enforcement(control)
        self.targets = Targets(
            config.pulsar, pulsar.targets, TARGETS_MAX,
            secure=pulsar.upstream_tls is not None, sign=config.sign,
        )  # fmt: skip
        coordinator, blocks = enforcement.of(MutationQuotas).coordinator, enforcement.of(Blocks)
        brokers_ms = enforcement.context.brokers_ms
        publish = PublishContext(enforcement.meter, self.settings, self.pulsar, self.metrics, blocks)
        smoothing = Smoothing(self.settings.dispatch_rows)
        laws = Laws(enforcement.of(Dispatch), enforcement.meter, brokers_ms, smoothing)
        deliver = DeliveryContext(laws, self.metrics, self.call_later)
        office = Office(coordinator, brokers_ms, self.pulsar, self.call_later)
        self.parts: list[Callable[[Link], Part]] = [
            lambda link: Lookups(link, self, self.upstream),
            # Before all that may keep a SUBSCRIBE back: it must know every consumer.
            lambda link: DeliveryPart(link, deliver),
            lambda link: PublishingPart(link, publish),
            # The last: the others see requests for new topics when they come, not when they go on.
            lambda link: CreationPart(link, office),
        ]
        self.bootstrap: Callable[[], Address] = partial(next, itertools.cycle(config.pulsar))
        self.placed = enforcement.of(ConcurrencyLimits).came

    def accept(self) -> Connection:
        """See Host."""
        return Connection(self, self.upstream)

    def look(self) -> int:
        """See Host."""
        self.pulsar_metrics.targets.set(len(self.targets))
        return 0
