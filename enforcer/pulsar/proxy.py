"""The Pulsar proxy: listens, ties the parts together, stops in order."""

import asyncio
import contextlib
import itertools
import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.host.descriptors import Room
from enforcer.host.dial import Address
from enforcer.host.heartbeat import Heartbeat
from enforcer.host.listening import listen_at
from enforcer.host.memory import MemoryBudget
from enforcer.host.sockets import ended
from enforcer.host.tasks import Tasks
from enforcer.host.turns import Turns
from enforcer.laws.dispatch.smoothing import Smoothing
from enforcer.laws.enforcement import Enforcement
from enforcer.pulsar.connection import Connection
from enforcer.pulsar.creating.creating import creating
from enforcer.pulsar.delivering.delivering import Delivering
from enforcer.pulsar.delivering.desk import Desk as DeliveryDesk
from enforcer.pulsar.delivering.limits import Laws
from enforcer.pulsar.link import Link, Part
from enforcer.pulsar.metrics import PulsarMetrics
from enforcer.pulsar.publishing.desk import Desk as PublishDesk
from enforcer.pulsar.publishing.publishing import Publishing
from enforcer.pulsar.settings import PulsarSettings
from enforcer.pulsar.staying.lookups import Lookups
from enforcer.pulsar.staying.moving import Moving
from enforcer.pulsar.staying.targets import Targets
from streaming.contract.errors import WeirError
from streaming.contract.topics import CHECK_MS, Topics

logger = logging.getLogger(__name__)

NAMES: Final = "persistent://tenant/namespace/topic"
"""How topic names are made up, whatever `proxy.namespace_pattern` says of Kafka's."""
_TICK_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarProxyConfig:
    """Where a proxy stands.

    Attributes:
        pulsar: brokers for clients that name none, in turn.
        kafka: bootstrap addresses of the cluster with Weir's topics.
        listen: our address; port 0 takes any free port.
        metrics: where /metrics is served; None: nowhere.
        topics: names of Weir's topics.
        connection: librdkafka properties of our own connections; bootstrap.servers is `kafka` if absent.
        topics_check_ms: how often Weir's topics are looked at, ms.
        settings: what all proxies have.
        own_settings: what only this one has.
        shared: other processes listen on the same port.
    """

    pulsar: tuple[Address, ...]
    kafka: tuple[Address, ...]
    listen: Address
    metrics: Address | None = None
    topics: Topics = field(default_factory=Topics)
    connection: Mapping[str, str] = field(default_factory=dict)
    topics_check_ms: int = CHECK_MS
    settings: ProxySettings = field(default_factory=ProxySettings)
    own_settings: PulsarSettings = field(default_factory=PulsarSettings)
    shared: bool = False


class BrokersBehind:
    """The partitions of load of Pulsar's brokers (docs/contract.md 3.4), for measuring.Measuring."""

    @property
    def changes(self) -> int:
        """An address is always the same broker's."""
        return 0

    def partition_at(self, address: Address) -> str | None:
        """pulsar-HOST:PORT; None while a connection has no broker."""
        return "pulsar-{}:{}".format(*address) if address[0] else None


class PulsarProxy:
    """One proxy process's worth of proxy; runs in one event loop.

    Attributes:
        parts: make the concerns of each new connection, in the order in which they see its frames.
        enforcement: the laws.

    Args:
        config: where it stands.
    """

    def __init__(self, config: PulsarProxyConfig) -> None:
        self.config = config
        self.settings = config.settings.model_copy(update={"namespace_pattern": NAMES})
        self.pulsar = config.own_settings
        if self.settings.write_buffer_low_bytes > self.settings.write_buffer_high_bytes:
            raise WeirError("proxy.write_buffer_low_bytes is above write_buffer_high_bytes")
        self.metrics = Metrics(self.settings.metric_subjects_max)
        self.pulsar_metrics = PulsarMetrics(self.metrics.registry)
        self._loop = asyncio.get_running_loop()
        self._listener = listen_at(config.listen, config.shared)
        self.listen: Address = self._listener.getsockname()[:2]
        proxy_id = self.settings.id or f"{socket.gethostname()}-{self.listen[1]}"
        bootstrap = ",".join(f"{host}:{port}" for host, port in config.kafka)
        properties = {"bootstrap.servers": bootstrap, **config.connection}
        self._connections: set[Connection] = set()
        self.enforcement = Enforcement(
            proxy_id, self.settings, self.metrics, config.topics, properties, config.topics_check_ms,
            speaks="pulsar", upstreams=BrokersBehind(), connections=lambda: self._connections,
        )  # fmt: skip
        self.targets = Targets(config.pulsar, self.pulsar.targets, self.pulsar.targets_max)
        enforcement = self.enforcement
        publish = PublishDesk(enforcement.meter, self.settings, self.pulsar, self.metrics, enforcement.blocks)
        smoothing = Smoothing(self.settings.dispatch_rows_max)
        laws = Laws(enforcement.dispatch, enforcement.meter, enforcement.brain.brokers_ms, smoothing)
        deliver = DeliveryDesk(laws, self.pulsar, self.metrics, self.call_later)
        self.parts: list[Callable[[Link], Part]] = [
            lambda link: Lookups(link, self),
            lambda link: Moving(link, self),
            # Before all that may keep a SUBSCRIBE back: it must know every consumer.
            lambda link: Delivering(link, deliver),
            lambda link: Publishing(link, publish),
            # The last: the others see requests for new topics when they come, not when they go on.
            creating(self.enforcement, self.pulsar, self.call_later),
        ]
        self.turns = Turns(self._loop.call_soon, time.perf_counter)
        budget = MemoryBudget(self.settings.memory_mb << 20, lambda: self._connections, self.metrics.traffic)
        self._heartbeat = Heartbeat(self.metrics.loop_delay, budget.look)
        addresses = properties["bootstrap.servers"].count(",") + 1
        self._room = Room(self.settings.connections_max, self.settings.descriptors_reserve, addresses)
        self.metrics.traffic.connections_max = self._room.connections(0)
        self._server: asyncio.Server | None = None
        self._tasks = Tasks()
        self._bootstrap = itertools.cycle(config.pulsar)
        self._stopping = False
        self._empty = asyncio.Event()
        self.metrics_address: Address | None = None

    async def start(self) -> None:
        """Read the policies, then let clients in.

        Raises:
            WeirError: the metrics port is taken.
        """
        if self.config.metrics is not None:
            self.metrics_address = self.metrics.serve(*self.config.metrics)
        await self.enforcement.start()
        self._server = await self._loop.create_server(lambda: Connection(self), sock=self._listener)
        if self._stopping:
            self._server.close()
        self._heartbeat.start()
        self._tasks.spawn(self._tick())
        for work in self.enforcement.work():
            self._tasks.spawn(work)
        logger.info("clients connect to pulsar://%s:%d", *self.listen)

    async def stop(self) -> None:
        """Take nothing new, close what is open after what is written already; limited by stop_timeout_ms."""
        self._stopping = True
        self._listener.close()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.end("stop")
        if self._connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), self.settings.stop_timeout_ms / 1000)
        for connection in list(self._connections):
            connection.abort()
        self._tasks.cancel()
        self._heartbeat.stop()
        await self.enforcement.stop()

    @property
    def ready(self) -> asyncio.Event:
        """Set once probe requests are decided in time."""
        return self.enforcement.brain.ready

    @property
    def serving(self) -> asyncio.Event:
        """Set then, or once it decides without the job what it can (Brain)."""
        return self.enforcement.brain.serving

    def now_ms(self) -> float:
        """The steady clock."""
        return self._loop.time() * 1000

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a delay."""
        return self._loop.call_later(delay_ms / 1000, function)

    def bootstrap(self) -> Address:
        """The broker of a client that names none."""
        return next(self._bootstrap)

    def admit(self, connection: Connection) -> bool:
        """Take a new client in; False if there are too many or we are stopping."""
        if self._stopping or len(self._connections) >= self.metrics.traffic.connections_max:
            return False
        self._connections.add(connection)
        self.metrics.accepted.inc()
        self.metrics.traffic.connections = len(self._connections)
        return True

    def placed(self, connection: Connection) -> None:
        """A connection's broker is known now."""
        self.enforcement.measuring.came(connection)

    def forget(self, connection: Connection) -> None:
        """A client is gone."""
        self._connections.discard(connection)
        if self._stopping and not self._connections:
            self._empty.set()
        self.metrics.traffic.connections = len(self._connections)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._look_at_connections()
            self.pulsar_metrics.targets.set(len(self.targets))
            self.enforcement.coordinator.tick()

    def _look_at_connections(self) -> None:
        now_ms = self.now_ms()
        watched: dict[int, Connection] = {}
        for connection in list(self._connections):
            try:
                connection.check(now_ms)
                watched.update(dict.fromkeys(connection.unread, connection))
            except Exception:
                # One client's trouble must not end the watch over all.
                logger.exception("a connection could not be looked at")
        # A socket that is not read tells nothing of its end.
        for descriptor in ended(dict.fromkeys(watched, False)):
            watched[descriptor].end("departed")
