"""A Pulsar connection without sockets, between a fake client and a fake broker."""

import asyncio
from collections.abc import Callable
from typing import Any, Self, cast

from clock_kit import Timer
from connection_kit import FakeTransport, FakeUpstream
from context_kit import SERVER_NAME
from sample_kit import sample_of

from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.host.dial import Owner, Upstream
from enforcer.host.doors.certificates import Visitor
from enforcer.host.sockets import Address
from enforcer.host.turns import Turns
from enforcer.pulsar.connection import Connection
from enforcer.pulsar.context import PulsarMetrics
from enforcer.pulsar.link import Link, Part
from enforcer.pulsar.lookup.part import Lookups
from enforcer.pulsar.lookup.targets import TARGETS_MAX, Targets
from enforcer.pulsar.settings import PulsarSettings
from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import build, command
from enforcer.wire.pulsar.schema import new_body

BROKER = ("broker-1", 6650)
SEND = build(frames.SEND, new_body(frames.SEND, producer_id=1, sequence_id=1), bytes(1_000))
MESSAGE = build(frames.MESSAGE, new_body(frames.MESSAGE, consumer_id=1), bytes(1_000))


def split(data: bytes) -> list[bytes]:
    """The frames of a stream; the last may be cut off."""
    found = []
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        found.append(data[:end])
        data = data[end:]
    return found


def kinds(data: bytes) -> list[int]:
    """Their kinds."""
    return [frame[9] for frame in split(data)]


def connect(**fields: Any) -> bytes:
    """A client's CONNECT."""
    return command(frames.CONNECT, **{"client_version": b"tests", "protocol_version": 21, **fields})


def connected(**fields: Any) -> bytes:
    """A broker's answer to it."""
    flags = {"get_partitioned_metadata_without_auto_creation": True}
    given = {"server_version": "tests", "max_message_size": 5_242_880, "feature_flags": flags, **fields}
    return command(frames.CONNECTED, **given)


class LateUpstream(FakeUpstream):
    """A broker connection that is made when the test says so."""

    target: Address | None = None

    def dial(self, address: Address) -> None:
        """Remember whom."""
        self.target = address


class Seeing:
    """A part that notes what it sees, and does with it what the test says."""

    def __init__(self, up: set[int], down: set[int]) -> None:
        self.up, self.down = frozenset(up), frozenset(down)
        self.seen: list[tuple[str, int, bytes]] = []
        self.answer: Callable[[bytes], bytes | None] = lambda frame: frame
        self.checked, self.closed, self.held_bytes = 0, 0, 0

    def take_up(self, kind: int, frame: bytes) -> bytes | None:
        """See link.Part."""
        self.seen.append(("up", kind, frame))
        return self.answer(frame)

    def take_down(self, kind: int, frame: bytes) -> bytes | None:
        """See link.Part."""
        self.seen.append(("down", kind, frame))
        return self.answer(frame)

    def check(self, now_ms: float) -> None:
        """See link.Part."""
        self.checked += 1

    def close(self) -> None:
        """See link.Part."""
        self.closed += 1


class PulsarRig:
    """A connection and what it shares with others (context.Context).

    Args:
        parts: what sees its frames behind those that keep clients on the proxy.
        own: settings of section `pulsar`.
        settings: of section `proxy`.
    """

    def __init__(self, *parts: Any, own: dict[str, Any] | None = None, **settings: Any) -> None:
        self.settings, self.pulsar = ProxySettings(**settings), PulsarSettings(**(own or {}))
        self.metrics = Metrics(10)
        self.pulsar_metrics = PulsarMetrics(self.metrics.registry)
        self.targets = Targets([BROKER], self.pulsar.targets, TARGETS_MAX)
        self.turns = Turns(lambda _function: None, lambda: 0.0)
        self.parts: list[Callable[[Link], Part]] = [
            lambda link: Lookups(link, self, Upstream),
            *((lambda _link, part=part: part) for part in parts),
        ]
        self.now = 0.0
        self.forgotten = 0
        self.full = False
        self.client = FakeTransport()
        self.connection = Connection(self, self._upstream)
        self.connection.connection_made(cast(asyncio.Transport, self.client))

    def _upstream(self, owner: Owner) -> LateUpstream:
        self.upstream = LateUpstream(owner)
        self.broker = self.upstream.broker
        return self.upstream

    def now_ms(self) -> float:
        """The test's clock."""
        return self.now

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> Timer:
        """Never made."""
        return Timer(function)

    def bootstrap(self) -> Address:
        """The only broker."""
        return BROKER

    def visitor(self, _connection: Any, _transport: Any) -> Visitor:
        """Nobody has a certificate."""
        return Visitor(name=SERVER_NAME)

    def admit(self, _connection: Any, _refused: str = "") -> str:
        """Unless the test says no."""
        return "too_many_connections" if self.full else ""

    def identify(self, _connection: Any, _user: str) -> bool:
        """Any user has as many as it likes."""
        return True

    def placed(self, _connection: Any) -> None:
        """Nothing is limited."""

    def forget(self, _connection: Any) -> None:
        """Counted."""
        self.forgotten += 1

    def up(self, data: bytes) -> None:
        """The client sends."""
        self.connection.data_received(data)

    def down(self, data: bytes) -> None:
        """The broker sends."""
        self.upstream.data_received(data)

    def dialled(self) -> None:
        """The broker has taken the connection."""
        self.upstream.connection_made(cast(asyncio.Transport, self.broker))

    def knock(self, **fields: Any) -> Self:
        """The client sends its CONNECT, which the broker has."""
        self.up(connect(**fields))
        self.dialled()
        return self

    def open(self, **fields: Any) -> Self:
        """Log in, without a trace of it."""
        self.knock(**fields).down(connected())
        self.client.data = self.broker.data = b""
        return self

    def metric(self, name: str, **labels: str) -> float:
        """A metric's value, see sample_of."""
        return sample_of(self.metrics.registry, f"weir_{name}", labels)
