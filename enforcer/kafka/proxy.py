"""The Kafka proxy: listens, ties the parts together, stops in order (design.md section 4)."""

import asyncio
import contextlib
import ipaddress
import itertools
import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from prometheus_client import start_http_server

from enforcer.core.clock import Clock
from enforcer.core.coordinator import QuotaCoordinator, probe
from enforcer.core.feeds.decisions import Decision, decisions_tail, standing_shares
from enforcer.core.feeds.policies import policies_tail
from enforcer.core.feeds.shares import Share
from enforcer.core.metrics import Metrics
from enforcer.core.reports import Reports
from enforcer.core.settings import ProxySettings
from enforcer.kafka.brokers import Broker, Brokers, listen_on
from enforcer.kafka.cluster import ClusterView, ClusterWatch
from enforcer.kafka.connection import Connection
from enforcer.kafka.traffic.frame_meter import FrameMeter
from enforcer.metering.groups import Groups
from streaming.contract.errors import WeirError
from streaming.contract.topics import Topics
from streaming.policy.groups import LIFE_ROUNDS

logger = logging.getLogger(__name__)

Address = tuple[str, int]

_TICK_S = 1.0
_PROBE_S = 5.0
# In a row, each within half of the decision timeout; asked for at most so long after the first decision.
_QUICK_PROBES = 3
_WARM_UP_S = 30.0
_COMPLAIN_S = 10.0
_TAIL_STOP_S = 1.0
_FLUSH_S = 2.0
# A policy may be dated far ahead; the loop's timers may not. The time is looked at again then.
_TIMER_MAX_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig:
    """Where a proxy stands.

    Attributes:
        kafka: the guarded cluster's bootstrap addresses.
        listen: our bootstrap address; port 0 takes any free port.
        metrics: where /metrics is served; None: nowhere.
        topics: names of Weir's topics.
        connection: librdkafka properties of our own connections; bootstrap.servers is `kafka` if absent.
        settings: all else.
    """

    kafka: tuple[Address, ...]
    listen: Address
    metrics: Address | None = None
    topics: Topics = field(default_factory=Topics)
    connection: Mapping[str, str] = field(default_factory=dict)
    settings: ProxySettings = field(default_factory=ProxySettings)


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
        self.ready = asyncio.Event()
        """Set once a probe request has been decided."""
        self._loop = asyncio.get_running_loop()
        self._listener = self._listen()
        self.listen: Address = self._listener.getsockname()[:2]
        proxy_id = self.settings.id or f"{socket.gethostname()}-{self.listen[1]}"
        bootstrap = ",".join(f"{host}:{port}" for host, port in config.kafka)
        self._connection = {"bootstrap.servers": bootstrap, **config.connection}
        self._reports = Reports(
            self._connection,
            config.topics.requests,
            events_max=self.settings.events_max,
            event_timeout_ms=self.settings.event_timeout_ms,
            metrics=self.metrics,
        )
        clock = Clock(steady_ms=self.now_ms, wall_ms=lambda: time.time_ns() // 1_000_000)
        self.coordinator = QuotaCoordinator(proxy_id, self.settings, self.metrics, self._reports, clock)
        self.coordinator.call_at = self._call_at
        send_usage = partial(self._reports.send, topic=config.topics.usage)
        self.groups = Groups(
            proxy_id, self.settings, self.metrics, clock, send_usage, self.coordinator.policies
        )
        self.meter = self.groups.meter
        self.frame_meter = FrameMeter(self.meter, self.settings)
        self.brokers = self._make_brokers()
        self._policies_tail = policies_tail(
            self._connection, config.topics.policies, self.coordinator.policies
        )
        self._decisions_tail = decisions_tail(self._connection, config.topics.decisions, self._take_decisions)
        self._watch = ClusterWatch(
            self._connection, self.settings.default_partitions_refresh_ms, self._deliver_view
        )
        self._servers: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._bootstrap = itertools.cycle(config.kafka)
        self._stopping = False
        self._empty = asyncio.Event()
        self.metrics_address: Address | None = None

    async def start(self) -> None:
        """Read the policies, then let clients in.

        Raises:
            WeirError: the metrics port is taken.
        """
        self._serve_metrics()
        self._reports.start()
        self._decisions_tail.start(self._loop)
        self._policies_tail.start(self._loop)
        self._watch.start()
        limit_ms = self.now_ms() + self.settings.start_timeout_ms
        await self._wait_for_policies()
        self.groups.look()
        await self._read_back_shares(limit_ms)
        await self._serve(self._listener, lambda: next(self._bootstrap))
        self._spawn(self._tick())
        self._spawn(self._probe())
        self._spawn(self.groups.run())
        logger.info("clients connect to %s:%d", *self.listen)

    async def stop(self) -> None:
        """Take nothing new, answer what is under way, close; limited by stop_timeout_ms and some."""
        self._stopping = True
        self._listener.close()
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.drain()
        if self._connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), self.settings.stop_timeout_ms / 1000)
        for connection in list(self._connections):
            connection.abort()
        for task in list(self._tasks):
            task.cancel()
        self._watch.stop()
        self.groups.stop()
        await asyncio.gather(
            asyncio.to_thread(self._reports.stop, _FLUSH_S),
            self._decisions_tail.stop(_TAIL_STOP_S),
            self._policies_tail.stop(_TAIL_STOP_S),
        )

    def now_ms(self) -> float:
        """The steady clock."""
        return self._loop.time() * 1000

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a delay."""
        return self._loop.call_later(delay_ms / 1000, function)

    def admit(self, connection: Connection) -> bool:
        """Take a new client in; False if there are too many or we are stopping."""
        if self._stopping or len(self._connections) >= self.settings.connections_max:
            return False
        self._connections.add(connection)
        self.metrics.accepted.inc()
        self.metrics.traffic.connections = len(self._connections)
        return True

    def forget(self, connection: Connection) -> None:
        """A client is gone."""
        self._connections.discard(connection)
        if self._stopping and not self._connections:
            self._empty.set()
        self.metrics.traffic.connections = len(self._connections)

    def _listen(self) -> socket.socket:
        host, port = self.config.listen
        try:
            return listen_on(host, port)
        except OSError as error:
            raise WeirError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error

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
        )

    def _serve_broker(self, listener: socket.socket, broker: Broker) -> None:
        self._spawn(self._serve(listener, lambda: (broker.host, broker.port)))

    async def _serve(self, listener: socket.socket, target: Callable[[], Address]) -> None:
        server = await self._loop.create_server(lambda: Connection(self, target), sock=listener)
        if self._stopping:
            server.close()
        self._servers.append(server)

    def _serve_metrics(self) -> None:
        if self.config.metrics is None:
            return
        host, port = self.config.metrics
        try:
            server, _ = start_http_server(port, host, self.metrics.registry)
        except OSError as error:
            raise WeirError(f"cannot serve metrics on {host}:{port}: {error.strerror or error}") from error
        self.metrics_address = (host, server.server_port)

    async def _wait_for_policies(self) -> None:
        limit_s = self.settings.start_timeout_ms / 1000
        try:
            await asyncio.wait_for(self._policies_tail.caught_up.wait(), limit_s)
        except TimeoutError:
            # Refusing all traffic because our own topic cannot be read would be worse than no limits.
            logger.warning("the policies could not be read within %.0f s; going on without", limit_s)

    async def _read_back_shares(self, limit_ms: float) -> None:
        """A proxy that comes back under its old name goes on with its shares, instead of 5 % for a round."""
        if not self.meter.active:
            return
        back_ms = LIFE_ROUNDS * self.meter.interval_ms
        tail = standing_shares(self._connection, self.config.topics.decisions, self.groups.take, back_ms)
        tail.start(self._loop)
        try:
            async with asyncio.timeout(max(0.0, limit_ms - self.now_ms()) / 1000):
                await tail.caught_up.wait()
        except TimeoutError:
            logger.warning("the decisions could not be read back in time; shares come with the next round")
        finally:
            await tail.stop(_TAIL_STOP_S)

    def _take_decisions(self, decisions: list[Decision | Share]) -> None:
        self.coordinator.take([decision for decision in decisions if isinstance(decision, Decision)])
        self.groups.take(decision for decision in decisions if isinstance(decision, Share))

    def _deliver_view(self, view: ClusterView) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._take_view, view)

    def _take_view(self, view: ClusterView) -> None:
        if self._stopping:
            return
        if view.default_partitions is not None:
            self.coordinator.default_partitions = view.default_partitions
        # Clients of a restarted proxy come straight to the broker ports: have them open. Only where we
        # connect as the clients do, since another listener of the cluster names other addresses.
        if "bootstrap.servers" not in self.config.connection:
            for node_id, host, port in view.brokers:
                with contextlib.suppress(WeirError):
                    self.brokers.address(node_id, host, port)

    def _call_at(self, wall_ms: int, function: Callable[[], None]) -> None:
        delay_s = (wall_ms - self.coordinator.clock.wall_ms()) / 1000
        if delay_s > _TIMER_MAX_S:
            self._loop.call_later(_TIMER_MAX_S, self._call_at, wall_ms, function)
        else:
            self._loop.call_later(max(0.0, delay_s), function)

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            now_ms = self.now_ms()
            held = 0
            for connection in list(self._connections):
                connection.check(now_ms)
                held += connection.held
            self.metrics.traffic.held = held
            self.metrics.traffic.brokers = len(self.brokers.ports)
            self.coordinator.tick()

    async def _probe(self) -> None:
        """Send requests that cost nothing until decisions come in time, several in a row.

        One alone says too little: the first batches of a job that has just started take seconds, and a
        client that came then would be answered without its decision.
        """
        started_ms = complained_ms = self.now_ms()
        first_ms, quick = 0.0, 0
        while quick < _QUICK_PROBES:
            asked_ms = self.now_ms()
            decided = await self._ask_probe()
            now_ms = self.now_ms()
            if decided:
                first_ms = first_ms or now_ms
                quick = quick + 1 if (now_ms - asked_ms) * 2 <= self.settings.decision_timeout_ms else 0
                if now_ms - first_ms > _WARM_UP_S * 1000:
                    logger.warning("decisions still take long on this machine; going on all the same")
                    break
            elif now_ms - complained_ms >= _COMPLAIN_S * 1000:
                complained_ms = now_ms
                logger.warning("no probe decided yet: is the job running? requests get on_late_decision")
        logger.info("ready: a probe was decided, after %.1f s", (self.now_ms() - started_ms) / 1000)
        self.ready.set()

    async def _ask_probe(self) -> bool:
        """Whether one probe was decided within its limit."""
        asked, decided = probe(), asyncio.Event()
        quota = self.coordinator.quota(asked.user, asked.client_id)
        ask = self.coordinator.ask(asked, quota, lambda _decision: decided.set())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(decided.wait(), _PROBE_S)
            return True
        if ask is not None:
            # A job that is only starting answers later; keep the question, within the bound.
            self.coordinator.ledger.watch(ask)
        return False
