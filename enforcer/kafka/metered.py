"""Produce, Fetch and Metadata of one connection while traffic is metered (docs/resource_groups.md).

Every request is forwarded, and every response reaches the client: a group in debt costs time, nothing else.
"""

from collections.abc import Callable, Mapping

from enforcer.core.pacing import Pacer
from enforcer.kafka.link import Hub, Line, Slot
from enforcer.kafka.protocol.frames import FETCH, PRODUCE, RequestHeader, produce_acks
from enforcer.kafka.protocol.messages import decode_topics, topics_request
from enforcer.kafka.protocol.throttle import patch_throttle
from enforcer.kafka.traffic.connection_meter import ConnectionMeter


class Metered:
    """The metering side of a connection.

    Args:
        hub: what all connections share.
        line: the connection.
        pacer: holds it back.
    """

    def __init__(self, hub: Hub, line: Line, pacer: Pacer) -> None:
        self._rewrite = hub.brokers.rewrite
        self._line = line
        self._connection_meter = ConnectionMeter(hub.frame_meter, hub.metrics, pacer, self._look_up)
        self._header: RequestHeader | None = None

    def forward(self, frame: bytes, header: RequestHeader, user: str) -> None:
        """Charge and forward a request; its response says what the client must wait.

        Raises:
            BadFrame: it cannot be read.
        """
        self._header = header
        slot = Slot(*header[:3])
        if header.api_key == PRODUCE:
            silent = produce_acks(frame, header) == 0
            told_ms = self._connection_meter.produce(frame, header, user, lambda ms: self._tell(slot, ms))
            if told_ms:
                self._tell(slot, told_ms)
            if silent:
                # The broker sends no response; waiting for one would shift all that follow.
                self._line.send(None, frame)
                return
        elif header.api_key == FETCH:
            frame = self._connection_meter.fetch(frame, header, user)
            slot.done = self._fetched(slot, header, user)
        else:
            slot.done = self._described(slot)
        self._line.reserve(slot)
        self._line.send(slot, frame)

    def close(self) -> None:
        """The connection is gone."""
        self._connection_meter.close()

    def _tell(self, slot: Slot, told_ms: int) -> None:
        def done(response: bytes) -> None:
            response = self._rewritten(slot, response)
            slot.response = patch_throttle(PRODUCE, slot.api_version, response, told_ms)

        slot.done = done

    def _fetched(self, slot: Slot, header: RequestHeader, user: str) -> Callable[[bytes], None]:
        def done(response: bytes) -> None:
            # In the session of the broker nothing is missing, and no record is held back: its time is paid
            # for afterwards, by the connection's next requests.
            told_ms = self._connection_meter.fetched(response, header, user)
            response = self._rewritten(slot, response)
            slot.response = patch_throttle(FETCH, slot.api_version, response, told_ms)

        return done

    def _described(self, slot: Slot) -> Callable[[bytes], None]:
        def done(response: bytes) -> None:
            self._connection_meter.described(response, slot.api_version)
            slot.response = self._rewritten(slot, response)

        return done

    def _rewritten(self, slot: Slot, response: bytes) -> bytes:
        return self._rewrite(slot.api_key, slot.api_version, response)

    def _look_up(self, topics: list[bytes], done: Callable[[Mapping[bytes, str]], None]) -> None:
        """Ask on the client's own connection, so no other login is needed; the client does not see it."""
        header = self._header
        assert header is not None
        question = topics_request(header.correlation_id, header.client_id, (), topics)
        slot = Slot(*header[:3], lambda response: done(decode_topics(response).names))
        self._line.send(slot, question)
