"""The host of a proxy: listens, lets clients in, looks after their connections, drains them and ends.

What the clients speak is its subclass's; how they come, how many, and what they may hold is the same for all.
"""

import asyncio
import contextlib
import logging
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Generic, Protocol, TypeVar

from enforcer.core import bounds
from enforcer.core.metrics import Metrics
from enforcer.core.security.doors import GateSettings
from enforcer.core.security.tls import UpstreamTlsSettings
from enforcer.core.settings import ProxySettings
from enforcer.host.budget import Budget, Holder
from enforcer.host.descriptors import Room
from enforcer.host.dial import Introduced, Owner, Upstream
from enforcer.host.doors.certificates import Visitor, WatchedContext
from enforcer.host.doors.entrance import Accept, Entrance
from enforcer.host.doors.listening import listen_at
from enforcer.host.doors.proxy_header import header_of
from enforcer.host.doors.users import Users
from enforcer.host.moving import Mover
from enforcer.host.sockets import Address, ended
from enforcer.host.tasks import Tasks, beat
from enforcer.host.turns import Turns
from streaming.contract.topics import KEPT_MS, Cluster, Topics, address_text
from streaming.metrics_server import serve_metrics

logger = logging.getLogger(__name__)

_TICK_S: Final = 1.0
_DRAIN_MS: Final = 30_000
"""So long who is too old may take until what is under way is answered; clients wait no longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig:
    """Where a proxy stands.

    Attributes:
        kafka: bootstrap addresses of the cluster with Weir's topics, which the Kafka proxy guards.
        listen: our address; port 0 takes any free port.
        metrics: where /metrics is served; None: nowhere.
        topics: names of Weir's topics.
        connection: librdkafka properties of our own connections; bootstrap.servers is `kafka` if absent.
        topics_kept_ms: see Cluster.
        settings: all else.
        shared: other processes listen on the same ports.
    """

    kafka: tuple[Address, ...]
    listen: Address
    metrics: Address | None = None
    topics: Topics = field(default_factory=Topics)
    connection: Mapping[str, str] = field(default_factory=dict)
    topics_kept_ms: int = KEPT_MS
    settings: ProxySettings = field(default_factory=ProxySettings)
    shared: bool = False


class Client(Holder, Protocol):
    """A client's connection."""

    user: str

    @property
    def unread(self) -> Mapping[int, bool]:
        """Sockets that are not read, so that the loop does not tell of their ends; -1: it has none any more.

        Returns:
            Descriptor -> whether it is known that the other side sends no more.
        """

    def notice(self) -> None:
        """The other side of one of these has ended."""

    def check(self, now_ms: float) -> None:
        """About once a second: end what takes too long."""

    def drain(self, why: str = "stop") -> None:
        """The proxy stops, or it has lasted long enough: take nothing new, and end."""

    def end(self, why: str) -> None:
        """End it, counted, after what is written already."""

    def drop(self, reason: str) -> None:
        """End at once."""


class Hosting(Protocol):
    """A host, as its connections see it.

    Attributes:
        settings: bounds and time limits.
        metrics: counts.
        turns: shares the loop out, and its log.
    """

    settings: ProxySettings
    metrics: Metrics
    turns: Turns

    def now_ms(self) -> float:
        """The steady clock."""

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a delay."""

    def visitor(self, connection: object, transport: asyncio.BaseTransport) -> Visitor:
        """What is known of a client that has come."""

    def admit(self, connection: Any, refused: str = "") -> str:
        """Take a new client in; returns why not, if that cannot be."""

    def forget(self, connection: Any) -> None:
        """A client is gone."""


class Laws(Protocol):
    """What is enforced, without sockets to clients.

    Attributes:
        ready: set once probe requests are decided in time.
        serving: set then, or once it decides without the job what it can.
    """

    ready: asyncio.Event
    serving: asyncio.Event

    async def start(self) -> None:
        """Connect, and read what was decided before."""

    def work(self) -> Iterable[Coroutine[None, None, None]]:
        """What is to be run, each until it is cancelled or ends."""

    async def stop(self) -> None:
        """Say what is left to be said, and end."""


C = TypeVar("C", bound=Client)


class Host(ABC, Generic[C]):
    """One proxy process's worth of proxy; runs in one event loop.

    Attributes:
        listen: where clients connect to.
        metrics_url: where its metrics are served; None: nowhere.
        proxy_id: its name in events.
        properties: of our own connections to Kafka.
        connections: all that are open to clients.
        turns: shares the loop out, and its log.
        budget: of its memory.
        mover: splices between sockets.

    Args:
        config: where it stands.
        settings: time limits and bounds.
        doors: who may come, and how.
        upstream_tls: to brokers; None: plain text.
    """

    enforcement: Laws

    def __init__(
        self, config: ProxyConfig, settings: ProxySettings,
        doors: GateSettings, upstream_tls: UpstreamTlsSettings | None,
    ) -> None:  # fmt: skip
        self.config, self.settings = config, settings
        self.metrics = Metrics(settings.metric_subjects)
        self._loop = asyncio.get_running_loop()
        self._listener = listen_at(config.listen, config.shared)
        self.listen: Address = self._listener.getsockname()[:2]
        self.proxy_id = settings.id or f"{socket.gethostname()}-{self.listen[1]}"
        bootstrap = ",".join(address_text(*address) for address in config.kafka)
        self.cluster = Cluster(
            config.connection.get("bootstrap.servers", bootstrap),
            config.topics,
            config.connection,
            config.topics_kept_ms,
        )
        self.connections: set[C] = set()
        self.turns = Turns(self._loop.call_soon, time.perf_counter)
        self.mover = Mover()
        traffic = self.metrics.traffic
        memory, gathered = settings.memory_mb << 20, bounds.GATHERED_BYTES
        self.budget = Budget(memory, gathered, lambda: self.connections, traffic)
        addresses = self.cluster.bootstrap.count(",") + 1
        self._room = Room(settings.connections_max, bounds.DESCRIPTORS_RESERVE, addresses)
        traffic.connections_max = self._room.connections(0)
        self._metrics_tls = None if doors.tls is None else WatchedContext.of_metrics(doors.tls)
        self._upstream_tls = None if upstream_tls is None else WatchedContext.of_client(upstream_tls)
        self._entrance = Entrance(
            doors, self._free, self.metrics.tls_failures, self.metrics.refused_connections,
            goodbye_s=settings.stop_timeout_ms / 1000,
        )  # fmt: skip
        self._lifetime_s = doors.lifetime_s
        self._ends_ms: dict[C, float] = {}
        self._users = Users[Any](doors.connections_per_user, doors.login_timeout_s)
        self.visitor, self.identify = self._entrance.visitor, self._users.know
        """What is known of a client that has come; whether a user may have one connection more."""
        self._introduces = doors.upstream_proxy_protocol
        self._tasks = Tasks()
        self.spawn = self._tasks.spawn
        """Begins something that runs until the end (Tasks)."""
        self._stopping = False
        self._begun, self._empty = asyncio.Event(), asyncio.Event()
        self.metrics_url: str | None = None

    @abstractmethod
    def accept(self) -> asyncio.Protocol:
        """A client comes to `listen`: its connection."""

    @abstractmethod
    def look(self) -> int:
        """Once a second, after the connections were looked at; how many listeners beside the first one."""

    @property
    def described(self) -> dict[str, Any]:
        """What clients and launchers need to know of it beside its address."""
        return {}

    async def start(self) -> None:
        """Read the policies, then let clients in.

        Raises:
            WeirError: the metrics port is taken.
        """
        if self.config.metrics is not None:
            self.metrics_url = serve_metrics(self.metrics.registry, *self.config.metrics, self._metrics_tls)
        await self.enforcement.start()
        self._begun.set()
        await self.serve(self._listener, self.accept)
        beating = beat(self.metrics.loop_delay_seconds, self.budget.look)
        for work in (beating, self._tick(), *self.enforcement.work()):
            self.spawn(work)
        logger.info("clients connect to %s", address_text(*self.listen))

    async def serve(self, listener: socket.socket, accept: Accept) -> None:
        """Let clients in on one socket: no other room does. Who comes before the start is over waits."""
        await self._begun.wait()
        await self._entrance.open(listener, accept)

    def upstream(self, owner: Owner) -> Upstream:
        """A connection to a broker that is not dialed yet."""
        tls = None if self._upstream_tls is None else self._upstream_tls.now()
        return Upstream(owner, tls, self.introduce)

    def introduce(self, connection: Introduced) -> bytes:
        """What a broker hears of a client before all else (PROXY protocol), if it is to."""
        if not self._introduces:
            return b""
        peer = connection.peer if isinstance(connection.peer, tuple) else None
        return header_of(peer, self.listen, connection.server_name)

    async def stop(self) -> None:
        """Take nothing new, answer what is under way, close; limited by stop_timeout_ms and some."""
        self._stopping = True
        self._entrance.close()
        self._listener.close()
        # Sockets that were opened before the start was over are closed as well.
        self._begun.set()
        for connection in list(self.connections):
            connection.drain()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.stop_timeout_ms / 1000):
                    await self._empty.wait()
        for connection in list(self.connections):
            connection.drop("stop")
        # What was spawned in this very turn begins first: cancelled before, it would not close what it has.
        await asyncio.sleep(0)
        self._tasks.cancel()
        await self.enforcement.stop()
        self.mover.close()

    def now_ms(self) -> float:
        """The steady clock."""
        return self._loop.time() * 1000

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a delay."""
        return self._loop.call_later(delay_ms / 1000, function)

    def admit(self, connection: C, refused: str = "") -> str:
        """Take a new client in; returns why not: `refused`, or there are too many or we are stopping.

        Who is sent away for what it is may take its time to end, and counts as long as it does.
        """
        if self._stopping or self._free() <= 0:
            return refused or "too_many_connections"
        self.connections.add(connection)
        self.metrics.traffic.connections = len(self.connections)
        if refused:
            return refused
        now_ms = self.now_ms()
        self._users.come(connection, now_ms)
        if not self.identify(connection, connection.user):
            return "connections_per_user"
        if lifetime_s := self._lifetime_s():
            self._ends_ms[connection] = now_ms + lifetime_s * 1_000
        self.metrics.accepted_connections.inc()
        return ""

    def _free(self) -> int:
        return self.metrics.traffic.connections_max - len(self.connections)

    def forget(self, connection: C) -> None:
        """A client is gone."""
        self.connections.discard(connection)
        self._ends_ms.pop(connection, None)
        self._users.leave(connection)
        self._entrance.leave(connection)
        if self._stopping and not self.connections:
            self._empty.set()
        self.metrics.traffic.connections = len(self.connections)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            with self._watched():
                self._look_at_connections()
                self.metrics.traffic.connections_max = self._room.connections(self.look())

    def _look_at_connections(self) -> None:
        now_ms = self.now_ms()
        unread: dict[int, bool] = {}
        whose: dict[int, C] = {}
        for connection in list(self.connections):
            with self._watched():
                connection.check(now_ms)
                late_ms = now_ms - self._ends_ms.get(connection, inf)
                if late_ms >= _DRAIN_MS:
                    connection.drop("age")
                elif late_ms >= 0:
                    connection.drain("age")
                if self._users.is_late(connection, now_ms):
                    connection.end("no_login")
                found = connection.unread
                unread.update(found)
                whose.update(dict.fromkeys(found, connection))
        # Without a socket there is no end.
        unread.pop(-1, None)
        for descriptor in ended(unread):
            with self._watched():
                whose[descriptor].notice()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """One mistake of ours must not end the watch over all."""
        try:
            yield
        except Exception:
            self.metrics.bad_frames.labels("internal").inc()
            logger.exception("connections could not be looked at")
