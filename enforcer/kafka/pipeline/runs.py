"""The requests at the front of a connection that need not be cut out: they go on as they came, in one piece.

Nobody reads them, or they are plain Produce requests, which are charged where they lie. What is not plain, or
would have to wait, is left for the chain, with nothing done for it.
"""

from enforcer.host.turns import Turns
from enforcer.kafka.chain import Chain
from enforcer.kafka.guard.produce import is_ours
from enforcer.kafka.guard.protected import OwnTopics
from enforcer.kafka.part import Part, Slot
from enforcer.kafka.pipeline.plain_produce import plain_produced
from enforcer.kafka.pipeline.requests import UNREAD, Requests
from enforcer.kafka.slots.part import Flow
from enforcer.wire.kafka.frames import HEAD, LENGTH_BYTES, PRODUCE

Run = bytes | bytearray | memoryview


class Runs:
    """Those of one connection.

    Args:
        chain: its parts.
        requests: its requests.
        protected: what a request that passes unread must not name.
        turns: of all connections.
        limit: longest request accepted.
    """

    __slots__ = ("_chain", "_limit", "_protected", "_requests", "_turns")

    def __init__(
        self, chain: Chain, requests: Requests, protected: OwnTopics, turns: Turns, limit: int
    ) -> None:
        self._chain = chain
        self._requests = requests
        self._protected = protected
        self._turns = turns
        self._limit = limit

    def take(self, slots: list[Slot], room: int, flow: Flow | None) -> Run:
        """Take those at the front, to be sent on with their lengths; empty: there are none.

        Args:
            slots: gets a slot for each that will be answered.
            room: how many more may wait for their answers.
            flow: lets them through, if they count.

        Raises:
            BadFrame: a length is negative or above the limit.
        """
        room = room if flow is None else min(room, flow.room)
        run = self._charged(slots, room)
        if run:
            return run
        self._requests.asked = self._chain.asked
        run = self._requests.run(slots, room)
        if flow is not None:
            flow.look_over(run)
        return run

    def _charged(self, slots: list[Slot], room: int) -> Run:
        part = self._chain.plain_taker()
        begun_s = None if part is None else self._turns.begin()
        if part is None or begun_s is None:
            return b""
        requests = self._requests
        start = requests.pos
        try:
            stop = self._charge(part, slots, room, begun_s)
        finally:
            self._turns.end(begun_s)
        if stop == start:
            return b""
        requests.need = 0
        run = requests.slice(start, stop)
        requests.advance(stop, len(slots))
        return run

    def _charge(self, part: Part, slots: list[Slot], room: int, begun_s: float) -> int:
        """Charge the plain ones; returns where the last of them ends."""
        data, pos, end = self._requests.data, self._requests.pos, len(self._requests.data)
        first, last = UNREAD[PRODUCE]
        while len(slots) < room and end - pos >= HEAD.size:
            length, key, version, correlation_id, name_bytes = HEAD.unpack_from(data, pos)
            stop, name = pos + LENGTH_BYTES + length, pos + HEAD.size
            if key != PRODUCE or not first <= version <= last or name_bytes < -1:
                break
            if stop > end or length > self._limit:
                break
            body = name + max(0, name_bytes)
            brings = plain_produced(data, body, stop, version)
            if brings is None or is_ours(brings.topic, version, self._protected):
                break
            charged = part.take_plain(bytes(data[name:body]), version, length, brings)
            if charged is None:
                break
            slot = Slot(key, version, correlation_id)
            if charged.read is not None:
                self._chain.reads_answer(slot, charged.read)
                slot.unless = charged.unless
            slots.append(slot)
            pos = stop
            if self._turns.over(begun_s):
                break
        return pos
