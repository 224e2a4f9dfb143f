"""The requests at the front of a connection that need not be cut out: they go on as they came, in one piece.

Nobody reads them, or they are plain Produce requests, which are charged where they lie. What is not plain, or
would have to wait, is left for the chain, with nothing done for it.

Plain is what nearly all are: with acks, no transactional id, one topic and one partition of it. These are
read by hand: a fifth of the time of a header and the codec, and no copy.
"""

import struct
from typing import Final

from enforcer.host.turns import Turns
from enforcer.kafka.chain import Chain
from enforcer.kafka.guard.protected import OwnTopics
from enforcer.kafka.part import Part, Slot
from enforcer.kafka.pipeline.requests import UNREAD, Requests
from enforcer.kafka.slots.part import SlotsPart
from enforcer.wire.kafka.batches import count_records
from enforcer.wire.kafka.frames import (
    FLEXIBLE_FROM,
    HEAD,
    LENGTH_BYTES,
    PRODUCE,
    BadFrame,
    Frame,
    read_uvarint,
)
from enforcer.wire.kafka.traffic import PRODUCE_IDS_FROM
from enforcer.wire.kafka.traffic import Part as ProducedPart

# Behind the client id: no tags, no transactional id, acks, timeout, number of topics; in classic versions
# without tags, and with the length of the first name.
_HEAD: Final = struct.Struct(">bbhib")
_CLASSIC_HEAD: Final = struct.Struct(">hhiih")
# Number of partitions, the first of them; in classic versions the length of its records too.
_PART: Final = struct.Struct(">bi")
_CLASSIC_PART: Final = struct.Struct(">iii")
_ID_BYTES: Final = 16
_SHORT: Final = 127
"""Names below it have a length of one byte in flexible versions."""
_END: Final = b"\0\0\0"
"""No tags: of the partition, of the topic, of the request."""
_TRANSACTIONAL_FROM: Final = 3

Run = bytes | bytearray | memoryview


class Runs:
    """The requests at the front of one connection that need not be cut out."""

    __slots__ = ("_chain", "_counting", "_protected", "_requests", "_turns")

    def __init__(
        self, chain: Chain, requests: Requests, counting: SlotsPart, protected: OwnTopics, turns: Turns
    ) -> None:
        self._chain, self._requests, self._counting = chain, requests, counting
        self._protected, self._turns = protected, turns

    def take(self, slots: list[Slot], room: int) -> Run:
        """Take those at the front, to be sent on with their lengths; empty: there are none.

        Args:
            slots: gets a slot for each that will be answered.
            room: how many at most.

        Raises:
            BadFrame: a length is negative or above the limit.
        """
        due = self._counting.due
        room = room if due is None else min(room, self._counting.room)
        run = self._charged(slots, room)
        if run:
            return run
        asked = self._chain.asked
        self._requests.asked = asked
        run = self._requests.run(slots, room)
        if due is not None:
            due.look_over(run)
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
        requests = self._requests
        data, pos, end, limit = requests.data, requests.pos, len(requests.data), requests.max_frame_bytes
        first, last = UNREAD[PRODUCE]
        while len(slots) < room and end - pos >= HEAD.size:
            length, key, version, correlation_id, name_bytes = HEAD.unpack_from(data, pos)
            stop, name = pos + LENGTH_BYTES + length, pos + HEAD.size
            if key != PRODUCE or not first <= version <= last or name_bytes < -1:
                break
            if stop > end or length > limit:
                break
            body = name + max(0, name_bytes)
            brings = plain_produced(data, body, stop, version)
            if brings is None or self._protected.is_ours(brings.topic, version):
                break
            charged = part.take_plain(bytes(data[name:body]), version, length, brings)
            if charged is None:
                break
            slot = Slot(key, version, correlation_id)
            read, unless = charged
            if read is not None:
                self._chain.reads_answer(slot, read)
                slot.unless = unless
            slots.append(slot)
            pos = stop
            if self._turns.over(begun_s):
                break
        return pos


def plain_produced(data: Frame, start: int, stop: int, version: int) -> ProducedPart | None:
    """What a request brings; None: it is another one, or damaged.

    Args:
        start: where its client id ends.
        stop: where it ends.
        version: its version, one that can be read.
    """
    try:
        if version >= FLEXIBLE_FROM[PRODUCE]:
            return _flexible(data, start, stop, version)
        return _classic(data, start, stop) if version >= _TRANSACTIONAL_FROM else None
    except (struct.error, IndexError, BadFrame):
        return None


def _flexible(data: Frame, start: int, stop: int, version: int) -> ProducedPart | None:
    tags, transaction, acks, _, topics = _HEAD.unpack_from(data, start)
    name = start + _HEAD.size
    name_end = name + _ID_BYTES
    if version < PRODUCE_IDS_FROM:
        name_end = name + data[name]
        name += 1
    count, number = _PART.unpack_from(data, name_end)
    if tags or transaction or not acks or topics != 2 or count != 2 or not name < name_end < name + _SHORT:
        return None
    size, records = read_uvarint(data, name_end + _PART.size)
    end = records + size - 1
    if end < records or end + len(_END) != stop or not data.startswith(_END, end):
        return None
    return ProducedPart(bytes(data[name:name_end]), number, count_records(data, records, end), end - records)


def _classic(data: Frame, start: int, stop: int) -> ProducedPart | None:
    transaction, acks, _, topics, name_bytes = _CLASSIC_HEAD.unpack_from(data, start)
    name = start + _CLASSIC_HEAD.size
    name_end = name + name_bytes
    if transaction != -1 or not acks or topics != 1 or name_bytes <= 0:
        return None
    count, number, size = _CLASSIC_PART.unpack_from(data, name_end)
    records = name_end + _CLASSIC_PART.size
    if count != 1 or size < 0 or records + size != stop:
        return None
    return ProducedPart(bytes(data[name:name_end]), number, count_records(data, records, stop), size)
