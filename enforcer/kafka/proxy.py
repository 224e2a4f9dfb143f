"""The Kafka proxy: ties the parts of its connections to its laws and to the cluster behind it."""
import contextlib
import ipaddress
import itertools
import random
import socket
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from enforcer.core import bounds
from enforcer.core.control import ControlPlane
from enforcer.host.server import Host, ProxyConfig
from enforcer.host.sockets import Address
from enforcer.kafka.addresses.brokers import Broker, Brokers
from enforcer.kafka.backlog.part import BlocksLimit
from enforcer.kafka.cluster import ClusterView, ClusterWatch, IdWatch
from enforcer.kafka.connection import Connection
from enforcer.kafka.dispatch.context import FetchContext
from enforcer.kafka.dispatch.part import DispatchLimit
from enforcer.kafka.dispatch.reader_reports import ReadersExchange
from enforcer.kafka.guard.answers import AnswerFilter
from enforcer.kafka.guard.guard import Guard
from enforcer.kafka.guard.protected import OwnTopics
from enforcer.kafka.login.part import LoginConcern
from enforcer.kafka.mutations.mutation import RecentTopics
from enforcer.kafka.mutations.part import Mutations
from enforcer.kafka.part import Concern
from enforcer.kafka.shares.frame_meter import FrameMeter
from enforcer.kafka.shares.part import SharesLimit
from enforcer.kafka.slots.part import Slots
from enforcer.laws.backlog.blocks import Blocks
from enforcer.laws.concurrency.limits import ConcurrencyLimits
from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.laws.enforcement import Enforcement
from enforcer.laws.mutation.law import MutationQuotas
from enforcer.wire.kafka import codec
from streaming.contract.errors import WeirError
from streaming.contract.topics import address_text


class KafkaProxy(Host[Connection]):
    """One proxy process of Kafka's protocol."""

    enforcement: Enforcement

    def __init__(self, config: ProxyConfig) -> None:
        super().__init__(config, config.settings, config.settings, config.settings.upstream_tls)
        self.brokers = self._make_brokers()
        self.repeats = self.brokers.repeats
        control = ControlPlane(
            self.proxy_id, self.settings, self.metrics, self.cluster, speaks="kafka", hear=self._hear,
            patience_ms=bounds.POLICIES_MORE_MS, upstreams=self.brokers, connections=lambda: self.connections,
        )  # fmt: skip
        self.enforcement = limits = Enforcement(control)
        self.coordinator, self.meter = limits.of(MutationQuotas).coordinator, limits.meter
        self.dispatch, self.concurrency = limits.of(Dispatch), limits.of(ConcurrencyLimits)
        self.frame_meter = FrameMeter(self.meter)
        self.fetch_context = FetchContext(
            self.dispatch, self.settings, self.metrics, self.brokers, self.frame_meter.names, self.now_ms,
            seed=random.getrandbits(32),
        )  # fmt: skip
        self._telling = ReadersExchange(self.fetch_context, self.proxy_id, limits.context.send_usage)
        blocks = BlocksLimit(
            limits.of(Blocks), self.frame_meter.names, self.fetch_context.topic, self.settings, self.now_ms
        )
        self._look_after_topics()
        self.concerns = concerns_of(self, blocks)
        self._bootstrap = itertools.cycle(config.kafka)

    def _look_after_topics(self) -> None:
        """What is known of the cluster's topics, and whose they are."""
        properties = self.cluster.properties
        self.recent_topics = RecentTopics(self.now_ms)
        self.protected = protected = OwnTopics(self.config.topics, self.settings.protect_topics)
        self.rewrite = AnswerFilter(protected, self.brokers.rewrite)
        self._elsewhere = "bootstrap.servers" in self.config.connection
        in_loop, see, learn = self.enforcement.context.in_loop, self._take_view, protected.learn
        self._watch = ClusterWatch(properties, self._elsewhere, lambda view: in_loop(partial(see, view)))
        self._id_watch = IdWatch(properties, protected, lambda ids: in_loop(partial(learn, ids)))

    async def start(self) -> None:
        """See Host; brokers may be known before their clients come."""
        codec.load()
        self._watch.start()
        if self.protected.active:
            self._id_watch.start()
        await super().start()
        self.spawn(self._telling.run())

    async def stop(self) -> None:
        """See Host."""
        self._watch.stop()
        self._id_watch.stop()
        await super().stop()

    def accept(self) -> Connection:
        """A client comes to our bootstrap address: each leads to the next of the cluster's."""
        return Connection(self, lambda: next(self._bootstrap), self.upstream)

    def named(self, name: str) -> Address | None:
        """See Context."""
        node = self.brokers.node_named(name)
        return None if node is None else self.brokers.address_of(node)

    @property
    def described(self) -> dict[str, Any]:
        """Each broker's id, and our address that leads there."""
        ports = self.brokers.ports.items()
        return {"brokers": {str(node): address_text(self.listen[0], port) for node, port in ports}}

    def in_force(self) -> object:
        """The policies of now, by which requests are read while no law is active."""
        return self.coordinator.policies.now

    def admit(self, connection: Connection, refused: str = "") -> str:
        """See Host; its broker is known from the first, and one that nobody has is no server of ours."""
        name = connection.server_name
        if not refused and self.brokers.node_named(name) is not None and self.named(name) is None:
            # Not in the handshake: an alert there ends Java's clients for good, and the broker may just join.
            refused = "unknown_name"
            self.metrics.tls_failures.labels(refused).inc()
        refused = super().admit(connection, refused)
        if not refused:
            self.concurrency.came(connection)
        return refused

    def look(self) -> int:
        """See Host."""
        traffic = self.metrics.traffic
        traffic.held = sum(connection.held for connection in self.connections)
        traffic.departed = sum(connection.ending.gone for connection in self.connections)
        traffic.brokers = len(self.brokers.ports)
        return traffic.brokers

    def _hear(self, proxy: str, fields: Mapping[str, Any]) -> None:
        self._telling.take(proxy, fields)

    def _make_brokers(self) -> Brokers:
        host, port = self.listen
        domain = self.settings.tls.sni if self.settings.tls else ""
        if not (self.settings.advertise or domain) and ipaddress.ip_address(host).is_unspecified:
            raise WeirError(
                f"clients cannot connect to {host}; name the host that they shall use: --advertise"
            )
        base = self.settings.broker_port_base
        if base < 0:
            # Asked for any port, broker ports next to it are as likely taken as not.
            base = port + 1 if self.config.listen[1] else 0
        return Brokers(
            listen_host=host,
            advertise=self.settings.advertise or host,
            port_base=base,
            brokers_max=bounds.BROKERS_MAX,
            domain=domain,
            domain_port=port,
            serve=self._serve_broker,
            shared=self.config.shared,
        )

    def _serve_broker(self, listener: socket.socket, broker: Broker) -> None:
        def accept() -> Connection:
            return Connection(self, lambda: (broker.host, broker.port), self.upstream)

        self.spawn(self.serve(listener, accept))

    def _take_view(self, view: ClusterView) -> None:
        if self._stopping:
            return
        if view.default_partitions is not None:
            self.recent_topics.default_partitions = view.default_partitions
        # Clients of a restarted proxy come straight to the broker ports, and those whom another proxy told of
        # a new broker: have them open. Where we do not connect as the clients do, at their listener.
        brokers: Iterable[tuple[int, str, int]] = view.brokers
        if self._elsewhere:
            brokers = view.beside({*self.config.kafka, *self.brokers.addresses})
        for node_id, host, port in brokers:
            with contextlib.suppress(WeirError):
                self.brokers.address(node_id, host, port)


def concerns_of(proxy: KafkaProxy, blocks: BlocksLimit) -> tuple[Concern, ...]:
    """The concerns of a proxy, in the order in which their parts take a connection's requests."""
    settings, metrics, dispatch = proxy.settings, proxy.metrics, proxy.fetch_context
    return (
        Guard(proxy.protected, settings, metrics, proxy.now_ms),
        LoginConcern(settings, metrics, proxy.now_ms, proxy.identify),
        blocks,
        Slots(),
        Mutations(proxy.coordinator, proxy.recent_topics),
        # A Fetch is cut before it is charged.
        DispatchLimit(dispatch),
        SharesLimit(proxy.frame_meter, metrics, dispatch.broker),
    )
