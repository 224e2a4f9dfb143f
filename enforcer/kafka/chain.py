"""The chain of a connection's parts: which requests are read, and which way each of them goes.

And those at the front that need not be cut out: they go on as they came, in one piece. Nobody reads them,
or they are plain Produce requests, which are charged where they lie. What is not plain, or would have to
wait, is left for the chain, with nothing done for it.

Plain is what nearly all are: with acks, no transactional id, one topic and one partition of it. These are
read by hand: a fifth of the time of a header and the codec, and no copy.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from enforcer.core import bounds
from enforcer.host.turns import Turns
from enforcer.kafka.guard.protected import OwnTopics
from enforcer.kafka.part import Behind, Concern, Limit, Link, Part, Reader, Request, Slot
from enforcer.kafka.pipeline.requests import UNREAD, Requests
from enforcer.kafka.slots.part import Flow
from enforcer.wire.kafka.batches import count_records
from enforcer.wire.kafka.frames import (
    FETCH,
    FLEXIBLE_FROM,
    HEAD,
    LENGTH_BYTES,
    PRODUCE,
    SASL_KEYS,
    BadFrame,
    Frame,
    client_name,
    parse_header,
    read_uvarint,
)
from enforcer.wire.kafka.traffic import PRODUCE_IDS_FROM, produce_acks
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


class Chain:
    """The parts of one connection, in the order in which they take its requests.

    A broker's response passes those that asked for it in the same order; what they do to an answer, whoever
    gives it, is done in the opposite one.

    Attributes:
        laws: while none of them is active, a request passes as the same one did before.
    """

    def __init__(self, concerns: Sequence[Concern], link: Link) -> None:
        self._concerns = concerns
        self._link = link
        self._made = {concern: concern.part(link) for concern in concerns if concern.from_the_beginning}
        # Those that were made when a request wanted it: most connections have none.
        self._wanted: list[Part] = []
        self._unheard = False
        # What parts keep of requests until the broker has answered them.
        self._kept_bytes = 0
        limits = [concern for concern in concerns if isinstance(concern, Limit)]
        self.laws = tuple(limit.law for limit in limits)
        self._limits = limits
        self._asking = [one for one in concerns if one.asked and one not in limits]
        self._asked = frozenset[int]().union(*(concern.asked for concern in concerns))

    @property
    def asked(self) -> frozenset[int]:
        """APIs that `must_read` is to be asked about now."""
        asked = self._asked
        for limit in self._limits:
            if limit.law.active:
                asked = asked | limit.keys
        for part in self._wanted:
            if more := part.asked:
                asked = asked | more
        return asked

    def must_read(self, key: int, client_id: bytes) -> bool:
        """Whether a part wants a request of this client (requests.MustRead)."""
        user, name = self._link.user, client_name(client_id)
        # Each request asks: loops cost a third of any() here.
        for part in self._wanted:
            if key in part.asked:
                return True
        for limit in self._limits:
            if limit.active and key in limit.keys and limit.reads(key, user, name):
                return True
        return any(key in one.asked and one.active and one.reads(key, user, name) for one in self._asking)

    def plain_taker(self) -> Part | None:
        """The one part that wants Produce requests now; None: none does, or several, or none may pass."""
        for part in self._wanted:
            if PRODUCE in part.asked:
                return None
        found = None
        for limit in self._limits:
            if limit.law.active and PRODUCE in limit.keys:
                if found is not None:
                    return None
                found = limit
        return None if found is None or self._link.pacer.session_over else self._made.get(found)

    def reads_answer(self, slot: Slot, read: Reader) -> None:
        """The broker's response to a request is to be read before it is the client's."""
        slot.done = partial(self._respond, slot, (read,))

    def handle(self, frame: bytes) -> None:
        """Let the parts have a request, and send on what they leave of it.

        Raises:
            BadFrame: it cannot be read.
        """
        pacer = self._link.pacer
        # Most are not held back: they ask for no time.
        probing = not pacer.idle and pacer.pass_one()
        header = parse_header(frame)
        if pacer.session_over and header.api_key not in SASL_KEYS:
            # Perhaps it was held for so long. Sent on it would be charged and lost, and wait again for that.
            self._link.end_session()
            return
        if self._unheard and header.api_key == FETCH:
            # It would reach nobody: nobody shall be charged for it, or wait behind it.
            return
        request = Request(frame, header, self._link.user, probing)
        for part in self._parts(header.api_key):
            if not part.take(request):
                # What it waited for in a later part it cannot have now: nobody shall wait for that.
                self.step_aside(part, self._link.slots)
                break
        else:
            self._forward(request)
        if request.ends:
            self._link.end(request.ends)

    @property
    def free(self) -> bool:
        """Whether the next request may be handled."""
        # A loop costs half as much as all().
        for part in self._wanted:
            if not part.free:
                return False
        # A broker may take its time for an answer, as long as the client says.
        return self._kept_bytes <= bounds.HELD_BYTES_MAX

    @property
    def held_bytes(self) -> int:
        """Size of the requests that were read and not answered."""
        return self._kept_bytes + sum(part.held_bytes for part in self._wanted)

    @property
    def unadmitted(self) -> Slot | None:
        """See Part."""
        return next((part.unadmitted for part in self._wanted if part.unadmitted), None)

    @property
    def waits_for_decision(self) -> bool:
        """See Part."""
        return any(part.waits_for_decision for part in self._wanted)

    def look_behind(self, requests: Behind, *, over: bool) -> None:
        """See Part."""
        for part in self._wanted:
            part.look_behind(requests, over=over)

    def unheard(self) -> None:
        """See Part; those that are made from now on know it from the beginning."""
        self._unheard = True
        for part in list(self._made.values()):
            part.unheard()

    def step_aside(self, *but: Part) -> None:
        """See Part; some of them may stay where they are."""
        for part in self._made.values():
            if part not in but:
                part.step_aside()

    def close(self) -> None:
        """See Part."""
        for part in list(self._made.values()):
            part.close()

    def _parts(self, key: int) -> Iterator[Part]:
        """Those that want a request of this API, each found when the one before has let it go on."""
        for concern in self._concerns:
            part = self._made.get(concern)
            if (key in concern.keys and concern.active) or (part is not None and key in part.asked):
                yield part or self._make(concern)

    def _make(self, concern: Concern) -> Part:
        part = self._made[concern] = concern.part(self._link)
        self._wanted.append(part)
        if self._unheard:
            part.unheard()
        return part

    def _forward(self, request: Request) -> None:
        """Send what is left of a request to the broker; its response passes those who asked for it."""
        frame, header = request.frame, request.header
        if header.api_key == PRODUCE and produce_acks(frame, header) == 0:
            # Without acks the broker sends no response; waiting for one would shift all that follow.
            self._link.send(None, frame)
            return
        slot = request.slot()
        if request.readers or slot.finish is not None:
            slot.done = partial(self._respond, slot, request.readers, kept=request.kept)
            self._kept_bytes += request.kept
        self._link.reserve(slot)
        self._link.send(slot, frame)

    def _respond(self, slot: Slot, readers: Sequence[Reader], response: bytes, kept: int = 0) -> None:
        self._kept_bytes -= kept
        for read in readers:
            left = read(slot, response)
            if left is None:
                return
            response = left
        self._link.respond(slot, response)


class Runs:
    """The requests at the front of one connection that need not be cut out."""

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
        asked = self._chain.asked
        self._requests.asked = asked
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
