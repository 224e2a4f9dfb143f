"""One consumer under limits: its permits go to the broker, and its messages to the client, as these allow.

The broker is granted permits for as many entries as there is room for, and one more only when those have
come. What comes all the same, because it was on its way, or because an entry was larger than others, is held
and goes on in order when there is room: a limit is passed by one entry at most.
"""

import asyncio
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final

from enforcer.core.lines import RESERVED_MS, Counter
from enforcer.pulsar.delivery.context import DeliveryContext, has_room
from enforcer.pulsar.delivery.entry import ArrivedEntry
from enforcer.pulsar.delivery.limits import GROUP, NO_TURN, USER, Limits, Room
from enforcer.pulsar.delivery.permits import MeanEntry, Permits
from enforcer.wire.pulsar.commands import command
from enforcer.wire.pulsar.frames import FLOW

if TYPE_CHECKING:
    from enforcer.pulsar.delivery.part import DeliveryPart

HELD_UNSTORED_MAX: Final = 1_000
"""Messages of a topic that is not stored that wait for one consumer, as many as its default queue holds;
further ones are lost."""

_SHARE_LOOK_MS: Final = 250.0
"""Shares come without a word to those who wait, so they look this often."""
_LONGEST_MS: Final = 60_000.0
"""No wait is longer before it is looked again."""


class Consumer:
    """One consumer of a connection, from its SUBSCRIBE on.

    Attributes:
        id: its number on the connection.
        limits: what limits it.
        permits: its permits; of no meaning while not `known`.
        known: its broker's balance is known; it is while all is counted from SUBSCRIBE on.
        loose: its balance will never be known: permits are forwarded as they come.
        active: the broker has not said that another consumer of its subscription is served.

    Args:
        owner: its connection.
        context: what all connections share.
        limits: what limits it.
        number: its id.
    """

    __slots__ = (
        "_banked", "_charged", "_claim", "_context", "_line", "_mean", "_owner", "_queue", "_timer",
        "_woken", "active", "closed", "id", "known", "limits", "loose", "permits",
    )  # fmt: skip

    def __init__(self, owner: "DeliveryPart", context: DeliveryContext, limits: Limits, number: int) -> None:
        self._owner, self._context, self.limits, self.id = owner, context, limits, number
        self.permits = Permits()
        self.known = self.active = True
        self.loose = self.closed = False
        # Frames that wait, as its broker sent them, and what each brings; None: it only keeps its place.
        self._queue: deque[tuple[bytes, ArrivedEntry | None]] = deque()
        self._mean = MeanEntry()
        self._claim = (self, limits.topic, limits.subscription)
        self._line: Counter | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._woken, self._charged = False, True
        self._banked = 0

    @property
    def busy(self) -> bool:
        """Whether its frames must be seen, though nothing may limit it any more."""
        return bool(self._queue) or self.permits.bank > 0

    @property
    def shaped(self) -> bool:
        """Whether its permits are kept back. A broker drops what is not stored where there are none."""
        return self.limits.limited and not self.limits.lossy and not self.loose

    @property
    def awaits(self) -> bool:
        """Whether its permits are kept back because its broker has some, by what was counted."""
        permits = self.permits
        kept = permits.bank > 0 and permits.balance > 0
        return kept and self.known and self.active and self.shaped and not self._queue

    def flow(self, frame: bytes, permits: int) -> bytes | None:
        """The client gives permits; the frame if it goes on as it is."""
        if not permits or not (self.shaped or self.permits.bank):
            # With none the broker ends the connection, as it does without us.
            self.permits.passed(permits)
            return frame
        self.permits.give(permits)
        self._note_bank()
        if not self._queue and self._line is None:
            self._grant()
        return None

    def take(self, frame: bytes, came: ArrivedEntry) -> bytes | None:
        """A message has come; the frame if it goes on now."""
        granted = self.known and not self.loose and self.permits.balance > 0
        self.permits.sent(came.permits)
        self._mean.add(came.msgs, came.size)
        context = self._context
        # What is held before it is a backlog.
        all_charged = context.laws.dispatch.all_charged
        self._charged = bool(self._queue) or all_charged or not context.is_young(came)
        if self._queue or not self._may_pass(came, granted=granted):
            self._hold(frame, came)
            return None
        self._pass(came)
        if self.permits.balance <= 0:
            context.lines.settle(self._claim)
            if self.permits.bank:
                self.wake()
        return frame

    def in_order(self, frame: bytes) -> bytes | None:
        """Another frame of the broker's for this consumer, which keeps its place; the frame if it goes on."""
        if not self._queue:
            return frame
        self._keep(frame, None)
        return None

    def drop_held(self) -> None:
        """The broker will send again what is held: the client must not get it twice.

        It gave permits for what it will not get now, so these are its own again. What is not stored is never
        sent again.
        """
        if self.limits.lossy:
            return
        while self._queue:
            frame, came = self._pop()
            if came is None:
                self._owner.link.to_client(frame)
            else:
                self.permits.give(came.permits)
        self._note_bank()
        self._owner.holds()
        self.wake()

    def know(self, balance: int) -> None:
        """What permits the broker has is known now."""
        self.known, self.permits.balance = True, balance
        self.wake()

    def never_know(self) -> None:
        """It will not be known: what comes is held, and nothing else is done."""
        self.known = self.loose = True
        self.wake()

    def uncounted(self) -> None:
        """Its frames were not all seen."""
        self.known = self.loose = False
        self.permits.balance = 0

    def wake(self) -> None:
        """Look again, soon (lines.Waiter)."""
        if not self._woken and not self.closed:
            self._woken = True
            self._owner.link.call_later(0, self._serve)

    def close(self) -> None:
        """It is gone, and what is held with it: the broker sends that to whoever subscribes next."""
        self.closed = True
        self._context.flush()
        self._leave()
        self._context.lines.settle(self._claim)
        while self._queue:
            self._pop()
        self.permits.bank = 0
        self._note_bank()
        self._owner.holds()

    def _hold(self, frame: bytes, came: ArrivedEntry) -> None:
        context = self._context
        if self.limits.lossy and len(self._queue) >= HELD_UNSTORED_MAX:
            context.metrics.lost_messages.inc()
            self._owner.link.to_broker(command(FLOW, consumer_id=self.id, message_permits=came.permits))
            self.permits.passed(came.permits)
            return
        self._keep(frame, came)
        context.metrics.holds.inc()
        if self._line is None and not self._woken:
            self._wait(context.room(self, charged=self._charged))

    def _keep(self, frame: bytes, came: ArrivedEntry | None) -> None:
        self._queue.append((frame, came))
        self._owner.keep(1, len(frame))
        self._owner.holds(more=True)

    def _pop(self) -> tuple[bytes, ArrivedEntry | None]:
        held = self._queue.popleft()
        self._owner.keep(-1, -len(held[0]))
        return held

    def _may_pass(self, came: ArrivedEntry, *, granted: bool = False) -> bool:
        return came.marker or self._context.admits(self, charged=self._charged, granted=granted)

    def _pass(self, came: ArrivedEntry) -> None:
        # Who was given permits and gets nothing more has read all: nobody else knows where a broker stands.
        backlog = bool(self._queue) or not self._context.is_young(came)
        self._context.count(self, came, backlog=backlog)

    def _serve(self) -> None:
        """It may be its turn."""
        self._woken = False
        self._stop_timer()
        if self.closed:
            return
        released = self._release()
        self._owner.holds()
        if released and self._grant():
            self._leave()

    def _release(self) -> bool:
        """Send on what is held, as far as there is room; False: it waits."""
        turn = self._turn() if self._queue else 0
        while self._queue:
            frame, came = self._queue[0]
            if came is not None:
                if turn <= 0:
                    # Others wait for the same limit: it is their turn.
                    self._context.flush()
                    self._leave()
                    self._wait(self._context.room(self, charged=self._charged))
                    return False
                if not self._may_pass(came):
                    self._wait(self._context.room(self, charged=self._charged))
                    return False
                turn -= 1
            self._pop()
            self._owner.link.to_client(frame)
            if came is not None:
                self._pass(came)
        return True

    def _grant(self) -> bool:
        """Forward permits, as far as there is room; False: it waits."""
        permits = self.permits
        if not permits.bank:
            return True
        if not self.shaped or not self._charged:
            self._forward(permits.grant_all())
            return True
        if not self.known or permits.balance > 0 or not self.active:
            return True
        self._context.flush()
        room = self._context.room(self)
        if not has_room(room):
            self._wait(room)
            return False
        entries = self._entries(room)
        if not entries:
            self._wait(NO_TURN)
            return False
        self._forward(permits.grant(entries))
        msgs, size = self._mean.units(entries, by_entry=self._context.laws.dispatch.by_entry)
        self._context.lines.reserve([self._counter()], self._claim, msgs, size)
        return True

    def _forward(self, permits: int) -> None:
        self._note_bank()
        if permits:
            self._owner.link.to_broker(command(FLOW, consumer_id=self.id, message_permits=permits))

    def _entries(self, room: Room) -> int:
        """How many entries to ask for now; 0: what is left is on its way to others."""
        by_entry = self._context.laws.dispatch.by_entry
        units, size = min(room.units, room.msgs), room.size
        if self.limits.counters:
            msgs, its_size = self._context.lines.others(self._counter(), self._claim)
            units, size = units - msgs, size - its_size
            if units <= 0 or size <= 0:
                return 0
        waiting = 1 if self._line is None else max(1, self._context.lines.waiting(self._line))
        return self._mean.entries(units / waiting, size / waiting, by_entry=by_entry)

    def _turn(self) -> float:
        """How many of the held go on before others who wait get their turn."""
        line = self._line
        waiting = 1 if line is None else self._context.lines.waiting(line)
        if waiting <= 1:
            return inf
        room = self._context.room(self, charged=self._charged)
        by_entry = self._context.laws.dispatch.by_entry
        units, size = min(room.units, room.msgs) / waiting, room.size / waiting
        return self._mean.entries(units, size, by_entry=by_entry)

    def _counter(self) -> Counter:
        return self._line or self.limits.counters[0]

    def _wait(self, room: Room) -> None:
        """Be in line for the limit that frees last, and look again when it does."""
        if has_room(room):
            self.wake()
            return
        counter = self.limits.counter(room.level) if room.level else self._counter()
        lines, new = self._context.lines, self._line is None
        if counter != self._line:
            lines.join([counter], self._claim)
            self._line = counter
        if new and room.wait_ms:
            self._context.throttled(self.limits, room)
        if lines.is_next(counter, self._claim) or not lines.has(self._claim):
            wait_ms = min(float(room.wait_ms) or RESERVED_MS, _LONGEST_MS)
            if counter[0] in (GROUP, USER):
                wait_ms = min(wait_ms, _SHARE_LOOK_MS)
            self._stop_timer()
            self._timer = self._owner.link.call_later(wait_ms, self._serve)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave(self) -> None:
        self._stop_timer()
        if self._line is not None:
            self._line = None
            self._context.lines.leave(self._claim)

    def _note_bank(self) -> None:
        bank = self.permits.bank
        self._context.banked += bank - self._banked
        self._banked = bank
