"""The chain of a connection's parts: which requests are read, and which way each of them goes."""

from collections.abc import Iterator, Sequence
from functools import partial

from enforcer.core import bounds
from enforcer.kafka.part import PART_BYTES_MIN, Behind, Concern, Limit, Link, Part, Reader, Request, Slot
from enforcer.wire.kafka.frames import FETCH, PRODUCE, SASL_KEYS, SHARE_FETCH, client_name, parse_header
from enforcer.wire.kafka.traffic import produce_acks, sharing, with_share


class Chain:
    """The parts of one connection, in the order in which they take its requests.

    A broker's response passes those that asked for it in the same order; what they do to an answer, whoever
    gives it, is done in the opposite one.

    Attributes:
        laws: while none of them is active, a request passes as the same one did before.
    """

    def __init__(self, concerns: Sequence[Concern], link: Link) -> None:
        self._link = link
        self._concerns = concerns
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
        request = Request(frame, header, self._link.user, probing)
        if self._unheard and not self._is_carried_out(request):
            return
        for part in self._parts(header.api_key):
            if not part.take(request):
                # What it waited for in a later part it cannot have now: nobody shall wait for that.
                self.step_aside(part, self._link.slots)
                break
        else:
            self._forward(request)
        if request.ends:
            self._link.end(request.ends)

    @staticmethod
    def _is_carried_out(request: Request) -> bool:
        """Whether a request goes on though nobody hears the answer; a ShareFetch then asks for nothing."""
        frame, header = request.frame, request.header
        if header.api_key == SHARE_FETCH and (asked := sharing(frame, header)).acquires:
            # What it acquired would be lost, with a delivery of it.
            request.frame = with_share(frame, asked, records=0, size=PART_BYTES_MIN)
        # Nobody shall be charged for a Fetch, or wait behind it.
        return header.api_key != FETCH

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
