"""Connections of the admin API, so that none keeps others out: each wait for a client has a limit, and for a
new one there is room as long as any other waits for its client.

uvicorn limits only the time between two requests; a connection that sends nothing, half a head or a byte a
second would stay for ever, and a thousand of them would be all that there may be.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from enum import Enum, StrEnum
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from enforcer.control.metrics import AdminMetrics
from enforcer.control.settings import AdminSettings
from enforcer.core.security.doors import source_of
from enforcer.host.sockets import Address, under_way

_REASON: Final = b'{"reason":"All connections are at work"}'
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"retry-after: 1\r\ncontent-length: %d\r\n\r\n%s" % (len(_REASON), _REASON)
)
Greet = Callable[[object], Address | None]
CONNECTIONS_MAX: Final = 1_000
"""Connections, idle ones too; for a further one see Connections.enter."""
HEAD_MS: Final = 5_000
"""Limit for the head of a request to arrive; then the connection is ended."""
REQUEST_MS: Final = 30_000
"""The same from the head of a request until its answer is taken."""
TAKE_MS: Final = 10_000
"""The same for TAKE_BYTES of an answer that waits: its client may hold a connection to the API behind."""
TAKE_BYTES: Final = 65_536


LASTS: Final = "weir.lasts"
"""In the scope of a request whose answer has no end: it goes on as long as its client takes what comes."""


class EndReason(StrEnum):
    """Why we ended a connection."""

    HEADER_TIMEOUT = "header_timeout"
    REQUEST_TIMEOUT = "request_timeout"
    DISPLACED = "displaced"
    FULL = "full"
    BAD_REQUEST = "bad_request"
    AGE = "age"


class _Phase(Enum):
    IDLE = "between two requests"
    HEAD = "the head of a request is to come, or the body of one that was answered already"
    REQUEST = "a request is under way"
    CLOSING = "the last bytes are to be taken"


class Connections:
    """All connections, and which of them wait for their client, longest first.

    Attributes:
        settings: their limits.
        request_ms: limit from the head of a request until its answer is taken.
    """

    def __init__(self, settings: AdminSettings, metrics: AdminMetrics, request_ms: int) -> None:
        self.settings, self._metrics = settings, metrics
        self.request_ms = request_ms
        self._counts: Counter[str] = Counter()
        self._total = 0
        self._waiting: dict[str, dict[GuardedProtocol, None]] = {}

    def enter(self, new: "GuardedProtocol") -> bool:
        """Make room for a new one; False if none of those in its way waits for its client."""
        if self._counts[new.source] >= self.settings.connections_per_address:
            in_the_way = self._waiting.get(new.source, {})
        elif self._total >= CONNECTIONS_MAX:
            # Whoever has most of those that wait, so that few clients are not displaced by many of one.
            in_the_way = max(self._waiting.values(), key=len, default={})
        else:
            in_the_way = None
        if in_the_way is not None:
            displaced = next(iter(in_the_way), None)
            if displaced is None:
                return False
            displaced.cut(EndReason.DISPLACED)
        self._counts[new.source] += 1
        self._total += 1
        self.waits(new)
        return True

    def leave(self, gone: "GuardedProtocol") -> None:
        """Forget one that has entered."""
        self.works(gone)
        self._counts[gone.source] -= 1
        if not self._counts[gone.source]:
            del self._counts[gone.source]
        self._total -= 1
        self._metrics.connections.set(self._total)

    def waits(self, connection: "GuardedProtocol") -> None:
        """It waits for its client, from now on or still."""
        self._waiting.setdefault(connection.source, {}).setdefault(connection)
        self._metrics.connections.set(self._total)

    def works(self, connection: "GuardedProtocol") -> None:
        """It does not wait for its client."""
        waiting = self._waiting.get(connection.source)
        if waiting is not None:
            waiting.pop(connection, None)
            if not waiting:
                del self._waiting[connection.source]

    def count(self, why: EndReason) -> None:
        """Count one that we end."""
        self._metrics.connections_ended.labels(why).inc()


class GuardedProtocol(H11Protocol):
    """uvicorn's connection with limits; `greet` returns the address that a load balancer told.

    Its limit is shared by its `source`: an address, this machine, or an IPv6 network.
    """

    def __init__(self, table: Connections, greet: Greet, **options: Any) -> None:
        super().__init__(**options)
        self._table, self._greet = table, greet
        self._entered = False
        self._phase: _Phase | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._end: asyncio.TimerHandle | None = None
        self._taking: asyncio.TimerHandle | None = None
        self.source = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Take a place, or turn the client away."""
        super().connection_made(transport)
        self.client = self._greet(self) or self.client
        if lifetime_s := self._table.settings.lifetime_s():
            self._end = self.loop.call_later(lifetime_s, self._retire)
        self.source = source_of(self.client[0] if self.client else "")
        self._entered = self._table.enter(self)
        if not self._entered:
            self._table.count(EndReason.FULL)
            transport.write(_FULL)
            transport.close()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        # What comes behind our end would be an error to h11.
        if not self.transport.is_closing():
            super().data_received(data)
            self._look()

    def pause_writing(self) -> None:
        """The client does not take what it asked for."""
        super().pause_writing()
        self._see_taken()
        self._look()

    def resume_writing(self) -> None:
        """It does."""
        super().resume_writing()
        self._stop(self._taking)
        self._look()

    def on_response_complete(self) -> None:
        """See uvicorn; a request that came with the one before has its own time."""
        super().on_response_complete()
        self._phase = None
        self._look()

    def send_400_response(self, msg: str) -> None:
        """See uvicorn, which would log each."""
        self._table.count(EndReason.BAD_REQUEST)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            # Its answer has begun: h11 raises at a second one, and each would be a traceback in the log.
            self.transport.close()
        if self.cycle is not None:
            # So does what answers, where others of our bytes are to be taken before the connection is over.
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def timeout_keep_alive_handler(self) -> None:
        """The time between two requests is over, unless the answer is still being taken: that has its own."""
        if self.transport.get_write_buffer_size():
            self._set_timer(_Phase.REQUEST)
        else:
            self.cut(None)

    def shutdown(self) -> None:
        """See uvicorn; by TLS an idle client would be asked whether it has heard of the end."""
        if self._standing() is _Phase.IDLE:
            self.transport.abort()
        else:
            super().shutdown()

    def cut(self, why: EndReason | None) -> None:
        """End it now, without waiting for what the client has not taken."""
        if why is not None:
            self._table.count(why)
        self._forget()
        self.transport.abort()

    def _retire(self) -> None:
        """It has lasted long enough: what is under way is answered, and taken, unless it has no end."""
        if self.transport.is_closing():
            return
        if self._lasts:
            self.cut(EndReason.AGE)
            return
        self._table.count(EndReason.AGE)
        if self._standing() is _Phase.IDLE and self.transport.get_write_buffer_size():
            self.transport.close()
        else:
            self.shutdown()
        self._look()

    def _look(self) -> None:
        """Keep its timer and its place among those that wait in step with where it stands."""
        phase = self._standing()
        if phase is not self._phase:
            self._phase = phase
            self._set_timer(phase)
        if self._entered:
            at_work = phase is _Phase.REQUEST and not self.cycle.more_body and not self.flow.write_paused
            (self._table.works if at_work else self._table.waits)(self)

    def _standing(self) -> _Phase:
        if self.transport.is_closing():
            return _Phase.CLOSING
        if self.cycle is not None and not self.cycle.response_complete:
            return _Phase.REQUEST
        if self.cycle is not None and self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            return _Phase.IDLE
        return _Phase.HEAD

    @property
    def _lasts(self) -> bool:
        """Whether it gives an answer that has no end."""
        return self._standing() is _Phase.REQUEST and LASTS in self.cycle.scope

    def _see_taken(self, before: int | None = None) -> None:
        """See that it takes what waits for it: more than `before` less TAKE_BYTES must not be left."""
        left = under_way(self.transport)
        if before is not None and left > before - TAKE_BYTES:
            self.cut(EndReason.REQUEST_TIMEOUT)
        else:
            self._taking = self.loop.call_later(TAKE_MS / 1000, self._see_taken, left)

    def _set_timer(self, phase: _Phase) -> None:
        self._stop(self._timer)
        if phase is _Phase.IDLE:
            return  # uvicorn's own time-out
        why, limit_ms = EndReason.REQUEST_TIMEOUT, self._table.request_ms
        if phase is _Phase.HEAD:
            why, limit_ms = EndReason.HEADER_TIMEOUT, HEAD_MS
        self._timer = self.loop.call_later(limit_ms / 1000, self._over, why)

    def _over(self, why: EndReason) -> None:
        """The time is over that it may stand so."""
        if self._lasts and not self.flow.write_paused:
            self._set_timer(_Phase.REQUEST)
        else:
            # Its answer has been taken by now: it was idle.
            idle = self._standing() is _Phase.IDLE and not self.transport.get_write_buffer_size()
            self.cut(None if idle else why)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()

    def _forget(self) -> None:
        for timer in (self._timer, self._end, self._taking):
            self._stop(timer)
        self._unset_keepalive_if_required()
        if self._entered:
            self._entered = False
            self._table.leave(self)
