"""One client's connection and its own to a broker: what comes on one side goes on to the other.

Frames that a part wants are shown to it; all others pass as bytes. Each side is read only as fast as the
other takes it. When one side ends the other is closed at once, so that a broker never keeps a producer whose
client is gone, and a client never waits for a broker that is (a keep-alive is the peers' own and passes).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from enforcer.core import bounds
from enforcer.host.dial import MakeUpstream, Outlet, Upstream
from enforcer.host.sockets import Address, descriptor_of, under_way
from enforcer.laws.concurrency.limiter import Limiter
from enforcer.pulsar.context import Context
from enforcer.pulsar.handshake import Handshake
from enforcer.pulsar.inlet import Inlet
from enforcer.pulsar.link import Part
from enforcer.wire.pulsar.commands import CONNECTION, ServerError, command, error
from enforcer.wire.pulsar.frames import ALL, FRAME_OVERHEAD, MESSAGE_BYTES_DEFAULT, PONG, BadFrame, Reason
from streaming.contract.errors import WeirError
from streaming.contract.events import ANONYMOUS
from streaming.contract.topics import address_text

logger = logging.getLogger(__name__)

_NOWHERE: Address = ("", 0)
_PONG: Final = command(PONG)
_PONG_EVERY_MS: Final = 20_000.0
"""A client that is not read, or whose broker is not, hears no PONG; it gives up after 60 s without any."""
_FULL: Final = "full"
"""Objects to reading one side while the other takes nothing."""
_DIAL: Final = "dial"
T = TypeVar("T")


class Connection(asyncio.Protocol):
    """The client's side; see link.Link for what its parts use.

    Args:
        context: what all connections share.
        make_upstream: makes its connection to a broker.
    """

    def __init__(self, context: Context, make_upstream: MakeUpstream = Upstream) -> None:
        self._context = context
        self.broker = self.address = _NOWHERE
        self.user = ANONYMOUS
        self.protocol_version, self.asks_only = 0, False
        self.limiter: Limiter | None = None
        self.peer: object = None
        self.server_name = ""
        self.connect = b""
        self._transport: asyncio.Transport | None = None
        self._upstream = make_upstream(self)
        self._to_client = Outlet()
        limit = bounds.MAX_UNAUTHENTICATED_FRAME_BYTES
        turns = context.turns
        self._up = Inlet(turns, self._upstream.pass_on, self._take_up, lambda: self.data_received(b""), limit)
        self._down = Inlet(
            turns, self._to_client.pass_on, self._take_down, lambda: self.upstream_received(b""), limit
        )
        # Of link.Link.
        self.to_broker, self.to_client = self._upstream.send, self._to_client.send
        self.pause, self.resume = self._up.pause, self._up.resume
        self.pause_broker, self.resume_broker = self._down.pause, self._down.resume
        self.now_ms = context.now_ms
        self._parts: list[Part] = [Handshake(context, self)]
        self._up_parts = self._down_parts = dict.fromkeys(ALL, self._parts)
        self._up.splitter.wanted = self._down.splitter.wanted = ALL
        # Which frame has come in part, by how many came, and when it was first seen so.
        self._partial_frame, self._partial_ms = -1, 0.0
        self._over_ms = self._pong_ms = 0.0
        self._dialing = self.over = False

    # What the parts see ------------------------------------------------------------------------------------

    @property
    def stalled(self) -> bool:
        """See link.Link."""
        objections = self._down.objections
        return _FULL in objections or not objections.isdisjoint(self._parts)

    def answer(self, frame: bytes) -> None:
        """See link.Link."""
        if not self.over:
            self._take_down(frame[9], frame)

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """See link.Link."""
        return self._context.call_later(delay_ms, lambda: self._guarded(function, "bad_frame"))

    def look_again(self) -> None:
        """See link.Link."""
        self._up_parts, self._down_parts = {}, {}
        for part in self._parts:
            for kind in part.up:
                self._up_parts.setdefault(kind, []).append(part)
            for kind in part.down:
                self._down_parts.setdefault(kind, []).append(part)
        self._up.splitter.wanted = frozenset(self._up_parts)
        self._down.splitter.wanted = frozenset(self._down_parts)

    def end(self, why: str) -> None:
        """See link.Link."""
        if not self.over:
            self._context.metrics.closed_connections.labels(why).inc()
            self._close()

    # What the proxy sees -----------------------------------------------------------------------------------

    def count_by(self, limiter: Limiter | None) -> None:
        """The concurrency limit of its broker has changed (limits.ClientConnection)."""
        self.limiter = limiter

    @property
    def held_bytes(self) -> int:
        """What it keeps (budget.Holder)."""
        held = self._up.splitter.held_bytes + self._down.splitter.held_bytes
        held += self._upstream.held_bytes + self._to_client.held_bytes
        return held + sum(part.held_bytes for part in self._parts)

    def cut(self, reason: str) -> None:
        """End at once and keep nothing (budget.Holder)."""
        logger.warning("the connection of %r at %s ends: it holds too much", self.user, self.peer)
        self.drop(reason)

    def drain(self, why: str = "stop") -> None:
        """See server.Client; who is too old hears of what is under way, and ends once it has got that whole.

        It is called once a second then: answers have one, a frame in part and a slow reader what they need.
        """
        if why == "stop":
            self.end(why)
            return
        # From here on no frame leaves in part, so that the broker can be left after any; a part may have
        # looked again meanwhile.
        self._down.splitter.wanted = ALL
        if why not in self._up.objections:
            self._up.pause(why)
        elif not self._to_client.mid:
            self._down.pause(why)
            if self._transport is None or not under_way(self._transport):
                self.end(why)

    def notice(self) -> None:
        """See server.Client: one end is the end of both."""
        self.end("departed")

    def drop(self, reason: str) -> None:
        """Close both sides, and give up what has not left yet (server.Client)."""
        self.end(reason)
        self._upstream.abort()
        if self._transport is not None:
            self._transport.abort()

    @property
    def unread(self) -> dict[int, bool]:
        """Sockets whose end the loop would not tell now, since they are not read (server.Client)."""
        found = {}
        if not (self.over or self._up.reading or self._transport is None):
            found[descriptor_of(self._transport)] = False
        if not (self.over or self._down.reading):
            found[self._upstream.descriptor] = False
        return found

    def check(self, now_ms: float) -> None:
        """Once a second: end what takes too long."""
        settings = self._context.settings
        if self.over:
            if now_ms - self._over_ms > settings.stop_timeout_ms:
                self.drop("stop")
            return
        frames = self._up.splitter.frames
        if frames != self._partial_frame or not (self._up.splitter.partial and self._up.reading):
            # A client that sends one large frame after the other is always in the middle of one.
            self._partial_frame, self._partial_ms = frames, now_ms
        elif now_ms - self._partial_ms > bounds.PARTIAL_FRAME_TIMEOUT_MS:
            self.end("slow_sender")
            return
        for part in self._parts:
            self._guarded(lambda part=part: part.check(now_ms), "bad_frame")  # type: ignore[misc]
        if (self._up.objections | self._down.objections).isdisjoint(self._parts):
            self._pong_ms = now_ms
        elif now_ms - self._pong_ms >= _PONG_EVERY_MS:
            self._pong_ms = now_ms
            self.to_client(_PONG)

    # The client's side -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        transport = cast(asyncio.Transport, transport)
        visitor = self._context.visitor(self, transport)
        self.peer, self.user, self.server_name = visitor.peer, visitor.user, visitor.name
        if refused := visitor.refused or self._context.admit(self):
            self._context.metrics.closed_connections.labels(refused).inc()
            self.over = True
            transport.abort()
            return
        self._transport = transport
        self._to_client.open(transport)
        self._up.open(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self.over:
            return
        traffic = self._context.metrics.traffic
        traffic.bytes_in += len(data)
        traffic.frames_in += self._guarded(lambda: self._up.feed(data), "bad_frame") or 0

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._down.pause(_FULL)

    def resume_writing(self) -> None:
        """It has caught up."""
        self._down.resume(_FULL)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, or we closed."""
        self._transport = None
        self._to_client.drop()
        self._close()
        self._forget()

    # The broker's side (dial.Owner) --------------------------------------------------------------------

    def upstream_changed(self) -> None:
        """See dial.Owner."""
        (self._up.pause if self._upstream.full else self._up.resume)(_FULL)
        if self._dialing:
            assert self._upstream.transport
            self._dialing = False
            self._context.placed(self)
            self._down.open(self._upstream.transport)
            self._upstream.send(self.connect)
            self._up.go(_DIAL)
            self.data_received(b"")

    def upstream_failed(self, reason: str) -> None:
        """See dial.Owner."""
        if reason == "lost":
            # What it said last is often why.
            self._guarded(self._down.finish, "bad_response")
        if self.over:
            return
        self._context.metrics.upstream_failures.labels(reason).inc()
        if reason != "lost":
            text = f"the broker {address_text(*self.broker)} cannot be reached from the proxy"
            self._to_client.send(error(CONNECTION, ServerError.SERVICE_NOT_READY, text))
        self.end(f"upstream_{reason}")

    def upstream_closed(self) -> None:
        """See dial.Owner."""
        self._forget()

    def upstream_received(self, data: bytes) -> None:
        """See dial.Owner."""
        if self.over:
            return
        self._context.metrics.traffic.bytes_out += len(data)
        frames = self._guarded(lambda: self._down.feed(data), "bad_response")
        self._context.pulsar_metrics.broker_frames.inc(frames or 0)

    # What the handshake sees -----------------------------------------------------------------------------

    def refuse(self, code: int, message: str, why: str) -> None:
        """Answer the client with an error that concerns the whole connection, and end it."""
        self._to_client.send(error(CONNECTION, code, message))
        self.end(why)

    def dial(self, target: Address, by: Address) -> None:
        """Connect to a broker, by this address."""
        self.broker = self.address = target
        self._up.stop(_DIAL)
        self._dialing = True
        self._upstream.dial(by)

    def opened(self, said: Any, user: str) -> None:
        """The broker has let the client in: its CONNECTED, and the user."""
        # A login that names somebody wins over a certificate.
        self.user = user if user != ANONYMOUS else self.user
        self.protocol_version = said.protocol_version
        self.asks_only = said.feature_flags.get_partitioned_metadata_without_auto_creation
        size = said.max_message_size if said.max_message_size > 0 else MESSAGE_BYTES_DEFAULT
        limit = min(size + FRAME_OVERHEAD, self._context.settings.max_frame_bytes)
        self._up.splitter.limit = self._down.splitter.limit = limit
        self._parts = [make(self) for make in self._context.parts]
        self.look_again()
        if not self._context.identify(self, self.user):
            self.end("connections_per_user")

    def _take_up(self, kind: int, frame: bytes) -> None:
        for part in self._up_parts.get(kind, ()):
            going = part.take_up(kind, frame)
            if going is None:
                return
            frame = going
        self._upstream.send(frame)

    def _take_down(self, kind: int, frame: bytes) -> None:
        for part in self._down_parts.get(kind, ()):
            going = part.take_down(kind, frame)
            if going is None:
                return
            frame = going
        self._to_client.send(frame)

    def _guarded(self, work: Callable[[], T], why: str) -> T | None:
        """Whatever goes wrong ends this connection alone, and gives None."""
        try:
            return work()
        except BadFrame as bad:
            self._context.metrics.bad_frames.labels(bad.reason.value).inc()
            self.end(why)
        except WeirError as failure:
            if self._context.turns.may_say():
                logger.warning("the connection of %r at %s ends: %s", self.user, self.peer, failure)
            self.end(why)
        except Exception:
            self._context.metrics.bad_frames.labels(Reason.INTERNAL.value).inc()
            if self._context.turns.may_say():
                logger.exception("the connection of %r at %s met a mistake of ours", self.user, self.peer)
            self.end("internal")
        return None

    def _close(self) -> None:
        """Nothing more is read; both sides are closed after what is written already."""
        if self.over:
            return
        self.over, self._over_ms = True, self._context.now_ms()
        self._up.close()
        self._down.close()
        for part in self._parts:
            # Whatever one meets, the others must still learn of the end.
            self._guarded(part.close, "internal")
        self._upstream.close()
        if self._transport is not None:
            self._transport.close()

    def _forget(self) -> None:
        if self.over and self._transport is None and self._upstream.closed:
            self._context.forget(self)
