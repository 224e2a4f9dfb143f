"""One connection before the concurrency limit of its broker (docs/protocol_notes.md 3.7)."""

import struct
from collections import deque
from collections.abc import Callable
from math import ceil
from typing import Final, Protocol

from enforcer.core.settings import ProxySettings
from enforcer.kafka.concurrency.classes import ADMIN_CLASS, class_of
from enforcer.kafka.concurrency.due import CountedDue
from enforcer.kafka.concurrency.prompt import prompt_fetches
from enforcer.kafka.concurrency.refusal import timed_out
from enforcer.kafka.link import Line, Slot
from enforcer.kafka.requests import Requests
from enforcer.kafka.responses import Responses
from enforcer.laws.concurrency.limiter import Limiter
from enforcer.wire.kafka.answers import refuse_all
from enforcer.wire.kafka.frames import PRODUCE, parse_header, produce_acks
from enforcer.wire.kafka.mutations import MUTATION_KEYS, STRICT_FROM, MutationApi, MutationRequest

_HEAD: Final = struct.Struct(">4xhh")
_NS_PER_MS: Final = 1_000_000


class Pause(Protocol):
    """What holds the connection back; see pacing.Pacer."""

    def pause(self, wait_ms: float) -> None:
        """Handle nothing until `wake`, and for so long at most."""
        ...

    def wake(self) -> None:
        """Handle the request at the head again, soon."""
        ...


class Flow:
    """Decides whether the request at the head of a connection may be sent.

    Args:
        limiter: of the broker.
        pause: holds the connection back.
        sent: what the broker has to answer already.
        settings: how long a request may wait, and what those are told that do not.
        coming: tells which request was sent in part.
    """

    def __init__(
        self,
        limiter: Limiter,
        pause: Pause,
        sent: deque[Slot],
        settings: ProxySettings,
        coming: Callable[[], Slot | None],
    ) -> None:
        self.limiter = limiter
        self.due = CountedDue(limiter, sent, coming, self)
        """What the broker has to answer; in the place of `Responses.due`."""
        self._pause = pause
        self._wait_ns = settings.inflight_wait_ms * _NS_PER_MS
        self._throttle_ms = settings.inflight_throttle_ms
        self._failing = False
        self.room = 1
        """How many requests may be sent at once by who was just told to go on."""
        self.waits = False
        """Whether what the request at the head was last told to wait for is a slot."""

    @property
    def spare(self) -> bool:
        """Whether any request may be sent, without a look at it."""
        return self.limiter.spare

    @property
    def refuses_mutations(self) -> bool:
        """Whether a request for mutations is answered with error 89 instead of being looked at."""
        limiter = self.limiter
        return not limiter.spare and ADMIN_CLASS not in limiter.exempt

    def wake(self) -> None:
        """A slot may be free (limiter.Waiter)."""
        self._pause.wake()

    def goes(self, requests: Requests, line: Line) -> bool:
        """Whether the request at the head may be sent; if not, the connection is paused and in line.

        One that has waited too long, or finds the line full, fails, and the next one is looked at.

        Args:
            requests: of the connection.
            line: the connection.

        Raises:
            BadFrame: one that must fail cannot be read, or is longer than may be kept.
        """
        limiter = self.limiter
        self.waits = False
        while requests.left_bytes >= _HEAD.size:
            key, version = _HEAD.unpack_from(requests.data, requests.pos)
            if self._passes(key, version):
                self.room = 1
                return True
            if not self._failing and limiter.admits(self):
                self.room = limiter.room(self)
                return True
            waited_ns = None if self._failing else limiter.wait(self)
            if waited_ns is not None and waited_ns < self._wait_ns:
                self.waits = True
                self._pause.pause(ceil((self._wait_ns - waited_ns) / _NS_PER_MS))
                return False
            if not self._fails(key, requests, line):
                return False
        # Not even its head is here.
        return True

    def refuse_mutations(self, request: MutationRequest) -> bytes:
        """The answer to a request for mutations that finds no slot: it is neither judged nor charged."""
        self.limiter.refuse()
        message = "The broker has as many requests in flight as its concurrency limit allows; try again."
        return refuse_all(request, self._throttle_ms, message)

    def look_over(self, piece: bytes | bytearray | memoryview) -> None:
        """These requests, with their lengths, are about to be sent: note what `due` cannot see."""
        self.due.prompt |= prompt_fetches(piece)

    def step_aside(self) -> None:
        """Its next request cannot go on for now: nobody shall wait for it."""
        self.limiter.leave(self)

    def close(self) -> None:
        """The connection, or that to the broker, is over, or it is not counted any more."""
        self.limiter.leave(self)
        self.due.forget()

    def _fails(self, key: int, requests: Requests, line: Line) -> bool:
        """Fail the request at the head; whether the next one may be looked at.

        Produce is told to try again. Of all others nobody knows what a client makes of an error, so the
        connection ends, and the client comes back after its own backoff.
        """
        frame = None
        if key == PRODUCE:
            requests.gather()
            frame = requests.next()
            if frame is None:
                # The rest of it must come before it can be answered.
                self._failing = True
                return False
        self._failing = False
        self.limiter.refuse()
        self.limiter.leave(self)
        header = None if frame is None else parse_header(frame)
        if frame is None or header is None or produce_acks(frame, header) == 0:
            line.end("no_slot")
            return False
        slot = Slot(*header[:3])
        slot.response = timed_out(frame, header)
        line.reply(slot)
        return True

    def _passes(self, key: int, version: int) -> bool:
        """Whether such a request need not wait: its class is exempt, or it is answered at once if need be."""
        kind = class_of(key)
        if kind in self.limiter.exempt:
            return True
        # An older version has no error that says it, so it waits as all else does.
        return key in MUTATION_KEYS and version >= STRICT_FROM[MutationApi(key)]


class Counting:
    """Where the requests in flight of a connection count, which may change while it is open.

    Attributes:
        flow: before the limiter of its broker; None: nowhere, as of most connections.

    Args:
        pause: holds the connection back.
        responses: its answers; `due` of these is counted.
        settings: see Flow.
        coming: see Flow.
    """

    def __init__(
        self,
        pause: Pause,
        responses: Responses,
        settings: ProxySettings,
        coming: Callable[[], Slot | None],
    ) -> None:
        self.flow: Flow | None = None
        self._coming = coming
        self._pause = pause
        self._responses = responses
        self._settings = settings

    def count_by(self, limiter: Limiter | None) -> None:
        """From now on its requests in flight count here; None: nowhere (measuring.Counted)."""
        before, responses = self.flow, self._responses
        if limiter is (None if before is None else before.limiter):
            return
        self.flow = None
        if before is not None:
            before.close()
            # Whoever waited for the old one asks again.
            self._pause.wake()
        if limiter is None:
            responses.due = deque(responses.due)
            return
        self.flow = Flow(limiter, self._pause, responses.due, self._settings, self._coming)
        responses.due = self.flow.due

    def step_aside(self) -> None:
        """Its next request cannot go on for now: nobody shall wait for it."""
        if self.flow is not None:
            self.flow.step_aside()

    def waits(self, held: bool) -> bool:
        """Whether its next request waits for a slot and for nothing else, given whether it is held at all.

        If not, it has none to wait for: one that waits for something else, as for its account's debt or for
        the rest of its bytes, would keep a free slot from those behind it.
        """
        flow = self.flow
        if flow is None:
            return False
        if held and flow.waits:
            return True
        flow.step_aside()
        return False

    def forget(self) -> None:
        """The client takes no answers for now: those that the broker gives are not seen, however soon."""
        if self.flow is not None:
            self.flow.due.forget()

    def check(self) -> None:
        """Called once a second."""
        if self.flow is not None:
            self.flow.due.check()

    def close(self) -> None:
        """The connection is over, or that to the broker."""
        if self.flow is not None:
            self.flow.close()
