"""What a broker has to answer to a connection whose requests in flight are counted.

Of which class each is, and which of them it keeps waiting on purpose: docs/protocol_notes.md 3.7.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, SupportsIndex

from enforcer.core.lines import Waiter
from enforcer.kafka.part import Slot
from enforcer.laws.concurrency.limiter import Limiter, Ticket
from enforcer.wire.kafka.codec import asked
from enforcer.wire.kafka.frames import FETCH, HEAD, LENGTH_BYTES, PRODUCE, BadFrame, parse_header

PRODUCE_CLASS: Final = "produce"
"""Never exempt: what carries records, and the transactions around them."""
ADMIN_CLASS: Final = "admin"
"""All that is of no other class."""

_JOIN_GROUP: Final = 11
_SYNC_GROUP: Final = 14
_CLASSES: Final[dict[str, tuple[int, ...]]] = {
    # Produce, InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn
    PRODUCE_CLASS: (PRODUCE, 22, 24, 25, 26),
    # Fetch, ShareFetch
    "fetch": (FETCH, 78),
    # Heartbeat, ConsumerGroupHeartbeat, ShareGroupHeartbeat, StreamsGroupHeartbeat
    "heartbeat": (12, 68, 76, 88),
    # OffsetCommit, OffsetFetch, FindCoordinator, JoinGroup, LeaveGroup, SyncGroup, TxnOffsetCommit,
    # ShareAcknowledge
    "group": (8, 9, 10, _JOIN_GROUP, 13, _SYNC_GROUP, 28, 79),
    "sasl": (17, 36),
    "api_versions": (18,),
    # ListOffsets, Metadata, OffsetForLeaderEpoch, DescribeCluster, DescribeTopicPartitions
    "metadata": (2, 3, 23, 60, 75),
}
_BY_KEY: Final = {key: name for name, keys in _CLASSES.items() for key in keys}

DELAYED_KEYS: Final = frozenset({FETCH, 78, _JOIN_GROUP, _SYNC_GROUP})
"""Requests that a broker answers when something comes to pass elsewhere: records, or members of a group. How
long that takes says nothing of its load, and meanwhile they cost it nothing."""
_WAITS: Final = asked(FETCH, "MaxWaitMs MinBytes")
_FRONT_BYTES: Final = 64
"""Behind the client id, and what of tags may stand there: the rest of a Fetch need not be copied."""


class CountedAnswers(deque[Slot]):
    """`Responses.due` of such a connection: what is put in was sent, what is taken out is answered.

    A subclass, so that connections that are not counted pay nothing; every way in and out that `Responses`
    and `ConnectionEnd` use is here. An answer so large that it is passed on in parts is taken out when its
    first bytes come.

    Args:
        limiter: counts them.
        sent: what was sent before: that is not counted.
        coming: tells which request was sent in part, and waits for its client.
        waiter: stands in its line for them.
    """

    def __init__(
        self,
        limiter: Limiter,
        sent: Iterable[Slot] = (),
        coming: Callable[[], Slot | None] = lambda: None,
        waiter: Waiter | None = None,
    ) -> None:
        super().__init__(sent)
        self.limiter = limiter
        self._waiter = waiter
        self._tickets: dict[Slot, Ticket] = {}
        self._coming = coming
        # The request of an exempt class that has a slot.
        self._exempt: Slot | None = None
        # A request that is sent in part, whether it shall be sampled, and if it is slow.
        self._part: tuple[Slot, bool] | None = None
        self._slow = False
        # Correlation ids of such Fetches about to be put in.
        self.prompt: set[int] = set()

    def look_over(self, piece: bytes | bytearray | memoryview) -> None:
        """These requests, with their lengths, are about to be sent: note which must be answered at once."""
        self.prompt |= prompt_fetches(piece)

    def append(self, slot: Slot, /) -> None:
        """A request was sent."""
        super().append(slot)
        self._begin(slot)

    def extend(self, slots: Iterable[Slot], /) -> None:
        """Several were, in this order."""
        for slot in slots:
            self.append(slot)

    def popleft(self) -> Slot:
        """The first one is answered."""
        slot = super().popleft()
        ticket = self._take_out(slot)
        if ticket is not None:
            self.limiter.end(ticket)
        return slot

    def pop(self, index: SupportsIndex = -1, /) -> Slot:
        """The last one never became whole: there will be no answer, and that is the client's doing."""
        slot = super().pop()
        ticket = self._take_out(slot)
        if ticket is not None:
            self.limiter.cancel((ticket,))
        return slot

    def clear(self) -> None:
        """The connection is over."""
        super().clear()
        self.forget()

    def whole(self) -> None:
        """The rest of the request that was sent in part has left: now the broker has it to do."""
        part, self._part = self._part, None
        if part is not None and part[0] in self._tickets:
            self.limiter.restart(self._tickets[part[0]], part[1])

    def check(self) -> None:
        """Called once a second: a client that sends a request slowly must not keep a slot by that."""
        if self._part is None or self._part[0] not in self._tickets:
            return
        if self._slow:
            self.limiter.cancel((self._tickets[self._part[0]],))
        self._slow = True

    def forget(self) -> None:
        """The answers are not waited for any more, or will not come: the broker's connection is over.

        That is no drop: a broker ends the connection of who sends nonsense, and anybody could make it look
        slow by that. One that is away answers nobody, and there is nothing to be limited.
        """
        tickets, self._tickets, self._exempt = self._tickets, {}, None
        self.limiter.cancel(tickets.values())

    def _take_out(self, slot: Slot) -> Ticket | None:
        if slot is self._exempt:
            self._exempt = None
        return self._tickets.pop(slot, None)

    def _begin(self, slot: Slot) -> None:
        self._count(slot)
        ticket = self._tickets.get(slot)
        if ticket is not None and slot is self._coming():
            # Until it is whole its time is the client's, and says nothing of the broker.
            self._part, self._slow = (slot, ticket.sampled), False
            ticket.sampled = False

    def _count(self, slot: Slot) -> None:
        limiter, kind = self.limiter, class_of(slot.api_key)
        exempt = kind in limiter.exempt
        if slot.api_key not in DELAYED_KEYS:
            # Of those that never wait a connection has one slot, or it could send so many that nobody else's
            # turn came.
            holds = not exempt or self._exempt is None
            if holds and exempt:
                self._exempt = slot
            self._tickets[slot] = limiter.begin(kind, by=self._waiter, holds=holds)
            return
        prompt = slot.correlation_id in self.prompt
        self.prompt.discard(slot.correlation_id)
        if not exempt:
            # Whoever wrote the policy wants it so: it has a slot for as long as it waits.
            self._tickets[slot] = limiter.begin(kind, by=self._waiter, sampled=prompt)
        elif prompt:
            self._tickets[slot] = limiter.begin(kind, holds=False)
        else:
            limiter.pass_by(kind)


def class_of(key: int) -> str:
    """The class of an API's requests.

    >>> class_of(0), class_of(12), class_of(19)
    ('produce', 'heartbeat', 'admin')
    """
    return _BY_KEY.get(key, ADMIN_CLASS)


def prompt_fetches(piece: bytes | bytearray | memoryview) -> set[int]:
    """Correlation ids of the Fetches that may not wait, by their own max_wait_ms or min_bytes.

    Args:
        piece: requests with their lengths; the last one may be a part.
    """
    found: set[int] = set()
    pos = 0
    while len(piece) - pos >= HEAD.size:
        length, key, _, correlation_id, name_bytes = HEAD.unpack_from(piece, pos)
        start, stop = pos + LENGTH_BYTES, pos + LENGTH_BYTES + length
        if key == FETCH:
            end = pos + HEAD.size + max(0, name_bytes) + _FRONT_BYTES
            if _is_prompt(bytes(piece[start : min(stop, end)])):
                found.add(correlation_id)
        pos = stop
    return found


def _is_prompt(front: bytes) -> bool:
    try:
        wait_ms, min_bytes = _WAITS(front, parse_header(front))
    except BadFrame:
        return False
    return bool(wait_ms <= 0 or min_bytes <= 0)
