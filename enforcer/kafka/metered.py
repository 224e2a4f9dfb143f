"""Produce and Fetch of one connection while traffic is metered (docs/resource_groups.md).

Every request is forwarded, and every response reaches the client: a group in debt costs time, nothing else.
"""

import logging
from collections.abc import Callable, Generator
from functools import partial

from enforcer.core.pacing import Pacer
from enforcer.kafka.link import Hub, Line, NameQuestions, Slot
from enforcer.kafka.traffic.connection_meter import Admitted, ConnectionMeter
from enforcer.wire.kafka.frames import (
    FETCH,
    PRODUCE,
    RequestHeader,
    produce_acks,
)
from enforcer.wire.kafka.outcomes import with_acks
from enforcer.wire.kafka.throttle import patch_throttle
from enforcer.wire.kafka.traffic import Frame
from streaming.contract.errors import WeirError
from streaming.contract.events import ANONYMOUS

logger = logging.getLogger(__name__)

Cut = Callable[[bytes], bytes]


class Metered:
    """The metering side of a connection.

    Args:
        hub: what all connections share.
        line: the connection.
        pacer: holds it back.
    """

    def __init__(self, hub: Hub, line: Line, pacer: Pacer) -> None:
        self._rewrite = hub.rewrite
        self._line = line
        self._pacer = pacer
        self._inflight_max = hub.settings.inflight_max
        self._split_ms = hub.settings.mute_split_ms
        self._questions = NameQuestions(line)
        self._connection_meter = ConnectionMeter(hub.frame_meter, hub.metrics, pacer, self._questions.ask)
        self._silent = 0

    def forward(self, frame: bytes, header: RequestHeader, user: str, cut: Cut | None = None) -> bool:
        """Forward a Produce or Fetch request if it is its turn.

        Args:
            frame: the request.
            header: its header.
            user: whose it is.
            cut: what is done to the response of a Fetch before it is charged.

        Returns:
            False: it is to stay at the head of its connection, which is paused.

        Raises:
            BadFrame: it cannot be read.
        """
        if user != ANONYMOUS:
            self._connection_meter.proven = True
        self._questions.begin(frame, header)
        try:
            if header.api_key == PRODUCE:
                return self._produce(frame, header, user)
            return self._fetch(frame, header, user, cut)
        finally:
            self._questions.end()

    def described(self, response: bytes, version: int) -> None:
        """Learn topic ids from a Metadata response.

        Raises:
            BadFrame: it cannot be read.
        """
        self._connection_meter.described(response, version)

    def step_aside(self) -> None:
        """Its next request cannot go on for now, whoever owes (LineUp.step_aside)."""
        self._connection_meter.step_aside()

    def close(self) -> None:
        """The connection is gone."""
        self._connection_meter.close()

    def _produce(self, frame: bytes, header: RequestHeader, user: str) -> bool:
        silent = produce_acks(frame, header) == 0
        if silent and self._silent >= self._inflight_max:
            self._pacer.pause(self._split_ms)
            return False
        admitted = self._connection_meter.produce(frame, header, user)
        if admitted is None:
            return False
        if silent:
            self._send_silent(frame, header, admitted)
            return True
        slot = Slot(*header[:3])
        if admitted.parts or admitted.told_ms:
            slot.done = self._produced(slot, admitted)
        return self._pass(slot, frame)

    def _send_silent(self, frame: bytes, header: RequestHeader, admitted: Admitted) -> None:
        """Without acks nobody would say what was refused, so the leader is asked; the client is not told."""
        if not admitted.parts:
            self._line.send(None, frame)
            return
        version = header.api_version

        def done(response: bytes) -> None:
            self._silent -= 1
            if self._connection_meter.answered(admitted, response, version):
                # As a broker does, so that the client looks for the right one.
                self._line.end("refused_without_acks")
            elif self._silent == self._inflight_max - 1:
                self._pacer.wake()

        if self._line.send(Slot(*header[:3], done), with_acks(frame, header)):
            self._silent += 1

    def _produced(self, slot: Slot, admitted: Admitted) -> Callable[[bytes], None]:
        def done(response: bytes) -> None:
            if admitted.parts:
                self._connection_meter.answered(admitted, response, slot.api_version)
            response = self._rewritten(slot, response)
            slot.response = patch_throttle(PRODUCE, slot.api_version, response, admitted.told_ms)

        return done

    def _fetch(self, frame: bytes, header: RequestHeader, user: str, cut: Cut | None) -> bool:
        admitted = self._connection_meter.fetch(frame, header, user)
        if admitted is None:
            return False
        frame, limit = admitted
        slot = Slot(*header[:3])
        slot.done = self._fetched(slot, header, user, cut, limit)
        return self._pass(slot, frame)

    def _fetched(
        self, slot: Slot, header: RequestHeader, user: str, cut: Cut | None, limit: int
    ) -> Callable[[bytes], None]:
        def done(response: bytes) -> None:
            if cut is not None:
                response = cut(response)
            self._read(slot, self._connection_meter.fetched(response, header, user, limit))

        return done

    def _read(self, slot: Slot, steps: Generator[None, None, tuple[Frame, int]]) -> bool:
        """Read a Fetch response, the first step of it at once; whether that was all."""
        try:
            next(steps)
        except StopIteration as read:
            brought, told_ms = read.value
            slot.response = patch_throttle(FETCH, slot.api_version, self._rewritten(slot, brought), told_ms)
            return True
        self._line.call_later(0.0, partial(self._read_on, slot, steps))
        return False

    def _read_on(self, slot: Slot, steps: Generator[None, None, tuple[Frame, int]]) -> None:
        try:
            whole = self._read(slot, steps)
        except WeirError as error:
            logger.warning("a response cannot be read: %s", error)
            self._line.end("bad_response")
            return
        if whole:
            self._line.finish(slot, 0.0)

    def _pass(self, slot: Slot, frame: bytes) -> bool:
        self._line.reserve(slot)
        self._line.send(slot, frame)
        return True

    def _rewritten(self, slot: Slot, response: Frame) -> bytes:
        return self._rewrite(slot.api_key, slot.api_version, bytes(response))
