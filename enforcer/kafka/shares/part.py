"""Produce, Fetch and ShareFetch of one connection while traffic is metered (docs/resource_groups.md).

Every request is forwarded, and every response reaches the client: a group in debt costs time, nothing else.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import Final

from enforcer.core import bounds
from enforcer.core.metrics import Metrics
from enforcer.kafka.names import NameResolver
from enforcer.kafka.part import Behind, Charged, Limit, Link, Part, Request, Slot
from enforcer.kafka.share_sessions import PART_BYTES
from enforcer.kafka.shares.connection_meter import AdmittedProduce, ConnectionMeter
from enforcer.kafka.shares.frame_meter import FrameMeter
from enforcer.kafka.shares.share_meter import ShareMeter
from enforcer.wire.kafka.codec import patch_throttle
from enforcer.wire.kafka.frames import FETCH, METADATA, PRODUCE, SHARE_FETCH, Frame
from enforcer.wire.kafka.outcomes import accepted_head, with_acks
from enforcer.wire.kafka.traffic import Part as ProducedPart
from enforcer.wire.kafka.traffic import produce_acks
from streaming.contract.events import ANONYMOUS

_KEYS: Final = frozenset({PRODUCE, FETCH, SHARE_FETCH, METADATA})
_UNREAD: Final = None, b""


class SharesLimit(Limit):
    """Resource groups and byte rates.

    Args:
        broker: tells what the one at an address is called.
    """

    keys = _KEYS

    def __init__(
        self, frames: FrameMeter, metrics: Metrics, broker: Callable[[tuple[str, int]], str]
    ) -> None:
        super().__init__(frames.meter)
        self.frames, self.metrics, self.broker = frames, metrics, broker

    def reads(self, key: int, user: str, client_id: str) -> bool:
        return self.frames.reads(key, user, client_id)

    def part(self, link: Link) -> Part:
        return SharesPart(link, self)


class SharesPart(Part):
    """The metering side of a connection."""

    def __init__(self, link: Link, limit: SharesLimit) -> None:
        frames = limit.frames
        self._link, self._broker = link, limit.broker
        self._naming = NameResolver(frames.names, link, frames.meter.clock.steady_ms)
        self._connection_meter = ConnectionMeter(frames, limit.metrics, link.pacer, self._naming)
        self._make_shared = partial(ShareMeter, frames, limit.metrics, link.pacer, self._naming)
        self._shared: ShareMeter | None = None
        self._silent = 0

    @property
    def held_bytes(self) -> int:
        """What is remembered: anybody may name partitions that nobody has made."""
        shared = 0 if self._shared is None else self._shared.partitions
        return PART_BYTES * (shared + self._connection_meter.partitions)

    def take(self, request: Request) -> bool:
        key = request.header.api_key
        if key == METADATA:
            request.readers.append(self._described)
            return True
        take = {PRODUCE: self._produce, SHARE_FETCH: self._share}.get(key, self._fetch)
        with self._naming.about(request):
            return take(request)

    def take_plain(self, client_id: bytes, version: int, size: int, brings: ProducedPart) -> Charged | None:
        user = self._link.user
        if user != ANONYMOUS:
            self._naming.proven = True
        admitted = self._connection_meter.plain(brings, version, size, user, client_id)
        if admitted is None:
            return None
        if not (admitted.parts or admitted.told_ms):
            return _UNREAD
        unless = b"" if admitted.told_ms else accepted_head(version, brings.topic, brings.number)
        return partial(self._produced, admitted), unless

    def look_behind(self, requests: Behind, *, over: bool) -> None:
        if self._shared is not None:
            self._shared.look_behind(requests)

    def step_aside(self) -> None:
        self._connection_meter.line_up.step_aside()
        if self._shared is not None:
            self._shared.line_up.step_aside()

    def close(self) -> None:
        self._connection_meter.line_up.close()
        if self._shared is not None:
            self._shared.line_up.close()

    def _described(self, slot: Slot, response: bytes) -> bytes:
        # An older version than 4 may have been sent as 4; topics have ids from 10 on.
        self._connection_meter.described(response, slot.api_version)
        return response

    def _produce(self, request: Request) -> bool:
        frame, header = request.frame, request.header
        silent = produce_acks(frame, header) == 0
        if silent and self._silent >= bounds.INFLIGHT_MAX:
            self._link.pacer.pause(bounds.MUTE_SPLIT_MS)
            self._link.hold(request)
            return False
        admitted = self._connection_meter.produce(frame, header, request.user)
        if admitted is None:
            self._link.hold(request)
            return False
        if silent and admitted.parts:
            self._send_silent(request, admitted)
            return False
        if admitted.parts or admitted.told_ms:
            request.kept += PART_BYTES * (len(admitted.parts) + len(admitted.bill.owed))
            request.readers.append(partial(self._produced, admitted))
        return True

    def _send_silent(self, request: Request, admitted: AdmittedProduce) -> None:
        """Without acks nobody would say what was refused, so the leader is asked; the client is not told."""
        version = request.header.api_version

        def done(response: bytes) -> None:
            self._silent -= 1
            if self._connection_meter.answered(admitted, response, version):
                # As a broker does, so that the client looks for the right one.
                self._link.end("refused_without_acks")
            elif self._silent == bounds.INFLIGHT_MAX - 1:
                self._link.pacer.wake()

        if self._link.send(Slot(*request.header[:3], done), with_acks(request.frame, request.header)):
            self._silent += 1

    def _produced(self, admitted: AdmittedProduce, slot: Slot, response: bytes) -> bytes:
        if admitted.parts:
            self._connection_meter.answered(admitted, response, slot.api_version)
        return patch_throttle(PRODUCE, slot.api_version, response, admitted.told_ms)

    def _fetch(self, request: Request) -> bool:
        header, user = request.header, request.user
        admitted = self._connection_meter.fetch(request.frame, header, user)
        if admitted is None:
            self._link.hold(request)
            return False
        request.frame, limit = admitted
        asking, earlier = self._connection_meter.asking, request.readers

        def fetched(slot: Slot, response: bytes) -> bytes | None:
            def cut(left: bytes) -> bytes:
                for read in earlier:
                    left = read(slot, left) or b""
                return left

            meter = self._connection_meter
            return self._read(slot, meter.fetched(response, header, user, limit, asking, cut))

        # Earlier parts count what comes, and of what is emptied here nothing does.
        request.readers = [fetched]
        return True

    def _share(self, request: Request) -> bool:
        header, user = request.header, request.user
        meter = self._shared = self._shared or self._make_shared()
        frame = meter.ask(request.frame, header, user, self._broker(self._link.address))
        if frame is None:
            self._link.hold(request)
            return False
        request.frame, asking = frame, meter.asking

        def got(_slot: Slot, response: bytes) -> bytes:
            meter.got(asking, response, header, user)
            return response

        request.readers.append(got)
        return True

    def _read(self, slot: Slot, steps: Generator[None, None, tuple[Frame, int]]) -> bytes | None:
        """Read a Fetch response, the first step of it at once; None: the rest is read later."""
        try:
            next(steps)
        except StopIteration as read:
            brought, told_ms = read.value
            return patch_throttle(FETCH, slot.api_version, bytes(brought), told_ms)
        self._link.call_later(0.0, partial(self._read_on, slot, steps))
        return None

    def _read_on(self, slot: Slot, steps: Generator[None, None, tuple[Frame, int]]) -> None:
        response = self._read(slot, steps)
        if response is not None:
            self._link.respond(slot, response)
            self._link.finish(0.0)
