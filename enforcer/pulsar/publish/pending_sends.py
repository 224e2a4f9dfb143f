"""SENDs that a broker has and has not answered: what they were charged, and the slots that they hold."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from enforcer.core.lines import Waiter
from enforcer.laws.concurrency.limiter import Limiter, Ticket
from enforcer.laws.shares.topic_accounts import Bill, ChargeResult
from enforcer.wire.pulsar.commands import parse
from enforcer.wire.pulsar.frames import message_parts, plausible
from enforcer.wire.pulsar.schema import read


class Send(NamedTuple):
    """What a SEND says of itself, as far as a limit must know (docs/pulsar/publishing.md, "Counting").

    Attributes:
        producer_id: of its connection.
        sequence_id: what its receipt names.
        highest_sequence_id: of a batch, what an error may name instead.
        messages: how many it counts for, at least 1.
        size: bytes behind the command, checksum and metadata included, as brokers count them.
    """

    producer_id: int
    sequence_id: int
    highest_sequence_id: int
    messages: int
    size: int


def read_send(frame: bytes) -> Send:
    """A whole SEND.

    Brokers count what SEND.num_messages claims and never compare it with the message's own metadata, which is
    what consumers go by. A limit cannot trust either: who claims less would pass for free, and who claims
    more would put its group into debt with nothing sent.

    Raises:
        BadFrame: it cannot be read.
    """
    body = parse(frame)
    start, at, payload = message_parts(frame)
    metadata = read("MessageMetadata", frame[at:payload])
    claimed = max(body.num_messages, metadata.num_messages_in_batch)
    messages = 1 if claimed <= 1 else plausible(claimed, len(frame) - payload, metadata.compression)
    return Send(body.producer_id, body.sequence_id, body.highest_sequence_id, messages, len(frame) - start)


@dataclass(slots=True, eq=False)
class PendingSend:
    """One SEND on its way.

    Attributes:
        send: what it says.
        bill: by whom it is owed.
        charged: what came of that.
        sent_ms: when it was sent.
        limiter: where its slot is; None: it is not counted.
        ticket: the slot.
    """

    send: Send
    bill: Bill
    charged: ChargeResult
    sent_ms: float
    limiter: Limiter | None
    ticket: Ticket | None

    def lost(self) -> None:
        """No answer will come, and nothing is learnt by that."""
        if self.ticket is not None and self.limiter is not None:
            self.limiter.cancel((self.ticket,))
            self.ticket = None

    def answered(self) -> None:
        """Its answer has come."""
        if self.ticket is not None and self.limiter is not None:
            self.limiter.end(self.ticket)


class Window:
    """How many SENDs of one connection may be unfinished; who finds it full waits until half are answered.

    A broker does the same: it stops reading at as many, and of non-persistent topics it throws the rest away.

    Attributes:
        count: how many are unfinished.

    Args:
        size: so many.
    """

    def __init__(self, size: int) -> None:
        self.count = 0
        self._size = size
        self._waiting: dict[Waiter, None] = {}

    def admits(self, waiter: Waiter) -> bool:
        """Whether one more may be sent; if not, who asks is woken when there is room."""
        if self.count < self._size and (not self._waiting or waiter in self._waiting):
            self._waiting.pop(waiter, None)
            return True
        self._waiting[waiter] = None
        return False

    def leave(self, waiter: Waiter) -> None:
        """It has nothing more to send."""
        self._waiting.pop(waiter, None)

    def sent(self) -> None:
        """One more is unfinished."""
        self.count += 1

    def finished(self, count: int = 1) -> None:
        """So many are not any more."""
        self.count -= count
        if self._waiting and self.count <= self._size // 2:
            waiting, self._waiting = list(self._waiting), {}
            for each in waiting:
                each.wake()


class PendingSends:
    """Those of one producer, by sequence id.

    The chunks of one message have the same id, and a client may give all its messages one; of these the
    first that was sent is the first that is answered.

    Args:
        window: of its connection.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._by_sequence: dict[int, list[PendingSend]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_sequence)

    def __iter__(self) -> Iterator[PendingSend]:
        return (pending for each in self._by_sequence.values() for pending in each)

    def add(self, pending: PendingSend) -> None:
        """One was sent."""
        self._by_sequence.setdefault(pending.send.sequence_id, []).append(pending)
        self._window.sent()

    def take(self, sequence_id: int) -> PendingSend | None:
        """One was answered; None: it was sent before they were looked at."""
        same = self._by_sequence.get(sequence_id)
        if same is None:
            return None
        pending = same.pop(0)
        if not same:
            del self._by_sequence[sequence_id]
        self._window.finished()
        return pending

    def take_refused(self, sequence_id: int) -> tuple[PendingSend | None, bool]:
        """The same by what an error names: the highest sequence id of a batch, where it has one.

        Returns it, and whether it was that one for sure. A client chooses its ids: an error that comes at
        once, for a SEND that is broken, may bear the id of another one that is just being stored.
        """
        called_so = [
            first
            for first, same in self._by_sequence.items()
            for pending in same
            if sequence_id in (first, pending.send.highest_sequence_id)
        ]
        if not called_so:
            return None, False
        return self.take(sequence_id if sequence_id in called_so else called_so[0]), len(called_so) == 1

    def expire(self, before_ms: float) -> None:
        """Forget those that were sent before a time: their answers will not come any more."""
        late: list[int] = []
        for sequence_id, same in self._by_sequence.items():
            if same[0].sent_ms >= before_ms:
                # In the order of sending, as far as it matters.
                break
            late.append(sequence_id)
        for sequence_id in late:
            same = self._by_sequence.pop(sequence_id)
            self._lost(same)

    def free(self) -> None:
        """Give their slots back: the answers cannot be seen for now, however soon they come."""
        for pending in self:
            pending.lost()

    def clear(self) -> None:
        """No answer will come any more."""
        everything, self._by_sequence = list(self), {}
        self._lost(everything)

    def _lost(self, pendings: list[PendingSend]) -> None:
        for pending in pendings:
            pending.lost()
        self._window.finished(len(pendings))
