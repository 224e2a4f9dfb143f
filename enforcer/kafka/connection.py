"""One client connection and its broker connection (docs/protocol_notes.md 3.1; docs/decisions.md, "Proxy").

Protocol callbacks, not streams: eight times cheaper per request. Promises: answers leave in the order of the
requests; pipelining; back-pressure both ways; frames that no rule needs pass as they are.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from enforcer.core.gate import Action
from enforcer.core.pacing import Pacer
from enforcer.core.settings import ProxySettings
from enforcer.kafka.link import GatedLink, Hub, Slot
from enforcer.kafka.metered import Metered
from enforcer.kafka.mutations.admission import Admission, Passing, Permissive, Refused, Strict
from enforcer.kafka.mutations.auto_creation import forbids_creation, without_creation
from enforcer.kafka.protocol.frames import (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    BadFrame,
    RequestHeader,
    parse_header,
    produce_acks,
)
from enforcer.kafka.protocol.messages import api_versions_refusal, unsupported
from enforcer.kafka.protocol.mutations import MUTATION_KEYS, decode_request
from enforcer.kafka.protocol.sasl import SaslObserver
from enforcer.kafka.requests import ASKED_KEYS, METERED_KEYS, Requests
from enforcer.kafka.responses import SASL_KEYS, Responses
from enforcer.kafka.upstream import Owner, Upstream
from streaming.contract.errors import WeirError

logger = logging.getLogger(__name__)

MakeUpstream = Callable[[Owner, ProxySettings], Upstream]


class Connection(asyncio.Protocol):
    """A client's side of the proxy.

    Args:
        proxy: what all connections share.
        target: where to connect to, looked at when the client comes.
        make_upstream: makes the broker connection; tests put another one in.
    """

    def __init__(
        self, proxy: Hub, target: Callable[[], tuple[str, int]], make_upstream: MakeUpstream = Upstream
    ) -> None:
        self._proxy = proxy
        self._target = target
        self._make_upstream = make_upstream
        self._settings = proxy.settings
        self._coordinator = proxy.coordinator
        self._traffic = proxy.metrics.traffic
        self._observer = SaslObserver()
        limit = proxy.settings.max_frame_bytes
        self._requests = Requests(limit, self._must_read)
        self._responses = Responses(limit, self._observer, proxy.brokers.rewrite, self._traffic)
        self._pacer = Pacer(proxy.coordinator, proxy.call_later, self._pump)
        self._meter = proxy.meter
        self._metered = Metered(proxy, self, self._pacer)
        self._transport: asyncio.Transport | None = None
        self._upstream: Upstream | None = None
        self._gate: Admission | None = None
        self._gate_slot: Slot | None = None
        self._reading = True
        self._pumping = False
        self._draining = False
        self._closed = False
        self._partial_since: float | None = None
        self._closing_since: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came: connect to its broker."""
        # A cast: uvloop's transports have the methods, but not the base class.
        self._transport = transport = cast(asyncio.Transport, transport)
        if not self._proxy.admit(self):
            self.end("too_many_connections")
            return
        transport.set_write_buffer_limits(
            self._settings.write_buffer_high_bytes, self._settings.write_buffer_low_bytes
        )
        self._responses.write = transport.write
        self._upstream = self._make_upstream(self, self._settings)
        self._upstream.connect(*self._target())

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        self._traffic.bytes_in += len(data)
        if self._closing_since is not None:
            return
        requests = self._requests
        before = requests.frames
        if requests.passing and self._upstream is not None:
            self._upstream.pass_on(requests.take_body(data), requests.passing > 0)
        elif not requests.add(data):
            return
        self._pump()
        if requests.frames != before:
            self._traffic.frames_in += requests.frames - before
            self._partial_since = None
        if self._partial_since is None and self._reading and requests.incomplete:
            self._partial_since = self._proxy.now_ms()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: free everything that was kept for it."""
        self._closed = True
        self._pacer.close()
        self._metered.close()
        if self._gate is not None:
            gate, self._gate = self._gate, None
            gate.gone()
        self._responses.answers.clear()
        self._responses.due.clear()
        if self._upstream is not None:
            self._upstream.abandon()
        self._proxy.forget(self)

    def pause_writing(self) -> None:
        """The client reads too slowly: read no more from the broker for now."""
        if self._upstream is not None:
            self._upstream.pause_reading()

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self._upstream is not None:
            self._upstream.resume_reading()

    def upstream_changed(self) -> None:
        """The broker connection is there, or can take more, or can take no more."""
        self._pump()

    def upstream_failed(self, reason: str) -> None:
        """The broker connection could not be made or is lost: the client's ends too, it must not hang."""
        if self._closed:
            return
        self._proxy.metrics.upstream_failures.labels(reason).inc()
        self.end(f"upstream_{reason}")

    def upstream_received(self, data: bytes) -> None:
        """Responses from the broker, in the order in which requests were sent to it."""
        if self._closed or self._closing_since is not None:
            return
        try:
            self._responses.take(data)
        except WeirError as error:
            # An address that we cannot stand for, or bytes that we cannot read, must not be passed on.
            logger.warning("a connection ends: %s", error)
            self._responses.flush()
            self.end("bad_response")
            return
        if self._draining:
            self._end_drained()
        if not self._reading or self._requests.left_bytes:
            self._pump()

    def _flush(self) -> None:
        self._responses.flush()
        if self._draining:
            self._end_drained()

    def _pump(self) -> None:
        """Handle the requests that have come, as far as nothing holds them."""
        if self._pumping or self._closed:
            return
        self._pumping = True
        requests = self._requests
        try:
            while requests.pos < len(requests.data) and self._may_handle():
                # In a mute requests are let through one by one.
                if self._pacer.idle and self._pass_run():
                    continue
                frame = requests.next()
                if frame is None:
                    break
                self._handle(frame)
            if requests.pos < len(requests.data):
                requests.count()
        except BadFrame as bad:
            self._end_bad(bad)
        finally:
            self._pumping = False
        self._set_reading()

    def _may_handle(self) -> bool:
        return (
            self._gate is None
            and (self._pacer.idle or self._pacer.may_handle)
            and self._closing_since is None
            and not self._draining
            and len(self._responses.answers) < self._settings.inflight_max
            and self._upstream is not None
            and self._upstream.writable
        )

    def _pass_run(self) -> bool:
        """Send on the requests at the front that no rule reads; False if there are none."""
        requests, responses, slots = self._requests, self._responses, list[Slot]()
        requests.asked = METERED_KEYS if self._meter.active else ASKED_KEYS
        run = requests.run(slots, self._settings.inflight_max - len(responses.answers))
        if not run or self._upstream is None or not self._upstream.pass_on(run, requests.passing > 0):
            return False
        responses.answers.extend(slots)
        responses.due.extend(slots)
        return True

    def _set_reading(self) -> None:
        requests = self._requests
        wanted = (
            (self._pacer.idle or self._pacer.may_read)
            and requests.waiting < self._settings.held_frames_max
            and requests.waiting_bytes < self._settings.held_bytes_max
            # The rest of a request that is passing must come, or it would never be answered.
            and (requests.passing > 0 or len(self._responses.answers) < self._settings.inflight_max)
            and (self._upstream is None or not self._upstream.full)
        )
        if wanted == self._reading or self._closing_since is not None or self._transport is None:
            return
        self._reading = wanted
        # While we do not read, an incomplete frame is not the client's fault.
        self._partial_since = self._proxy.now_ms() if wanted and requests.incomplete else None
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _handle(self, frame: bytes) -> None:
        probing = self._pacer.pass_one()
        header = parse_header(frame)
        if unsupported(header):
            self.end("unsupported_version")
        elif header.api_key in MUTATION_KEYS:
            self._handle_mutation(frame, header, probing)
        elif header.api_key == METADATA:
            self._handle_metadata(frame, header)
        elif header.api_key in METERED_KEYS and self._meter.active:
            self._metered.forward(frame, header, self._observer.principal)
        else:
            self._handle_watched(frame, header)

    def _pass(self, frame: bytes, header: RequestHeader, done: Callable[[bytes], None] | None = None) -> Slot:
        """Send a request to the broker and keep its place among the answers."""
        slot = Slot(*header[:3], done)
        self._responses.answers.append(slot)
        self.send(slot, frame)
        return slot

    def send(self, slot: Slot | None, frame: bytes) -> bool:
        """Send a request to the broker (link.Line); no slot: it gets no response."""
        if self._upstream is None or self._closing_since is not None or not self._upstream.send(frame):
            return False
        if slot is not None:
            self._responses.due.append(slot)
        return True

    def reserve(self, slot: Slot) -> None:
        """Take the next place among the answers to the client (link.Line)."""
        self._responses.answers.append(slot)

    def finish(self, slot: Slot, mute_ms: float) -> None:
        """A gated request is answered (link.Line): later ones may go on, when the mute is over."""
        if self._closing_since is not None:
            return
        if slot is self._gate_slot:
            self._gate = self._gate_slot = None
        self._flush()
        self._pacer.mute(mute_ms)
        self._pump()

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a delay (link.Line)."""
        return self._proxy.call_later(delay_ms, function)

    def _reply(self, header: RequestHeader, response: bytes) -> None:
        """Answer without the broker, in turn."""
        slot = Slot(*header[:3])
        slot.response = response
        self._responses.answers.append(slot)
        self._flush()

    def _handle_watched(self, frame: bytes, header: RequestHeader) -> None:
        if header.api_key == PRODUCE:
            # Without acks the broker sends no response; waiting for one would shift all that follow.
            if produce_acks(frame, header) == 0:
                self.send(None, frame)
                return
        elif header.api_key == API_VERSIONS:
            refusal = api_versions_refusal(header)
            if refusal is not None:
                self._reply(header, refusal)
                return
        elif header.api_key in SASL_KEYS:
            self._observer.on_request(frame, header)
        self._pass(frame, header)

    def _must_read(self, key: int, client_id: bytes) -> bool:
        """Whether a rule needs the body of a request of this client (requests.MustRead)."""
        user, name = self._observer.principal, client_id.decode("utf-8", "replace")
        return (self._meter.active and self._proxy.frame_meter.reads(key, user, name)) or (
            key == METADATA and forbids_creation(self._coordinator, user, name)
        )

    def _handle_metadata(self, frame: bytes, header: RequestHeader) -> None:
        if forbids_creation(self._coordinator, self._observer.principal, header.client_id or ""):
            frame, turn_back = without_creation(frame, header, self._proxy.brokers.rewrite)
            if turn_back is not None:
                self._pass_as_newer(frame, header, turn_back)
                return
        if self._meter.active:
            self._metered.forward(frame, header, self._observer.principal)
        else:
            self._pass(frame, header)

    def _pass_as_newer(
        self, frame: bytes, header: RequestHeader, turn_back: Callable[[bytes], bytes]
    ) -> None:
        """Send a request in another version than its client's, and turn its answer back."""

        def answer(response: bytes) -> None:
            slot.response = turn_back(response)

        slot = self._pass(frame, header, answer)

    def _handle_mutation(self, frame: bytes, header: RequestHeader, probing: bool) -> None:
        request = decode_request(frame, header)
        user, client_id = self._observer.principal, header.client_id or ""
        quota = self._coordinator.quota(user, client_id)
        verdict = self._coordinator.judge(quota, strict=request.strict, probing=probing)
        if quota is not None and verdict.action is Action.HOLD:
            self._hold(frame, quota.subject, verdict.wait_ms)
            return
        link = GatedLink(self, header)
        way: type[Admission] = Permissive
        if quota is None or verdict.action is Action.FORWARD:
            way = Passing
        elif request.strict:
            way = Refused if verdict.action is Action.REFUSE else Strict
        admission = way(
            link, self._coordinator, self._proxy.recent_topics, request,
            user=user, client_id=client_id, quota=quota, wait_ms=verdict.wait_ms,
        )  # fmt: skip
        if way is not Passing:
            self._gate, self._gate_slot = admission, link.slot
        admission.start()

    def _hold(self, frame: bytes, subject: str, wait_ms: float) -> None:
        """Keep a request at the head of the connection until its subject may go on."""
        self._requests.put_back(frame)
        self._pacer.hold(subject, wait_ms)

    @property
    def held(self) -> int:
        """Requests that have come and wait to be handled."""
        return self._requests.waiting

    def check(self, now_ms: float) -> None:
        """Once a second: end what takes too long."""
        if self._closing_since is not None:
            if now_ms - self._closing_since > self._settings.stop_timeout_ms:
                self.abort()
        elif (
            self._partial_since is not None
            and now_ms - self._partial_since > self._settings.partial_frame_timeout_ms
        ):
            self.end("slow_sender")

    def drain(self) -> None:
        """The proxy stops: answer what is under way, take nothing new, then close."""
        self._draining = True
        self._end_drained()

    def _end_drained(self) -> None:
        if not self._responses.answers:
            self.end("stop")

    def end(self, reason: str) -> None:
        """Close the connection after what is written already."""
        if self._closed or self._closing_since is not None or self._transport is None:
            return
        self._proxy.metrics.closed.labels(reason).inc()
        self._closing_since = self._proxy.now_ms()
        self._transport.close()

    def abort(self) -> None:
        """Close the connection without waiting for the client to read."""
        if self._transport is not None and not self._closed:
            self._transport.abort()

    def _end_bad(self, bad: BadFrame) -> None:
        self._proxy.metrics.bad_frames.labels(bad.reason.value).inc()
        self.end("bad_frame")
