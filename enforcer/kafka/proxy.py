"""The Kafka proxy: listens, ties the parts together, stops in order."""

import asyncio
import contextlib
import ipaddress
import itertools
import logging
import random
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.host.descriptors import Room
from enforcer.host.dial import Address
from enforcer.host.heartbeat import Heartbeat
from enforcer.host.listening import listen_at
from enforcer.host.memory import MemoryBudget
from enforcer.host.moving import Mover
from enforcer.host.pool import Pool
from enforcer.host.sockets import ended
from enforcer.host.tasks import Tasks
from enforcer.host.turns import Turns
from enforcer.kafka.backlog.desk import BlockDesk
from enforcer.kafka.brokers import Broker, Brokers
from enforcer.kafka.cluster import ClusterView, ClusterWatch
from enforcer.kafka.connection import Connection
from enforcer.kafka.dispatch.desk import FetchDesk
from enforcer.kafka.dispatch.telling import Telling
from enforcer.kafka.guard.guard import Guard
from enforcer.kafka.guard.ids import IdWatch
from enforcer.kafka.guard.protected import Protected
from enforcer.kafka.guard.shown import Shown
from enforcer.kafka.mutations.auto_creation import AutoCreations
from enforcer.kafka.mutations.recent_topics import RecentTopics
from enforcer.kafka.traffic.frame_meter import FrameMeter
from enforcer.laws.enforcement import Enforcement
from enforcer.laws.mutation.free_questions import FreeQuestions
from streaming.contract.errors import WeirError
from streaming.contract.topics import CHECK_MS, Topics

logger = logging.getLogger(__name__)

_TICK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig:
    """Where a proxy stands.

    Attributes:
        kafka: the guarded cluster's bootstrap addresses.
        listen: our bootstrap address; port 0 takes any free port.
        metrics: where /metrics is served; None: nowhere.
        topics: names of Weir's topics.
        connection: librdkafka properties of our own connections; bootstrap.servers is `kafka` if absent.
        topics_check_ms: how often Weir's topics are looked at, ms.
        settings: all else.
        shared: other processes listen on the same ports.
    """

    kafka: tuple[Address, ...]
    listen: Address
    metrics: Address | None = None
    topics: Topics = field(default_factory=Topics)
    connection: Mapping[str, str] = field(default_factory=dict)
    topics_check_ms: int = CHECK_MS
    settings: ProxySettings = field(default_factory=ProxySettings)
    shared: bool = False


class KafkaProxy:
    """One proxy process's worth of proxy; runs in one event loop.

    Args:
        config: where it stands.
    """

    def __init__(self, config: ProxyConfig) -> None:
        self.config = config
        self.settings = config.settings
        if self.settings.write_buffer_low_bytes > self.settings.write_buffer_high_bytes:
            raise WeirError("proxy.write_buffer_low_bytes is above write_buffer_high_bytes")
        self.metrics = Metrics(self.settings.metric_subjects_max)
        self._loop = asyncio.get_running_loop()
        self._listener = listen_at(config.listen, config.shared)
        self.listen: Address = self._listener.getsockname()[:2]
        proxy_id = self.settings.id or f"{socket.gethostname()}-{self.listen[1]}"
        bootstrap = ",".join(f"{host}:{port}" for host, port in config.kafka)
        properties = {"bootstrap.servers": bootstrap, **config.connection}
        self._connections: set[Connection] = set()
        self.brokers = self._make_brokers()
        self.enforcement = limits = Enforcement(
            proxy_id, self.settings, self.metrics, config.topics, properties, config.topics_check_ms,
            speaks="kafka", upstreams=self.brokers, connections=lambda: self._connections,
        )  # fmt: skip
        self.brain, self.coordinator = limits.brain, limits.coordinator
        self.groups, self.meter = limits.groups, limits.meter
        self.dispatch, self.measuring = limits.dispatch, limits.measuring
        self.frame_meter = FrameMeter(self.meter, self.settings)
        self.fetch_desk = FetchDesk(
            self.dispatch, self.settings, self.metrics, self.brokers, self.frame_meter.names, self.now_ms,
            seed=random.getrandbits(32),
        )  # fmt: skip
        self._telling = Telling(self.fetch_desk, proxy_id, self.brain.send_usage)
        self.brain.take_saying = self._telling.take
        self.block_desk = BlockDesk(limits.blocks, self.settings, self.frame_meter.names)
        self._look_after_topics(properties)
        self.turns = Turns(self._loop.call_soon, time.perf_counter)
        self.mover = Mover()
        self.pool = Pool(self.settings.gathered_mb << 20)
        budget = MemoryBudget(self.settings.memory_mb << 20, lambda: self._connections, self.metrics.traffic)
        self._heartbeat = Heartbeat(self.metrics.loop_delay, budget.look)
        self._servers: list[asyncio.Server] = []
        addresses = properties["bootstrap.servers"].count(",") + 1
        self._room = Room(self.settings.connections_max, self.settings.descriptors_reserve, addresses)
        self.metrics.traffic.connections_max = self._room.connections(0)
        self._tasks = Tasks()
        self._bootstrap = itertools.cycle(config.kafka)
        self._stopping = False
        self._empty = asyncio.Event()
        self.metrics_address: Address | None = None

    def _look_after_topics(self, properties: Mapping[str, str]) -> None:
        """What is known of the cluster's topics, and whose they are."""
        settings = self.settings
        self.recent_topics = RecentTopics(
            keep_ms=settings.recent_topic_ms,
            topics_max=settings.recent_topics_max,
            default_partitions=settings.default_partitions,
            steady_ms=self.now_ms,
        )
        self.free_questions = FreeQuestions(
            settings.dry_run_factor, settings.refusal_factor, settings.subjects_max, self.now_ms
        )
        protected = Protected(self.config.topics, settings.protect_topics)
        self.guard = Guard(protected, settings, self.metrics, self.now_ms)
        self._shown = Shown(protected, self.brokers.rewrite)
        self.auto_creations = AutoCreations(self.coordinator, self.rewrite)
        self._elsewhere = "bootstrap.servers" in self.config.connection
        refresh_ms = settings.default_partitions_refresh_ms
        self._watch = ClusterWatch(properties, refresh_ms, self._elsewhere, self._deliver_view)
        self._id_watch = IdWatch(properties, protected, settings.protected_ids_refresh_ms, self._deliver_ids)

    async def start(self) -> None:
        """Read the policies, then let clients in.

        Raises:
            WeirError: the metrics port is taken.
        """
        if self.config.metrics is not None:
            self.metrics_address = self.metrics.serve(*self.config.metrics)
        self._watch.start()
        if self.guard.protected.active:
            self._id_watch.start()
        await self.enforcement.start()
        await self._serve(self._listener, lambda: next(self._bootstrap))
        self._heartbeat.start()
        self._tasks.spawn(self._tick())
        for work in (self._telling.run(), *self.enforcement.work()):
            self._tasks.spawn(work)
        logger.info("clients connect to %s:%d", *self.listen)

    async def stop(self) -> None:
        """Take nothing new, answer what is under way, close; limited by stop_timeout_ms and some."""
        self._stopping = True
        self._listener.close()
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.ending.drain()
        if self._connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), self.settings.stop_timeout_ms / 1000)
        for connection in list(self._connections):
            connection.ending.drop("stop")
        self._tasks.cancel()
        self._heartbeat.stop()
        self._watch.stop()
        self._id_watch.stop()
        await self.enforcement.stop()
        self.mover.close()

    @property
    def ready(self) -> asyncio.Event:
        """Set once probe requests are decided in time."""
        return self.brain.ready

    @property
    def serving(self) -> asyncio.Event:
        """Set then, or once it decides without the job what it can (Brain)."""
        return self.brain.serving

    def now_ms(self) -> float:
        """The steady clock."""
        return self._loop.time() * 1000

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a delay."""
        return self._loop.call_later(delay_ms / 1000, function)

    def rewrite(self, api_key: int, version: int, response: bytes) -> bytes:
        """A broker's answer as clients may see it; raises WeirError if it may not be seen."""
        return self._shown(api_key, version, response)

    def admit(self, connection: Connection) -> bool:
        """Take a new client in; False if there are too many or we are stopping."""
        if self._stopping or len(self._connections) >= self.metrics.traffic.connections_max:
            return False
        self._connections.add(connection)
        self.metrics.accepted.inc()
        self.metrics.traffic.connections = len(self._connections)
        self.measuring.came(connection)
        return True

    def forget(self, connection: Connection) -> None:
        """A client is gone."""
        self._connections.discard(connection)
        if self._stopping and not self._connections:
            self._empty.set()
        self.metrics.traffic.connections = len(self._connections)

    def _make_brokers(self) -> Brokers:
        host, port = self.listen
        if not self.settings.advertise and ipaddress.ip_address(host).is_unspecified:
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
            brokers_max=self.settings.brokers_max,
            serve=self._serve_broker,
            shared=self.config.shared,
        )

    def _serve_broker(self, listener: socket.socket, broker: Broker) -> None:
        self._tasks.spawn(self._serve(listener, lambda: (broker.host, broker.port)))

    async def _serve(self, listener: socket.socket, target: Callable[[], Address]) -> None:
        server = await self._loop.create_server(lambda: Connection(self, target), sock=listener)
        if self._stopping:
            server.close()
        self._servers.append(server)

    def _deliver_view(self, view: ClusterView) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._take_view, view)

    def _deliver_ids(self, ids: frozenset[bytes]) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.guard.protected.learn, ids)

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

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._look_at_connections()
            traffic, brokers = self.metrics.traffic, len(self.brokers.ports)
            traffic.brokers = brokers
            traffic.connections_max = self._room.connections(brokers)
            self.coordinator.tick()

    def _look_at_connections(self) -> None:
        now_ms = self.now_ms()
        held = departed = 0
        watched: dict[int, tuple[Connection, bool]] = {}
        for connection in list(self._connections):
            try:
                connection.check(now_ms)
            except Exception:
                # One client's trouble must not end the watch over all.
                logger.exception("a connection could not be looked at")
            held += connection.held
            departed += connection.ending.gone
            if (found := connection.watched) is not None and found[0] >= 0:
                watched[found[0]] = connection, found[1]
        self.metrics.traffic.held = held
        self.metrics.traffic.departed = departed
        # A socket that is not read tells nothing of its end.
        for descriptor in ended({number: known for number, (_, known) in watched.items()}):
            watched[descriptor][0].ending.notice()
