"""A broker's responses on their way to the client: passed on in runs, changed where a rule needs it.

Sans-IO, like `requests`. Answers leave in the order of the requests, those that the proxy gives itself among
them.
"""

import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from enforcer.core.metrics import Traffic
from enforcer.host.moving import MOVED_FROM_BYTES, MOVED_FROM_READ_BYTES
from enforcer.kafka.addresses.brokers import REPEATED_BYTES, Repeats
from enforcer.kafka.addresses.fetch_walk import FetchWalk
from enforcer.kafka.guard.answers import SHOWN_KEYS, Rewrite
from enforcer.kafka.part import Slot
from enforcer.wire.kafka.addresses import ENDPOINTS_FROM, REWRITTEN_KEYS, may_hold_endpoints
from enforcer.wire.kafka.frames import (
    API_VERSIONS,
    CORRELATION_BYTES,
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    LENGTH,
    LENGTH_BYTES,
    METADATA,
    BadFrame,
    Reason,
    Unread,
)
from streaming.contract.errors import WeirError

_READ_KEYS: Final = REWRITTEN_KEYS | SHOWN_KEYS
_GATHERED_KEYS: Final = _READ_KEYS - {FETCH}
REPEATED_KEYS: Final = frozenset({API_VERSIONS, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER})
"""Their answers follow from the broker's bytes and our ports alone, and are the same again and again."""
TAIL_BYTES: Final = 8
"""`may_hold_endpoints` looks at no more than so many bytes at the end."""
_HEAD = struct.Struct(">ii")  # length, correlation id

Write = Callable[[bytes | bytearray | memoryview], object]
Move = Callable[[int], int]


class Responses(Unread):
    """The answers of one connection."""

    __slots__ = (
        "_max_frame_bytes", "_out", "_repeats", "_rewrite", "_traffic", "_walk",
        "answers", "due", "kept_bytes", "move", "passing", "write",
    )  # fmt: skip

    def __init__(self, max_frame_bytes: int, rewrite: Rewrite, traffic: Traffic, repeats: Repeats) -> None:
        super().__init__()
        self._max_frame_bytes = max_frame_bytes
        self._rewrite = rewrite
        self._traffic = traffic
        self._repeats = repeats
        self.passing = 0
        """Bytes still to come of a response whose beginning has left: that of the first of `answers`."""
        # Reads what is still to come of it, if that is needed.
        self._walk: FetchWalk | None = None
        self._out: list[bytes | bytearray | memoryview] = []
        self.answers: deque[Slot] = deque()
        """What the client waits for, in the order of its requests."""
        self.due: deque[Slot] = deque()
        """What the broker has to answer, in the order in which it was asked."""
        self.kept_bytes = 0
        """Answers of our own that wait for earlier ones."""
        self.write: Write = _nowhere
        """Takes what the client gets."""
        self.move: Move = _moves_nothing
        """Moves some of so many bytes that the broker sends next to the client; returns how many."""

    def take(self, data: bytes) -> None:
        """Pass on what the broker sent.

        Raises:
            WeirError: it fits no request, cannot be read, or names a broker that we cannot stand for; what
                came before it has been passed on.
        """
        taken = 0
        # Answers of ours that wait have their place between the broker's.
        if not (self.data or self.passing or self.kept_bytes):
            taken = self._pass_whole(data, 0)
            if taken == len(data):
                self._write()
                return
        if self.passing:
            self._take_body(data)
        elif not self.add(data):
            return
        self.pos += taken
        try:
            while self._next():
                pass
            self._gather()
        finally:
            if self.pos == len(self.data):
                # An idle connection keeps nothing of the last response.
                self.data, self.pos = b"", 0
            self._write()
        if self.passing >= MOVED_FROM_BYTES and len(data) >= MOVED_FROM_READ_BYTES:
            self._move()

    def _move(self) -> None:
        """Much has come, so more of it is likely here: what nobody reads need not come to us."""
        # Of a response its last byte is taken, whatever it is.
        unread = self.passing - 1 if self._walk is None else self._walk.unread
        if unread < MOVED_FROM_BYTES:
            return
        count = self.move(unread)
        self.passing -= count
        self._traffic.bytes_out += count
        if self._walk is not None:
            self._walk.moved(count)

    def _pass_whole(self, data: bytes | bytearray, pos: int) -> int:
        """Pass on the whole answers from there on about which nothing has to be found out: nearly always all.

        All in one place: a call more costs a process that finds its caches cold a microsecond.

        Returns:
            Where the others begin.
        """
        due, answers, out = self.due, self.answers, self._out
        end, same_from = len(data), pos
        while end - pos >= _HEAD.size and due and answers:
            length, correlation_id = _HEAD.unpack_from(data, pos)
            slot, stop = due[0], pos + LENGTH_BYTES + length
            if (
                stop > end
                or not CORRELATION_BYTES <= length <= self._max_frame_bytes
                or answers[0] is not slot
                or slot.correlation_id != correlation_id
                or (
                    slot.done is not None
                    and not (slot.unless and data.startswith(slot.unless, pos + _HEAD.size))
                )
            ):
                break
            key, body = slot.api_key, pos + _HEAD.size
            if key in REPEATED_KEYS:
                if stop - body > REPEATED_BYTES:
                    break
                known = self._repeats.find(key, slot.api_version, bytes(data[body:stop]))
                if known is None:
                    break
                if pos > same_from:
                    out.append(data[same_from:pos])
                out += (known[0], data[pos + LENGTH_BYTES : body], known[1])
                same_from = stop
            elif key in _READ_KEYS:
                endpoints_from = ENDPOINTS_FROM.get(key, 0)
                tail = data[max(pos + LENGTH_BYTES, stop - TAIL_BYTES) : stop]
                if slot.api_version >= endpoints_from and (
                    not endpoints_from or may_hold_endpoints(key, tail)
                ):
                    break
            due.popleft()
            answers.popleft()
            # It holds its slot: nothing shall wait for the collector.
            slot.done = None
            pos = stop
        if pos > same_from:
            self._own = False
            out.append(data if pos - same_from == end else memoryview(data)[same_from:pos])
        return pos

    def respond(self, slot: Slot, response: bytes) -> None:
        """Take a response, once all who asked for it have read it, as the answer.

        Raises:
            WeirError: it cannot be read, or names a broker that we cannot stand for.
        """
        slot.response = self._rewrite(slot.api_key, slot.api_version, response)

    def drop(self) -> None:
        """The connection is over: keep nothing."""
        self.data, self.pos, self.kept_bytes = b"", 0, 0
        self.answers.clear()
        self.due.clear()
        self._out.clear()

    def flush(self) -> None:
        """Write the answers that are ready, as far as no earlier one is missing; the others are kept.

        Raises:
            WeirError: one cannot be read; what came before it has been written.
        """
        try:
            self._gather()
            self._count_kept()
        finally:
            self._write()

    def _gather(self) -> None:
        answers = self.answers
        while answers and (response := answers[0].response) is not None:
            slot = answers.popleft()
            if slot.finish is not None:
                response = slot.finish(response)
            self._out += (len(response).to_bytes(LENGTH_BYTES, "big"), response)
        if self.kept_bytes:
            self._count_kept()

    def _count_kept(self) -> None:
        self.kept_bytes = sum(len(slot.response) for slot in self.answers if slot.response is not None)

    def _write(self) -> None:
        """One system call for all that is ready: it costs more than all our work on a small answer."""
        out = self._out
        if not out:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self._traffic.bytes_out += len(data)
        self.write(data)

    def _take_body(self, data: bytes) -> None:
        size = min(self.passing, len(data))
        self.passing -= size
        if not self.passing:
            self.answers.popleft()
        self.add(data)
        self.pos = size
        self._walk_over(self.slice(0, size))

    def _walk_over(self, piece: bytes | bytearray | memoryview) -> None:
        """Write a piece of the response that is passing, as far as it may leave."""
        if self._walk is None:
            self._out.append(piece)
            return
        stop, tail = self._walk.take(piece)
        if stop:
            self._out.append(piece if stop == len(piece) else piece[:stop])
        if tail:
            self._out.append(tail)
        if not self.passing:
            self._walk = None

    def _next(self) -> bool:
        """Handle what passes whole, and the response behind it; False: more of that must come.

        Raises:
            WeirError: it fits no request, its length is impossible, or it cannot be read.
        """
        data, due, self.need = self.data, self.due, 0
        self.pos = pos = self._pass_whole(data, self.pos)
        if len(data) - pos < _HEAD.size:
            if len(data) - pos >= LENGTH_BYTES and LENGTH.unpack_from(data, pos)[0] < CORRELATION_BYTES:
                # It would be waited for in vain.
                raise BadFrame(Reason.TRUNCATED_HEADER)
            return False
        length, correlation_id = _HEAD.unpack_from(data, pos)
        if not CORRELATION_BYTES <= length <= self._max_frame_bytes:
            raise BadFrame(Reason.TRUNCATED_HEADER if length < CORRELATION_BYTES else Reason.TOO_LARGE)
        if not due or due[0].correlation_id != correlation_id:
            raise WeirError("a broker's response fits no request")
        slot, stop = due[0], pos + LENGTH_BYTES + length
        if stop <= len(data):
            self.pos = stop
            self._read(due.popleft(), self.copy(pos + LENGTH_BYTES, stop))
            self._gather()
            return True
        read = slot.api_key in _GATHERED_KEYS and slot.api_version >= ENDPOINTS_FROM.get(slot.api_key, 0)
        if read or slot.done is not None or not self.answers or self.answers[0] is not slot:
            self.need = stop - pos
            return False
        due.popleft()
        leaves, behind = len(data), b""
        self.passing, self.pos = stop - leaves, leaves
        if slot.api_key == FETCH and slot.api_version >= ENDPOINTS_FROM[FETCH]:
            self._walk = FetchWalk(length, partial(self._rewrite, FETCH, slot.api_version))
            start = pos + LENGTH_BYTES
            leaves, behind = self._walk.take(self.slice(start, leaves))
            leaves += start
        self._out.append(self.slice(pos, leaves))
        if behind:
            self._out.append(behind)
        return False

    def _read(self, slot: Slot, response: bytes) -> None:
        """Let the rules have a response; the client gets its own in turn."""
        key, version = slot.api_key, slot.api_version
        if slot.done is not None:
            # It holds its slot, which holds the answer: let go of it, or megabytes wait for the collector.
            done, slot.done = slot.done, None
            done(response)
            return
        slot.response = shown = self._rewrite(key, version, response)
        if key in REPEATED_KEYS and len(response) <= REPEATED_BYTES:
            self._repeats.keep(key, version, response[CORRELATION_BYTES:], shown[CORRELATION_BYTES:])


def _nowhere(_data: bytes | bytearray | memoryview) -> None:
    raise AssertionError("there is no client yet")


def _moves_nothing(_count: int) -> int:
    return 0
