"""A connection without sockets, between a fake client and a fake broker."""

import asyncio
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from clock_kit import Timer
from context_kit import SERVER_NAME
from kafka_kit import framed
from mutation_kit import Desk
from sample_kit import sample_of

from enforcer.core import bounds
from enforcer.core.metrics import Metrics
from enforcer.host.budget import Budget
from enforcer.host.dial import Owner, Upstream
from enforcer.host.doors.certificates import Visitor
from enforcer.host.moving import Mover
from enforcer.host.sockets import Address
from enforcer.host.turns import Turns
from enforcer.kafka.addresses.brokers import Brokers
from enforcer.kafka.backlog.part import BlocksLimit
from enforcer.kafka.connection import Connection
from enforcer.kafka.dispatch.context import FetchContext
from enforcer.kafka.guard.answers import AnswerFilter
from enforcer.kafka.guard.protected import OwnTopics
from enforcer.kafka.mutations.mutation import RecentTopics
from enforcer.kafka.part import Concern
from enforcer.kafka.proxy import concerns_of
from enforcer.kafka.shares.frame_meter import FrameMeter
from enforcer.kafka.shares.part import SharesLimit
from enforcer.laws.backlog.blocks import Blocks
from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.laws.shares.meter import Meter
from streaming.contract.topics import Topics

METADATA, PRODUCE, API_VERSIONS = 3, 0, 18


def header(key: int, version: int, correlation_id: int) -> bytes:
    """A request header without client-id."""
    return struct.pack(">hhih", key, version, correlation_id, -1)


def opaque(correlation_id: int, size: int = 0) -> bytes:
    """A ListGroups v0 request, which no rule touches; `size` further bytes."""
    return framed(header(16, 0, correlation_id) + bytes(size))


def frames_of(data: bytes) -> list[bytes]:
    """The payloads in a stream; the last may be cut off."""
    found = []
    while data:
        (length,) = struct.unpack(">i", data[:4])
        found.append(data[4 : 4 + length])
        data = data[4 + length :]
    return found


class FakeTransport:
    """A socket's writing end."""

    def __init__(self) -> None:
        self.data = b""
        self.reading = True
        self.closed = self.aborted = False
        self.socket: Any = None
        self.ssl_object: Any = None

    def write(self, data: bytes) -> None:
        """Keep what is written."""
        self.data += data

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.closed

    def pause_reading(self) -> None:
        """No more data comes."""
        self.reading = False

    def resume_reading(self) -> None:
        """Data comes again."""
        self.reading = True

    def close(self) -> None:
        """Close after what is written."""
        self.closed = True

    def abort(self) -> None:
        """Close at once."""
        self.closed = self.aborted = True

    def get_extra_info(self, name: str) -> Any:
        """What the test has set."""
        return getattr(self, name, None)

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """Nothing to do."""

    def get_write_buffer_size(self) -> int:
        """All is taken at once."""
        return 0

    def answered(self) -> list[int]:
        """Correlation ids of the frames written, in order."""
        return [struct.unpack(">i", frame[:4])[0] for frame in frames_of(self.data)]


class FakeUpstream(Upstream):
    """A broker connection that is made at once, to a broker that keeps requests until they are answered."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner)
        self.broker = FakeTransport()
        self.aborted = False

    def dial(self, address: Address) -> None:
        """See Upstream."""
        self.connection_made(cast(asyncio.Transport, self.broker))

    def close(self) -> None:
        """See Upstream; nobody waits for the broker."""
        super().close()
        self.drop()

    def abort(self) -> None:
        """See Upstream."""
        super().abort()
        self.drop()
        self.aborted = True

    @property
    def data(self) -> bytes:
        """All that the broker has got."""
        return self.broker.data

    @property
    def sent(self) -> list[bytes]:
        """The requests, whole or begun."""
        return frames_of(self.data)


class Rig:
    """A connection between a fake client and a fake broker.

    Args:
        beside: another one of the same proxy, as far as metering and its clock go.
        settings: of the proxy.
    """

    def __init__(self, beside: "Rig | None" = None, **settings: Any) -> None:
        desk = Desk(**settings) if beside is None else beside.desk
        self.settings, self.coordinator, self.metrics = desk.settings, desk.coordinator, desk.metrics
        self.desk = desk
        self.meter = Meter(desk.settings, desk.coordinator.clock) if beside is None else beside.meter
        self.frame_meter = FrameMeter(self.meter) if beside is None else beside.frame_meter
        # What is reported of deliveries goes nowhere; what is logged of blocks stands in the desk's events.
        own = replace(desk.context, metrics=Metrics(10))
        self.dispatch = Dispatch(own, self.meter) if beside is None else beside.dispatch
        self.brokers = Brokers(
            listen_host="", advertise="", port_base=0, brokers_max=0, serve=lambda _socket, _broker: None
        )
        self.fetch_context = FetchContext(
            self.dispatch, desk.settings, desk.metrics, self.brokers, self.frame_meter.names, self.now_ms
        )
        blocks = Blocks(desk.context) if beside is None else beside.blocks.blocks
        self.blocks = BlocksLimit(
            blocks, self.frame_meter.names, self.fetch_context.topic, desk.settings, self.now_ms
        )
        self.protected = OwnTopics(Topics(), desk.settings.protect_topics)
        self.rewrite, self.repeats = AnswerFilter(self.protected, self.brokers.rewrite), self.brokers.repeats
        self.recent_topics, self.identify = RecentTopics(self.now_ms), lambda _link, _user: True
        self.concerns = concerns_of(self, self.blocks)
        self.turns = Turns(lambda function: self.call_later(0, function), lambda: self.now_s)
        self.now_s = 0.0
        gathered = bounds.GATHERED_BYTES
        self.budget = Budget(1 << 30, gathered, tuple, self.metrics.traffic)
        self.mover = Mover()
        self.client = FakeTransport()
        self.timers: list[Timer] = []
        self.over = False
        self.connect()

    def connect(self) -> None:
        """The client comes."""
        self.connection = Connection(self, lambda: ("kafka", 9092), self._upstream)
        self.connection.connection_made(cast(asyncio.Transport, self.client))

    def _upstream(self, owner: Owner) -> Upstream:
        self.upstream = FakeUpstream(owner)
        return self.upstream

    def answer(self, frames: list[bytes]) -> None:
        """The broker sends these responses."""
        self.connection.upstream_received(b"".join(map(framed, frames)))

    def in_force(self) -> object:
        """The policies (context.Context)."""
        return self.coordinator.policies.now

    def part(self, kind: type[Concern], make: bool = False) -> Any:
        """The connection's part of a concern; None: there is none yet, and none is to be made."""
        chain, concern = self.connection._chain, next(one for one in self.concerns if isinstance(one, kind))
        return chain._make(concern) if make and concern not in chain._made else chain._made.get(concern)

    def now_ms(self) -> float:
        """The desk's clock (context.Context)."""
        return self.desk.now_ms

    def prove(self) -> None:
        """The broker has answered before."""
        self.part(SharesLimit, make=True)._connection_meter.naming.proven = True

    def run_timers(self) -> None:
        """All that were asked for until now."""
        due, self.timers = self.timers, []
        for timer in due:
            timer.fire()

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> Timer:
        """Made when the desk's time passes, or when a test says so (context.Context)."""
        self.timers.append(self.desk.call_later(delay_ms, function))
        return self.timers[-1]

    def visitor(self, connection: object, transport: asyncio.BaseTransport) -> Visitor:
        """Nobody has a certificate (context.Context)."""
        return Visitor(name=SERVER_NAME)

    def named(self, name: str) -> Address | None:
        """No name stands for a broker (context.Context)."""
        return None

    def admit(self, connection: Any, refused: str = "") -> str:
        """Everybody comes in who may (context.Context)."""
        self.refused = refused
        return refused

    def forget(self, connection: Any) -> None:
        """Note that all is over (context.Context)."""
        self.over = True

    def lose_client(self, exc: Exception | None = None) -> None:
        """The client's socket is closed, by whomever."""
        self.connection.connection_lost(exc)

    def closed(self, reason: str) -> float:
        """How many connections ended for this reason."""
        return self._counted("closed_connections", reason)

    def dropped(self, reason: str) -> float:
        """How many requests of departed clients were dropped for this reason."""
        return self._counted("dropped_requests", reason)

    def _counted(self, name: str, reason: str) -> float:
        return sample_of(self.metrics.registry, f"weir_proxy_{name}_total", {"reason": reason})
