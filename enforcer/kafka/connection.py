"""One client connection and its broker connection (docs/protocol_notes.md 3.1; docs/decisions.md, "Proxy").

Protocol callbacks, not streams: eight times cheaper per request. Promises: answers leave in the order of the
requests; pipelining; back-pressure both ways; frames that no rule needs pass as they are.
"""

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import cast

from enforcer.core import bounds
from enforcer.host.budget import LARGE_BYTES, Seat
from enforcer.host.dial import MakeUpstream, Upstream
from enforcer.host.secured import kept_by
from enforcer.host.sockets import Address, is_secure
from enforcer.host.turns import Inbox
from enforcer.kafka.chain import Chain
from enforcer.kafka.connection_end import ConnectionEnd
from enforcer.kafka.context import Context
from enforcer.kafka.pacing import Pacer
from enforcer.kafka.part import Request, Slot
from enforcer.kafka.pipeline.lane import Lane
from enforcer.kafka.pipeline.requests import Requests
from enforcer.kafka.pipeline.responses import Responses
from enforcer.kafka.pipeline.runs import Runs
from enforcer.kafka.slots.counted_answers import DELAYED_KEYS
from enforcer.kafka.slots.part import SlotsPart
from enforcer.laws.concurrency.limiter import Limiter
from enforcer.wire.kafka.frames import FETCH, LENGTH_BYTES, BadFrame
from streaming.contract.events import ANONYMOUS

# A large request that others wait for, for its place or its slot, has this part of the time.
_HURRY = 12


class Connection(asyncio.Protocol):
    """A client's side of the proxy.

    Args:
        proxy: what all connections share.
        target: where to connect to, looked at when the client comes.
        make_upstream: makes the broker connection.
    """

    def __init__(
        self, proxy: Context, target: Callable[[], Address], make_upstream: MakeUpstream = Upstream
    ) -> None:
        self._proxy, self._target, self._make_upstream = proxy, target, make_upstream
        self._settings, self._traffic = proxy.settings, proxy.metrics.traffic
        # Of part.Link and server.Client.
        self.peer: object = object()
        self.user, self.server_name, self.address, self.secure = ANONYMOUS, "", ("", 0), False
        self.pacer = Pacer(proxy.coordinator, proxy.call_later, self._pump)
        limit = proxy.settings.max_frame_bytes
        self._responses = Responses(limit, proxy.rewrite, self._traffic, proxy.repeats)
        self.slots = SlotsPart(self, self._responses, proxy.settings, lambda: self._requests.coming)
        self._chain = Chain(proxy.concerns, self)
        self._requests: Requests = Requests(limit, self._chain.must_read, proxy.protected, proxy.in_force)
        self._runs = Runs(self._chain, self._requests, self.slots, proxy.protected, proxy.turns)
        self._lane = Lane(
            self._requests.known, self._chain.laws, self._responses, proxy.repeats, self._traffic, limit
        )
        self.ending = ConnectionEnd(
            proxy, self.pacer, self._chain, self._requests, self._responses,
            who=lambda: f"{self.user!r} at {self.peer}", pump=self._pump, over=lambda: proxy.forget(self),
        )  # fmt: skip
        self.call_later, self.end = self.ending.call_later, self.ending.close_client
        self.end_session = self.ending.end_session
        self.reserve, self.forgo = self._responses.answers.append, self._responses.answers.remove
        self.hold, self.respond = self._requests.put_back, self._responses.respond
        self.notice, self.drain, self.drop = self.ending.notice, self.ending.drain, self.ending.drop
        self.expect_token = self._requests.expect_token
        self._transport: asyncio.Transport | None = None
        self._upstream: Upstream | None = None
        self._seat = Seat(proxy.budget, self._set_reading)
        self._reading, self._full, self._pumping = True, False, False
        self._incoming = Inbox(proxy.turns, self._take_answers, self._pause_broker, self._resume_broker)
        self._partial_since: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came: connect to its broker."""
        self._transport = transport = cast(asyncio.Transport, transport)
        visitor = self._proxy.visitor(self, transport)
        self.peer, self.user, self.server_name = visitor.peer, visitor.user, visitor.name
        self.address = self._proxy.named(visitor.name) or self._target()
        if refused := self._proxy.admit(self, visitor.refused):
            self.ending.open(transport, None)
            self.end(refused)
            return
        transport.set_write_buffer_limits(bounds.WRITE_BUFFER_HIGH_BYTES, bounds.WRITE_BUFFER_LOW_BYTES)
        self._upstream = self._make_upstream(self)
        self._responses.write, self.secure = transport.write, is_secure(transport)
        self._responses.move = partial(self._proxy.mover.relay, self._upstream, transport)
        self.ending.open(transport, self._upstream)
        self._upstream.dial(self.address)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._lane.take(data):
            return
        self._lane.close()
        self._traffic.bytes_in += len(data)
        if self.ending.closing:
            return
        requests, before = self._requests, self._requests.frames
        if requests.passing and self._upstream is not None:
            self._upstream.pass_on(requests.take_body(data), requests.passing > 0)
            if self.slots.due is not None and not requests.passing:
                self.slots.due.whole()
        elif not requests.add(data):
            return
        self._pump()
        if requests.frames != before:
            self._traffic.frames_in += requests.frames - before
            self._partial_since = None
        if self._partial_since is None and self._reading and requests.incomplete:
            self._partial_since = self._proxy.now_ms()
        self._open_lane()

    def _open_lane(self) -> None:
        """Let what is as the last request go the short way: it passed, so nothing held it back."""
        requests, upstream = self._requests, self._upstream
        if (
            requests.known.key >= 0
            and not (requests.data or requests.passing or self._responses.data)
            and self._reading
            and not self.ending.begun
            and self.pacer.idle
            and self.slots.due is None
            and upstream is not None
            and upstream.transport is not None
        ):
            self._lane.open(upstream.transport.write)

    def eof_received(self) -> bool:
        """The client sends no more; without TLS it may still read: what it has sent is answered."""
        self._partial_since = None
        self.ending.end_input()
        return self._transport is None or not is_secure(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone; what it has sent is carried out all the same."""
        self._full = False
        if exc is not None:
            for data in self.ending.rest():
                self.data_received(data)
        self._partial_since = None
        self._seat.leave()
        self.ending.lose_client()

    def pause_writing(self) -> None:
        """The client reads too slowly: nothing more is read from the broker for now, nor of the client."""
        self._full = True
        self._lane.close()
        self.slots.forget()
        self._pause_broker()
        self._set_reading()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._full = False
        if not self._incoming:
            self._resume_broker()
        self._pump()

    def upstream_changed(self) -> None:
        """The broker connection is there, or can take more, or can take no more."""
        self._pump()

    def upstream_failed(self, reason: str) -> None:
        """The broker connection could not be made or is lost: the client's ends too, it must not hang."""
        self.slots.close()
        self._incoming.take_all()
        self.ending.lose_broker(reason)

    def upstream_closed(self) -> None:
        """The broker connection is closed, since it was needed no more."""
        self._incoming.drop()
        self.ending.forget()

    def upstream_received(self, data: bytes) -> None:
        """Responses from the broker, in the order in which requests were sent to it."""
        if self._lane.give(data):
            return
        self._lane.close()
        if self.ending.done:
            self._incoming.drop()
        elif self._incoming or ((due := self._responses.due) and due[0].done and due[0].api_key == FETCH):
            self._incoming.add(data)
        else:
            self._take_answers(data)

    def _resume_broker(self) -> None:
        if self._upstream is not None and not self._full:
            self._upstream.resume_reading()

    def _pause_broker(self) -> None:
        if self._upstream is not None:
            self._upstream.pause_reading()

    def _take_answers(self, data: bytes) -> None:
        if self.ending.done:
            return
        try:
            self._responses.take(data)
        except Exception as error:  # noqa: BLE001  # one client's trouble must not be everybody's
            self.ending.no_answer(error)
            return
        if not self._reading or self._requests.data or self.ending.begun:
            self._pump()

    def _pump(self) -> None:
        """Handle the requests that have come, as far as nothing holds them."""
        if self._pumping:
            return
        self._lane.close()
        ending = self.ending
        if not (ending.closing or ending.done):
            self._handle_all()
        self._set_reading()
        could_go = self.pacer.released or self.slots.due is not None
        if could_go and not self._proxy.turns.waits(self._pump):
            self._make_way()
        if ending.begun:
            ending.settle()

    def _make_way(self) -> None:
        """What could go on has, or cannot for another reason: nobody shall wait for it."""
        pacer = self.pacer
        waits = self.slots.waits(pacer.held)
        if pacer.released and (waits or not pacer.held):
            pacer.released = False
            self._chain.step_aside(self.slots)

    def _handle_all(self) -> None:
        self._pumping = True
        requests, turns, counting = self._requests, self._proxy.turns, self.slots
        try:
            while requests.pos < len(requests.data) and self._may_handle():
                if counting.due is not None and not counting.goes(requests, counting.due.limiter):
                    break
                # Behind a mute its client may be gone, or its session over: not all is carried out then.
                if not self.pacer.idle and (self.ending.gone or self.pacer.session_over):
                    requests.gather()
                elif self._pass_run():
                    continue
                begun_s = turns.begin()
                if begun_s is None:
                    turns.wait(self._pump)
                    break
                frame = requests.next()
                if frame is None:
                    break
                try:
                    self._chain.handle(frame)
                finally:
                    turns.end(begun_s)
            if requests.pos < len(requests.data):
                requests.count()
                self._chain.look_behind(requests, over=self.ending.input_over)
            else:
                # An idle connection keeps nothing of the last request.
                requests.data, requests.pos = b"", 0
        except BadFrame as bad:
            self.ending.bad_frame(bad)
        except Exception:  # noqa: BLE001  # one client's trouble must not be everybody's
            self.ending.broken()
        finally:
            self._pumping = False

    def _may_handle(self) -> bool:
        return (
            self._chain.free
            and not self._full
            and self._responses.kept_bytes < bounds.WRITE_BUFFER_HIGH_BYTES
            and (self.pacer.idle or self.pacer.may_handle)
            and self.ending.takes
            and len(self._responses.answers) < bounds.INFLIGHT_MAX
            and self._upstream is not None
            and self._upstream.writable
        )

    def _pass_run(self) -> bool:
        """Send on those in front that need not be cut out; False: none. If lost, they keep their place."""
        slots: list[Slot] = []
        responses, idle = self._responses, self.pacer.idle
        # In a mute requests are let through one by one.
        run = self._runs.take(slots, bounds.INFLIGHT_MAX - len(responses.answers) if idle else 1)
        if not run or self._upstream is None:
            return False
        if not idle:
            self.pacer.pass_one()
        self._upstream.pass_on(run, self._requests.passing > 0)
        responses.answers.extend(slots)
        responses.due.extend(slots)
        return True

    def _set_reading(self) -> None:
        requests, seat, ending = self._requests, self._seat, self.ending
        if ending.input_over or ending.closing or ending.done or self._transport is None:
            seat.leave()
            return
        # While nobody has looked how long a request may be that is not whole, it only waits, too.
        gathered = requests.need > 0 and not requests.waiting and self._chain.free
        sent = self._upstream is None or not self._upstream.full
        may = (
            (self.pacer.idle or self.pacer.may_read or self.ending.left or requests.passing > 0)
            and (sent and requests.waiting < bounds.HELD_FRAMES_MAX)
            and (requests.left_bytes < bounds.HELD_BYTES_MAX or gathered)
            # The rest of a request that is passing must come, or it would never be answered.
            and (
                requests.passing > 0
                or (not self._full and len(self._responses.answers) < bounds.INFLIGHT_MAX)
            )
        )
        if not may and (seat.waiting or (sent and max(requests.need, requests.left_bytes) <= LARGE_BYTES)):
            # Others can use its place now.
            seat.leave()
        small = requests.need <= LARGE_BYTES and not (seat.held or seat.waiting)
        wanted = may and (small or seat.fits(requests.need))
        if wanted == self._reading:
            return
        self._reading = wanted
        since = None if wanted else self._partial_since
        # While we do not read, an incomplete frame is not the client's fault, unless it waits for a place.
        late = (wanted or seat.waiting) and requests.incomplete
        self._partial_since = (since or self._proxy.now_ms()) if late else None
        (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    def send(self, slot: Slot | None, frame: bytes) -> bool:
        """Send a request to the broker (part.Link); no slot: it gets no response."""
        # What is under way was sent before it, also where a timer asks.
        self._lane.close()
        upstream, head = self._upstream, len(frame).to_bytes(LENGTH_BYTES, "big")
        if upstream is None or self.ending.closing:
            return False
        # Behind a request that is cut off nothing leaves.
        if (upstream.mid and self.ending.input_over) or not upstream.send(frame, head):
            return False
        if slot is not None:
            if slot.api_key == FETCH and self.slots.due is not None:
                self.slots.due.look_over(head + frame)
            self._responses.due.append(slot)
        return True

    def answer(self, request: Request, response: bytes) -> None:
        """Answer without the broker, in turn (part.Link)."""
        self._responses.answers.append(request.slot(response))
        self.ending.call(self._responses.flush)

    def count_by(self, limiter: Limiter | None) -> None:
        """From now on its requests count there (limits.ClientConnection)."""
        self._lane.close()
        self.slots.count_by(limiter)

    def finish(self, mute_ms: float) -> None:
        """A request that a part kept is answered (part.Link): later ones may go on, when the mute is over."""
        self.ending.call(self._responses.flush)
        if mute_ms > 0 and not self.ending.done:
            self.pacer.mute(mute_ms)
        self._pump()

    @property
    def held(self) -> int:
        """Requests that have come and wait to be handled."""
        return self._requests.waiting

    @property
    def unread(self) -> dict[int, bool]:
        """The client's socket, if the loop would not tell of its end now (server.Client)."""
        return self.ending.unread(self._reading)

    def check(self, now_ms: float) -> None:
        """Once a second: end what takes too long."""
        self.ending.check(now_ms)
        self.slots.check()
        # Others may wait for its place: as late as who sends nothing is who takes no answers meanwhile, and
        # whose broker reads no further since it was asked to wait before, as by a Fetch.
        if not self._reading and not self._seat.waiting:
            due, full = self._responses.due, self._upstream is not None and self._upstream.full
            waits = self._seat.wanted and full and due and due[0].api_key in DELAYED_KEYS
            late = waits or (self._seat.held and self._full)
            self._partial_since = (self._partial_since or now_ms) if late else None
        limit_ms = bounds.PARTIAL_FRAME_TIMEOUT_MS / (_HURRY if self._seat.wanted else 1)
        if self._partial_since is not None and now_ms - self._partial_since > limit_ms:
            self.end("slow_sender")

    @property
    def held_bytes(self) -> int:
        """All that has come on both sides and has not left (budget.Holder)."""
        held = sys.getsizeof(self._requests.data) + sys.getsizeof(self._responses.data)
        held += self._responses.kept_bytes + len(self._incoming) + self._chain.held_bytes
        held += 0 if self._transport is None else kept_by(self._transport)
        return held + (0 if self._upstream is None else self._upstream.held_bytes)

    def cut(self, reason: str) -> None:
        """End at once and keep nothing (budget.Holder)."""
        self.ending.greedy(self.held_bytes, reason)
