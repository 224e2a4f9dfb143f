"""The short way of a connection: requests that are as the last one, and their answers.

With cold caches, as where a process waits for a broker, a request costs what of the process it touches
(docs/performance.md): here that is next to nothing. While the lane is open it alone knows what is under way;
whoever needs to know it, and whoever changes what a request may do, closes it first.
"""

import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from enforcer.core import bounds
from enforcer.core.metrics import Traffic
from enforcer.kafka.addresses.brokers import Repeats
from enforcer.kafka.guard.protected import LastRequest
from enforcer.kafka.part import Law, Slot
from enforcer.kafka.pipeline.responses import REPEATED_KEYS, TAIL_BYTES, Responses
from enforcer.wire.kafka.addresses import ENDPOINTS_FROM, may_hold_endpoints
from enforcer.wire.kafka.frames import CORRELATION_BYTES, LENGTH_BYTES, PRODUCE

_API: Final = struct.Struct(">hh")
_API_END: Final = LENGTH_BYTES + _API.size
_ID_END: Final = _API_END + CORRELATION_BYTES
_BODY: Final = LENGTH_BYTES + CORRELATION_BYTES
"""Where a response goes on behind its correlation id."""


class Lane:
    """The short way of one connection.

    Args:
        known: the last request that passed unread.
        laws: while one of them is active nothing passes here.
        responses: has what is under way while this is closed.
        repeats: answers that were changed before.
        traffic: counts what passes.
        limit: longest request and response accepted.
    """

    __slots__ = (
        "_answer", "_answer_length", "_api", "_asked", "_ends", "_first", "_given", "_known", "_laws",
        "_like", "_limit", "_repeated", "_repeats", "_responses", "_send", "_stop", "_traffic", "_write",
    )  # fmt: skip

    def __init__(
        self, known: LastRequest, laws: Sequence[Law], responses: Responses, repeats: Repeats,
        traffic: Traffic, limit: int,
    ) -> None:  # fmt: skip
        self._known, self._laws, self._responses = known, laws, responses
        self._repeats, self._traffic, self._limit = repeats, traffic, LENGTH_BYTES + limit
        # API and version; None: it is closed.
        self._api: bytes | None = None
        # What stands before the correlation id of a request that is the same else; None: no two need be.
        self._first: bytes | None = None
        self._like, self._stop = b"", 0
        self._repeated = self._ends = False
        # The last answer that was changed, what it became, and since when answers become that.
        self._answer_length, self._answer = b"", b""
        self._given: tuple[bytes, bytes, object] = b"", b"", None
        # Correlation ids of what is under way.
        self._asked: deque[bytes] = deque()
        self._send: Callable[[bytes], object] = _nowhere
        self._write: Callable[[bytes], object] = _nowhere

    def open(self, send: Callable[[bytes], object]) -> None:
        """Begin, if what is under way is as the last request; the caller has seen that nothing is unusual.

        Args:
            send: takes what the broker gets.
        """
        for law in self._laws:
            if law.active:
                return
        known, responses = self._known, self._responses
        key, version, due = known.key, known.version, responses.due
        if len(due) != len(responses.answers):
            return
        for slot in due:
            if slot.api_key != key or slot.api_version != version or slot.done is not None:
                return
        self._asked.extend(struct.pack(">i", slot.correlation_id) for slot in due)
        due.clear()
        responses.answers.clear()
        self._api, self._like, self._stop = _API.pack(key, version), known.looked_at, known.stop
        same = key != PRODUCE
        self._first = (known.stop - LENGTH_BYTES).to_bytes(LENGTH_BYTES) + self._api if same else None
        self._repeated = key in REPEATED_KEYS
        self._ends = key == PRODUCE and version >= ENDPOINTS_FROM[PRODUCE]
        self._send, self._write = send, responses.write

    def close(self) -> None:
        """End: what is under way goes back to where it is known else."""
        if self._api is None:
            return
        key, version = _API.unpack(self._api)
        self._api = self._first = None
        slots = [Slot(key, version, int.from_bytes(each, signed=True)) for each in self._asked]
        self._asked.clear()
        self._responses.answers.extend(slots)
        self._responses.due.extend(slots)

    def take(self, data: bytes) -> bool:
        """Send on whole requests, if all are as the last one; False: nothing was done.

        Args:
            data: what the client sent; nothing of it waits.
        """
        if data[:_API_END] == self._first and data[_ID_END:] == self._like:
            numbers = [data[_API_END:_ID_END]]
        elif self._api is None or not (numbers := self._cut(data)):
            return False
        asked = self._asked
        # The last one that may wait stops the reading.
        if len(asked) + len(numbers) >= bounds.INFLIGHT_MAX or not self._known.stands:
            return False
        for law in self._laws:
            if law.active:
                return False
        asked += numbers
        traffic = self._traffic
        traffic.frames_in += len(numbers)
        traffic.bytes_in += len(data)
        self._send(data)
        return True

    def _cut(self, data: bytes) -> list[bytes]:
        """The correlation ids of all that `data` holds; none: it holds something else, or a part."""
        api, like, stop, same = self._api, self._like, self._stop, self._first is not None
        # Said so, and not as list[bytes](), which takes twenty times as long, with an exception inside.
        numbers: list[bytes] = []
        pos, end = 0, len(data)
        while pos < end:
            size = LENGTH_BYTES + int.from_bytes(data[pos : pos + LENGTH_BYTES])
            if (
                data[pos + LENGTH_BYTES : pos + _API_END] != api
                or data[pos + _ID_END : pos + stop] != like
                or (size != stop and (same or not stop < size <= self._limit))
                or pos + size > end
            ):
                return []
            numbers.append(data[pos + _API_END : pos + _ID_END])
            pos += size
        return numbers

    def give(self, data: bytes) -> bool:
        """Hand on whole answers to what is under way here; False: nothing was done.

        Args:
            data: what the broker sent; nothing of it waits.
        """
        asked = self._asked
        if not asked:
            return False
        if self._repeated:
            number, (length, tail, since) = data[LENGTH_BYTES:_BODY], self._given
            if (
                number != asked[0]
                or data[_BODY:] != self._answer
                or data[:LENGTH_BYTES] != self._answer_length
                or since is not self._repeats.since
            ):
                return number == asked[0] and self._meet(data) and self.give(data)
            asked.popleft()
            data = length + number + tail
        elif not self._give_all(data):
            return False
        self._traffic.bytes_out += len(data)
        self._write(data)
        return True

    def _meet(self, data: bytes) -> bool:
        """Find out what another answer than the last becomes."""
        found = self._repeats.find(self._known.key, self._known.version, data[_BODY:])
        if found is None or LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES]) != len(data):
            return False
        self._answer_length, self._answer = data[:LENGTH_BYTES], data[_BODY:]
        self._given = *found, self._repeats.since
        return True

    def _give_all(self, data: bytes) -> bool:
        asked, pos, end, count = self._asked, 0, len(data), 0
        while pos < end:
            stop = pos + LENGTH_BYTES + int.from_bytes(data[pos : pos + LENGTH_BYTES])
            if (
                count == len(asked)
                or data[pos + LENGTH_BYTES : pos + _BODY] != asked[count]
                or not pos + _BODY <= stop <= min(end, pos + self._limit)
                or (self._ends and may_hold_endpoints(PRODUCE, data[stop - TAIL_BYTES : stop]))
            ):
                return False
            count += 1
            pos = stop
        for _ in range(count):
            asked.popleft()
        return True


def _nowhere(_data: bytes) -> None:
    raise AssertionError("it is not open")
