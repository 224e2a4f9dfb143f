"""How a connection ends: what is still done for a client that sends no more, or is gone, and for how long.

What came before an end is delivered, as TCP promises: a client that ended its own side is answered; one that
is gone is not, but what it has sent is carried out in order, under the same waits. What went to the broker is
settled in any case, since it is charged whatever the client does afterwards.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from enforcer.core import bounds
from enforcer.host.dial import Upstream
from enforcer.host.sockets import descriptor_of, ended, under_way, unread
from enforcer.kafka.chain import Chain
from enforcer.kafka.context import Context
from enforcer.kafka.pacing import Pacer
from enforcer.kafka.part import Slot
from enforcer.kafka.pipeline.requests import Requests
from enforcer.kafka.pipeline.responses import Responses
from enforcer.wire.kafka.frames import FETCH, BadFrame, Reason
from streaming.contract.errors import WeirError

logger = logging.getLogger(__name__)

LISTENS_MS: Final = 50
"""How long a client that is gone may take to say so, ms: a reset comes back within a round trip."""

_FIRST_BYTE: Final = b"\0"


class ConnectionEnd:
    """The end of one connection.

    Args:
        who: whose it is, for the log.
        pump: handles what has come, as far as nothing holds it, and calls `settle`.
        over: called when both sides are closed.
    """

    def __init__(
        self,
        context: Context,
        pacer: Pacer,
        chain: Chain,
        requests: Requests,
        responses: Responses,
        *,
        who: Callable[[], str],
        pump: Callable[[], None],
        over: Callable[[], None],
    ) -> None:
        self._context = context
        self._settings = context.settings
        self._pacer = pacer
        self._chain = chain
        self._requests = requests
        self._responses = responses
        self._who, self._pump, self._over = who, pump, over
        self._transport: asyncio.Transport | None = None
        self._upstream: Upstream | None = None
        self._since: float | None = None
        self._closed_at: float | None = None
        self._lost = ""
        self._drained = ""
        self._unheard_bytes = 0
        self._asked: Slot | None = None
        self.takes = True
        """Whether further requests are handled."""
        self.begun = False
        """Whether something has ended; while nothing has, nothing else here need be asked."""
        self.left = False
        """The client's end was seen behind bytes that are not read: they must be, whatever mutes it."""
        self.input_over = False
        """Whether all that the client will ever send is here."""
        self.gone = False
        """Whether nobody is there to be answered."""
        self.closing = False
        """Whether the proxy ended it: what the client sends, or has sent, is not even looked at."""
        self.done = False
        """Whether nothing more will be done."""

    def open(self, transport: asyncio.Transport, upstream: Upstream | None) -> None:
        """Both sides; without upstream there will be none."""
        self._transport, self._upstream = transport, upstream

    def end_input(self) -> None:
        """The client sends no more; it may still read."""
        coming, responses = self._requests.coming, self._responses
        if coming in responses.due:
            # The rest of it will never come, nor will its answer, nor what we asked behind it.
            while responses.due.pop() is not coming:
                pass
            responses.answers.pop()
        if not self.input_over:
            self.input_over, self.takes = True, not (self.closing or self._lost or self.done)
        self._begin()

    def lose_client(self) -> None:
        """The client is gone."""
        self.gone = True
        self._responses.write = self._unheard
        self._chain.unheard()
        if self._upstream is not None:
            # It was perhaps paused for the client's sake.
            self._upstream.resume_reading()
        self.end_input()
        self.forget()

    def lose_broker(self, reason: str) -> None:
        """There is no broker connection any more, or never will be."""
        if self.done:
            self.forget()
            return
        self._context.metrics.upstream_failures.labels(reason).inc()
        self._lost, self.takes = f"upstream_{reason}", False
        self._begin()

    def notice(self) -> None:
        """The client's end was seen from outside; one that sends no more does not read either."""
        if self.input_over and self._transport is not None:
            self._transport.abort()
        elif not self.left:
            self.left = True
            self._since = self._since or self._context.now_ms()
            self._pump()

    def unread(self, reading: bool) -> dict[int, bool]:
        """The client's socket, if the loop would not tell of its end now, and whether it sends no more."""
        if self._transport is None or self.gone or self.closing or self.done:
            return {}
        if reading and not self.input_over:
            return {}
        return {descriptor_of(self._transport): self.input_over}

    def rest(self) -> list[bytes]:
        """What the client sent and nobody has read, since writing to it failed first."""
        if self._transport is None or self.input_over or not self.takes:
            return []
        return list(unread(self._transport, bounds.HELD_BYTES_MAX - self._requests.waiting_bytes))

    def close_client(self, reason: str) -> None:
        """Close the client's side after what is written already; take nothing more of it."""
        if self.closing or self._transport is None:
            return
        self.closing, self.takes = True, False
        if not self.gone:
            self._context.metrics.closed_connections.labels(reason).inc()
            self._closed_at = self._context.now_ms()
            self._transport.close()
        self._responses.write = self._unheard
        self._chain.unheard()
        self._chain.step_aside()
        self._begin()

    def drain(self, why: str = "stop") -> None:
        """The proxy stops, or it is too old. Who has ended cannot send again: what it sent is handled."""
        self.takes = self.takes and self.input_over
        self.begun, self._drained = True, why if self._drained in ("", "age") else self._drained
        self._pump()

    def end_session(self) -> None:
        """The broker would take nothing more: of what it has taken the answers are waited for."""
        if self.input_over:
            self._context.metrics.dropped_requests.labels("session").inc(1 + self._requests.waiting)
        self.drain("session")
        self.takes = False

    def check(self, now_ms: float) -> None:
        """Once a second: end what takes too long."""
        transport, limit_ms = self._transport, self._settings.stop_timeout_ms
        if transport is not None and self._closed_at is not None and now_ms - self._closed_at > limit_ms:
            # Its client takes nothing more.
            transport.abort()
        if self._since is not None and now_ms - self._since > bounds.DEPARTED_MAX_MS:
            self.drop("departed")

    def drop(self, reason: str) -> None:
        """Close both sides at once (`give_up`)."""
        self.give_up(reason)
        if self._transport is not None and not self.gone:
            if not self.closing:
                self.closing = True
                self._context.metrics.closed_connections.labels(reason).inc()
            self._transport.abort()

    def give_up(self, reason: str) -> None:
        """Do nothing more, and count the requests that a departed client loses by it."""
        if (self.input_over or self.left) and not self.done:
            self._context.metrics.dropped_requests.labels(reason).inc(self._requests.waiting)
        self.finish()
        if self._upstream is not None:
            self._upstream.abort()

    def finish(self) -> None:
        """Nothing more will be done: both sides are closed after what is written already."""
        if self.done:
            return
        self.done, self.begun, self.takes = True, True, False
        self._pacer.close()
        self._chain.close()
        if self._transport is not None and not self.gone:
            self._transport.close()
        if self._upstream is not None:
            self._upstream.close()
        self.forget()

    def settle(self) -> None:
        """Something has ended: close what has nothing more to do."""
        chain, responses = self._chain, self._responses
        if self.done:
            return
        if self._lost:
            if self.gone or not chain.waits_for_decision:
                # Without a broker all ends.
                self.close_client(self._lost)
                self.give_up("upstream")
        elif not chain.free:
            if chain.unadmitted is not None:
                self._ask_who_listens(chain.unadmitted)
        elif self.takes and self._requests.waiting:
            pass  # Their turn comes.
        elif self.gone or self.closing or not responses.answers:
            if self._stays():
                return
            if not self.input_over:
                self.close_client(self._drained or "stop")
            if not any(map(_matters, reversed(responses.due))):
                self.finish()

    def _stays(self) -> bool:
        """Whether it is only too old, and its client has not got all answers: it is drained again."""
        transport = self._transport
        if transport is None or self.gone or self.closing or self._drained != "age":
            return False
        return under_way(transport) > 0

    def _begin(self) -> None:
        self.begun = True
        if self._since is None:
            self._since = self._context.now_ms()
        self._pump()

    def forget(self) -> None:
        """Once nothing more will be done and both sides are closed: let go of it."""
        closed = self._transport is None or self.gone
        if self.done and closed and (self._upstream is None or self._upstream.closed):
            self._responses.drop()
            self._requests.data, self._requests.pos = b"", 0
            self._over()

    def _unheard(self, data: bytes | bytearray | memoryview) -> None:
        """Takes answers in the client's place, as many as would wait for one that does not read."""
        self._context.metrics.traffic.bytes_out -= len(data)
        self._unheard_bytes += len(data)
        if self._unheard_bytes > bounds.WRITE_BUFFER_HIGH_BYTES:
            self.give_up("departed")

    def _ask_who_listens(self, slot: Slot) -> None:
        """Find out whether a client that sends no more has closed: then what was not admitted is dropped.

        TCP tells only who writes. The first byte of the answer to come is 0, as of any below 16 MiB.
        """
        if self.gone or self.closing or self._transport is None or self._responses.answers[0] is not slot:
            return
        if self._asked is slot:
            return
        self._asked = slot
        self._transport.write(_FIRST_BYTE)
        self._responses.write = self._write_rest
        self._context.call_later(LISTENS_MS, self._look)

    def _look(self) -> None:
        if self._transport is None or self.gone or self.closing:
            return
        if ended({descriptor_of(self._transport): True}):
            self.notice()

    def _write_rest(self, data: bytes | bytearray | memoryview) -> None:
        assert self._transport is not None
        if data[:1] != _FIRST_BYTE:
            self.close_client("bad_response")
            return
        self._responses.write = self._transport.write
        self._transport.write(memoryview(data)[1:])

    # What may be wrong; each ends it.

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call it after a delay; what it raises ends the connection: it might wait for an answer for ever."""
        return self._context.call_later(delay_ms, partial(self.call, function))

    def call(self, function: Callable[[], None]) -> None:
        """The same at once."""
        try:
            function()
        except Exception as error:  # noqa: BLE001  # one client's trouble must not be everybody's
            self.no_answer(error)

    def broken(self) -> None:
        """A mistake of ours, which must not concern anybody else: to be called where it was caught."""
        self._context.metrics.bad_frames.labels(Reason.INTERNAL.value).inc()
        if self._context.turns.may_say():
            logger.exception("the connection of %s ends: it met a mistake in the proxy", self._who())
        self.close_client("internal")

    def no_answer(self, error: Exception) -> None:
        """The broker's answers cannot go on: to be called where it was caught."""
        # First of all, as long as it is known what waits: a departed client loses it.
        self.give_up("upstream")
        if isinstance(error, WeirError):
            # An address that we cannot stand for, or bytes that we cannot read, must not be passed on.
            logger.warning("the connection of %s ends: %s", self._who(), error)
            self.close_client("bad_response")
        else:
            self.broken()

    def bad_frame(self, bad: BadFrame) -> None:
        """The client sent what the protocol does not allow."""
        self._context.metrics.bad_frames.labels(bad.reason.value).inc()
        self.close_client("bad_frame")

    def greedy(self, held_bytes: int, reason: str) -> None:
        """It holds more than there is room for: nothing of it is kept."""
        logger.warning("the connection of %s ends: it holds %d bytes", self._who(), held_bytes)
        self.drop(reason)


def _matters(slot: Slot) -> bool:
    """Whether the broker's answer is needed though nobody hears it; until it comes, later requests wait."""
    return slot.done is not None or slot.api_key != FETCH
