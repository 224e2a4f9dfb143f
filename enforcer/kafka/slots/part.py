"""Where the requests in flight of a connection count, or wait for a slot (docs/protocol_notes.md 3.7)."""

import struct
from collections import deque
from collections.abc import Callable
from math import ceil
from typing import Final, Protocol

from enforcer.core import bounds
from enforcer.core.settings import ProxySettings
from enforcer.kafka.part import NO_KEYS, Behind, Concern, Link, Part, Request, Slot
from enforcer.kafka.produce import answer, asked_in
from enforcer.kafka.slots.counted_answers import ADMIN_CLASS, CountedAnswers, class_of
from enforcer.laws.concurrency.limiter import Limiter
from enforcer.wire.kafka.frames import PRODUCE, parse_header
from enforcer.wire.kafka.mutations import (
    MUTATION_KEYS,
    REQUEST_TIMED_OUT,
    STRICT_FROM,
    TooManyItems,
    decode_request,
    refuse_all,
)
from enforcer.wire.kafka.traffic import produce_acks

INFLIGHT_THROTTLE_MS: Final = 100
"""Throttle time of requests for mutations that find no slot (error 89): slots become free in as many ms."""

_FAILED_MAX: Final = 100
"""So many fail at once; then others have their turn, and it is looked how many answers wait."""
_HEAD: Final = struct.Struct(">ihh")  # length, key, version
_NS_PER_MS: Final = 1_000_000
_NO_SLOT: Final = REQUEST_TIMED_OUT, "No slot under the concurrency limit of this broker; try again."


class ConnectionAnswers(Protocol):
    """The answers of a connection (responses.Responses).

    Attributes:
        due: what the broker has to answer, in the order in which it was asked.
    """

    due: deque[Slot]


class Slots(Concern):
    """Concurrency limits of brokers. All requests count; where they do, its part may refuse mutations."""

    keys = NO_KEYS
    from_the_beginning = True

    def part(self, link: Link) -> Part:
        return link.slots


class SlotsPart(Part):
    """Where the requests in flight of a connection count, which may change while it is open.

    Attributes:
        due: what the broker has to answer, counted, in the place of `Responses.due`; None: it is not, as of
            most connections.
        room: how many requests may be sent at once by who was just told to go on.

    Args:
        sent: its answers; `due` of these is counted.
        settings: how long a request may wait, and what those are told that do not.
        coming: tells which request was sent in part.
    """

    def __init__(
        self, link: Link, sent: ConnectionAnswers, settings: ProxySettings, coming: Callable[[], Slot | None]
    ) -> None:
        self.due: CountedAnswers | None = None
        self.room = 1
        self._link = link
        self._sent = sent
        self._coming = coming
        self._settings = settings
        self._wait_ns = settings.inflight_wait_ms * _NS_PER_MS
        # Whether what the request at the head was last told to wait for is a slot.
        self._failing = self._waits = False

    def wake(self) -> None:
        """A slot may be free (lines.Waiter)."""
        self._link.pacer.wake()

    def take(self, request: Request) -> bool:
        """Refuse mutations that find no slot, by error 89: those are neither judged nor charged."""
        limiter = None if self.due is None else self.due.limiter
        if limiter is None or limiter.spare or ADMIN_CLASS in limiter.exempt:
            return True
        try:
            asked = decode_request(request.frame, request.header, self._settings.max_items)
        except TooManyItems:
            return True
        if asked.strict:
            limiter.refuse()
            message = "The broker has as many requests in flight as its concurrency limit allows; try again."
            self._link.answer(request, refuse_all(asked, INFLIGHT_THROTTLE_MS, message))
        return not asked.strict

    def goes(self, requests: Behind, limiter: Limiter) -> bool:
        """Whether the request at the head may be sent; if not, the connection is paused and in line.

        One that has waited too long, or finds the line full, fails, and the next one is looked at.

        Args:
            limiter: of `due`.

        Raises:
            BadFrame: one that must fail cannot be read.
        """
        self._waits = False
        for _ in range(_FAILED_MAX):
            if requests.left_bytes < _HEAD.size:
                # Not even its head is here.
                return True
            length, key, version = _HEAD.unpack_from(requests.data, requests.pos)
            if _passes(limiter, key, version):
                self.room = 1
                return True
            if not self._failing and limiter.admits(self):
                self.room = limiter.room(self)
                return True
            waited_ns = None if self._failing else limiter.wait(self)
            if waited_ns is not None and waited_ns < self._wait_ns:
                self._waits = True
                self._link.pacer.pause(ceil((self._wait_ns - waited_ns) / _NS_PER_MS))
                return False
            if not self._fails(length, key, requests, limiter):
                return False
        self._link.pacer.pause(0.0)
        return False

    def count_by(self, limiter: Limiter | None) -> None:
        """From now on its requests in flight count here; None: nowhere (limits.ClientConnection)."""
        sent = self._sent
        if limiter is (None if self.due is None else self.due.limiter):
            return
        if self.due is not None:
            self.close()
            # Whoever waited for the old one asks again.
            self._link.pacer.wake()
        self.due, self.asked = None, NO_KEYS
        self.room, self._failing, self._waits = 1, False, False
        if limiter is None:
            sent.due = deque(sent.due)
            return
        sent.due = self.due = CountedAnswers(limiter, sent.due, self._coming, self)
        self.asked = MUTATION_KEYS

    def step_aside(self) -> None:
        if self.due is not None:
            self.due.limiter.leave(self)

    def waits(self, held: bool) -> bool:
        """Whether its next request waits for a slot and for nothing else, given whether it is held at all.

        If not, it has none to wait for: one that waits for something else, as for its account's debt or for
        the rest of its bytes, would keep a free slot from those behind it.
        """
        if self.due is not None and held and self._waits:
            return True
        self.step_aside()
        return False

    def forget(self) -> None:
        """The client takes no answers for now: those that the broker gives are not seen, however soon."""
        if self.due is not None:
            self.due.forget()

    def check(self) -> None:
        """Called once a second."""
        if self.due is not None:
            self.due.check()

    def close(self) -> None:
        """The connection, or that to the broker, is over, or it is not counted any more."""
        self.step_aside()
        self.forget()

    def _fails(self, length: int, key: int, requests: Behind, limiter: Limiter) -> bool:
        """Fail the request at the head; whether the next one may be looked at.

        Produce that may be kept until it is whole is told to try again. Of all others nobody knows what a
        client makes of an error, so the connection ends, and the client comes back after its own backoff.
        """
        link, frame = self._link, None
        if key == PRODUCE and length <= bounds.GATHERED_BYTES:
            requests.gather()
            frame = requests.next()
            if frame is None:
                # The rest of it must come before it can be answered.
                self._failing = True
                return False
        self._failing = False
        limiter.refuse()
        limiter.leave(self)
        header = None if frame is None else parse_header(frame)
        if frame is None or header is None or produce_acks(frame, header) == 0:
            link.end("no_slot")
            return False
        refused = dict.fromkeys(asked_in(frame, header).places, _NO_SLOT)
        link.answer(Request(frame, header, link.user), answer(header, refused))
        return True


def _passes(limiter: Limiter, key: int, version: int) -> bool:
    """Whether such a request need not wait: its class is exempt, or it is answered at once if need be."""
    if class_of(key) in limiter.exempt:
        return True
    # An older version has no error that says it, so it waits as all else does.
    return key in MUTATION_KEYS and version >= STRICT_FROM[key]
