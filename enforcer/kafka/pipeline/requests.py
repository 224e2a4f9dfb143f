"""A client's requests as they come: those that no rule needs are passed on unread, in runs of whole frames.

Sans-IO. What is cut out here costs nothing per byte: a run is a slice of what the socket gave, and the body
of a large request passes as it comes instead of being gathered first.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from enforcer.core import bounds
from enforcer.kafka.groups.frames import GROUP_KEYS
from enforcer.kafka.guard.apis import ANY_VERSION, HIDDEN, READABLE
from enforcer.kafka.guard.protected import (
    ALWAYS_READ,
    KNOWN_BYTES,
    PLAIN_TOPICS_AT,
    REPEATED_KEYS,
    InForce,
    LastRequest,
    OwnTopics,
)
from enforcer.kafka.part import NO_KEYS, Request, Slot
from enforcer.wire.kafka.frames import (
    API_VERSIONS,
    FLEXIBLE_FROM,
    HEAD,
    LENGTH,
    LENGTH_BYTES,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SASL_KEYS,
    BadFrame,
    Reason,
    Unread,
    parse_header,
)
from enforcer.wire.kafka.mutations import MUTATION_KEYS
from enforcer.wire.kafka.sasl import TOKEN_BYTES
from enforcer.wire.kafka.traffic import produce_acks

STREAMED_FROM_BYTES: Final = 16_384
"""A request at least so long is passed on while it comes; shorter ones are not worth two writes."""

_NO_ACKS: Final = b"\0\0"
# A null transactional id of Produce 3-8, and of 9 and later behind an empty tagged section.
_NO_TRANSACTION: Final = (b"\xff\xff", b"\0\0")
_PLAIN_HEAD_BYTES: Final = 4
# Client id and transactional id are far shorter in practice than the 32 kB that each may have.
_HEAD_WITHIN_BYTES: Final = (1_024, 131_072)
_SMALL_KEYS: Final = frozenset({SASL_HANDSHAKE, API_VERSIONS})
_TOKEN_PLACE_BYTES: Final = 64
"""What stands around a SASL token and the client id, and some of what may come to stand there."""
_READ_KEYS: Final = MUTATION_KEYS | ALWAYS_READ | SASL_KEYS

UNREAD: Final[Mapping[int, tuple[int, int]]] = MappingProxyType(
    {
        key: READABLE.get(key, ANY_VERSION)
        for key in FLEXIBLE_FROM
        if key not in _READ_KEYS and key not in HIDDEN
    }
)
"""API -> first and last version whose requests may pass unread; of Produce the beginning is looked at."""

MustRead = Callable[[int, bytes], bool]
"""(API, client id) -> whether a rule needs the body of such a request now; asked of `Requests.asked` only."""


class Requests(Unread):
    """The requests of one connection.

    Args:
        max_frame_bytes: longest request accepted; a longer one is refused as soon as its length is read.
        must_read: tells which of the requests that may pass unread are needed all the same.
        protected: what a request that passes unread must not name.
        in_force: another object when `must_read` may say otherwise, while nothing is metered.
    """

    __slots__ = (
        "_limits", "_must_read", "_protected", "_token_bytes",
        "asked", "frames", "known", "max_frame_bytes", "passing", "passing_slot", "waiting", "waiting_bytes",
    )  # fmt: skip

    def __init__(
        self, max_frame_bytes: int, must_read: MustRead, protected: OwnTopics, in_force: InForce
    ) -> None:
        super().__init__()
        self.known = LastRequest(protected, in_force)
        """The last request that passed unread and was answered."""
        # The longest request that is gathered to be read; of those that need no login, and of what is no
        # request at all; of Produce.
        self._limits = (
            bounds.MAX_ADMIN_FRAME_BYTES, bounds.MAX_UNAUTHENTICATED_FRAME_BYTES, bounds.GATHERED_BYTES,
        )  # fmt: skip
        self._token_bytes = TOKEN_BYTES
        self.max_frame_bytes = max_frame_bytes
        self._must_read = must_read
        self._protected = protected
        self.asked: frozenset[int] = NO_KEYS
        """APIs that `must_read` is asked about."""
        self.frames = 0
        """Requests that have come whole."""
        self.waiting = 0
        """Those of them that are not handled yet, as far as `count` has seen them."""
        self.waiting_bytes = 0
        """Their bytes."""
        self.passing = 0
        """Bytes still to come of a request whose beginning was passed on."""
        self.passing_slot: Slot | None = None
        """The slot of the newest such request, None if it is not answered."""

    @property
    def incomplete(self) -> bool:
        """Whether a request has begun to come and is not whole."""
        return self.passing > 0 or self.left_bytes > self.waiting_bytes

    @property
    def coming(self) -> Slot | None:
        """The slot of the request whose beginning was passed on and whose end has not come; None: of none."""
        return self.passing_slot if self.passing else None

    def take_body(self, data: bytes) -> bytes | bytearray | memoryview:
        """The part of what the socket gave that belongs to the request that is passing; keeps the rest."""
        size = min(self.passing, len(data))
        self.passing -= size
        self.frames += not self.passing
        self.add(data)
        self.pos = size
        return self.slice(0, size)

    def run(self, slots: list[Slot], room: int) -> bytes | bytearray | memoryview:
        """The requests at the front that no rule needs, lengths included, as one piece to be sent on.

        It ends before a request that must be read, at one that is not whole (of which the part that is here
        is taken too, if it is large), or behind `room` requests.

        Args:
            slots: gets a slot for each request that will be answered.
            room: how many it has at most.

        Raises:
            BadFrame: a length is negative or above the limit.
        """
        data, start = self.data, self.pos
        pos, last, end, count = start, start, len(data), 0
        self.need = 0
        for _ in range(room):
            if end - pos < HEAD.size:
                self.need = self._short(pos)
                break
            length, key, version, correlation_id, name_bytes = HEAD.unpack_from(data, pos)
            if not 0 <= length <= self.max_frame_bytes:
                raise _bad_length(length)
            stop = pos + LENGTH_BYTES + length
            if stop > end and length < STREAMED_FROM_BYTES:
                self.need = stop - pos
                break
            answered = self._passes(pos, stop, key, version, name_bytes)
            if answered is None:
                # Either its head is not here yet, or it is gathered.
                self.need = self.need or self._gathered(pos)
                break
            if answered:
                slots.append(Slot(key, version, correlation_id))
            if stop > end:
                self.passing = stop - end
                self.passing_slot = slots[-1] if answered else None
                pos = end
                break
            count += 1
            last, pos = pos, stop
        if self.waiting:
            self.advance(pos, count)
        else:
            self.frames += count
            self.pos = pos
        if pos == start:
            return b""
        if pos == end and answered and not self.passing:
            if key in REPEATED_KEYS:
                # The next one may be like it.
                self.known.keep(data[last : last + KNOWN_BYTES], pos - last, key, version, name_bytes)
            else:
                self.known.forget()
        return data if pos - start == end else self.slice(start, pos)

    def next(self) -> bytes | None:
        """The payload of the request at the front; None if it is not whole.

        Raises:
            BadFrame: its length is negative or above the limit.
        """
        start, stop = self.pos + LENGTH_BYTES, self._stop(self.pos)
        if stop < 0:
            return None
        self.need = 0
        self.advance(stop, 1)
        self.known.forget()
        return self.copy(start, stop)

    def gather(self) -> None:
        """Keep the request at the front until it is whole, though it might pass unread.

        Raises:
            BadFrame: its length is impossible, or it is longer than may be kept.
        """
        if self._stop(self.pos) < 0 and self.left_bytes >= HEAD.size:
            self.need = self._gathered(self.pos)

    def expect_token(self, most: int) -> None:
        """Gather no SASL token that is longer."""
        self._token_bytes = most

    def put_back(self, request: Request) -> None:
        """Undo the last `next`, and what was done for the request since: it stays at the front."""
        if request.undo is not None:
            request.undo()
        request.ends, size = "", LENGTH_BYTES + len(request.whole)
        self.pos -= size
        self.waiting, self.waiting_bytes = self.waiting + 1, self.waiting_bytes + size

    def count(self) -> None:
        """Count the requests that wait.

        Raises:
            BadFrame: a length is negative or above the limit.
        """
        pos = self.pos + self.waiting_bytes
        while (stop := self._stop(pos)) >= 0:
            self.waiting += 1
            self.frames += 1
            pos = stop
        self.waiting_bytes = pos - self.pos

    def advance(self, pos: int, count: int) -> None:
        """So many whole requests up to a place were handled."""
        seen = min(count, self.waiting)
        self.waiting -= seen
        self.waiting_bytes = max(0, self.waiting_bytes - (pos - self.pos)) if self.waiting else 0
        self.frames += count - seen
        self.pos = pos

    def _stop(self, pos: int) -> int:
        """Where the frame at `pos` ends; -1 if it is not whole."""
        if len(self.data) - pos < LENGTH_BYTES:
            return -1
        (length,) = LENGTH.unpack_from(self.data, pos)
        if not 0 <= length <= self.max_frame_bytes:
            raise _bad_length(length)
        stop: int = pos + LENGTH_BYTES + length
        return stop if stop <= len(self.data) else -1

    def _short(self, pos: int) -> int:
        """Bytes needed from `pos` on when a header's length is not there; a whole frame may be shorter."""
        if len(self.data) - pos < LENGTH_BYTES:
            return HEAD.size if len(self.data) == pos else LENGTH_BYTES
        (length,) = LENGTH.unpack_from(self.data, pos)
        if not 0 <= length <= self.max_frame_bytes:
            raise _bad_length(length)
        return min(LENGTH_BYTES + int(length), HEAD.size)

    def _gathered(self, pos: int) -> int:
        """Bytes from `pos` to the end of a request that is kept until it is whole; its head is here.

        Raises:
            BadFrame: it is longer than such a request may be.
        """
        admin_bytes, small_bytes, data_bytes = self._limits
        length, key, version, _, name_bytes = HEAD.unpack_from(self.data, pos)
        if key == PRODUCE:
            first, last = UNREAD[PRODUCE]
            # A damaged one is nobody's data.
            limit = data_bytes if first <= version <= last and name_bytes >= -1 else small_bytes
        elif key == SASL_AUTHENTICATE:
            limit = self._token_bytes + max(0, name_bytes) + _TOKEN_PLACE_BYTES
        else:
            limit = small_bytes if key in _SMALL_KEYS or key not in FLEXIBLE_FROM else admin_bytes
        if length > limit:
            raise BadFrame(Reason.TOO_LARGE)
        return LENGTH_BYTES + int(length)

    def _passes(self, pos: int, stop: int, key: int, version: int, name_bytes: int) -> bool | None:
        """Whether the request from `pos` to `stop`, which may not be whole, may pass unread.

        Returns:
            None: a rule needs its body, or it is damaged, or `need` bytes are needed to tell; else whether it
            will be answered.
        """
        span = UNREAD.get(key)
        if span is None or not span[0] <= version <= span[1]:
            return None
        name = pos + HEAD.size
        if not -1 <= name_bytes <= stop - name:
            return None
        # A leader's SyncGroup may be longer than what is gathered; then it only is not learnt from.
        if key in self.asked and not (key in GROUP_KEYS and stop - pos > self._limits[0]):
            name_stop = name + max(0, name_bytes)
            if name_stop > len(self.data):
                self.need = name_stop - pos
                return None
            if self._must_read(key, bytes(self.data[name:name_stop])):
                return None
        if key == PRODUCE:
            return self._produce(pos, stop, version, max(0, name_bytes))
        ids_from = self._protected.searched.get(key)
        if ids_from is None:
            return True
        # What is not here yet may name anything.
        if stop > len(self.data) or self._protected.may_be_in(self.data, name, stop, version >= ids_from):
            return None
        return True

    def _produce(self, pos: int, stop: int, version: int, name_bytes: int) -> bool | None:
        """Whether the Produce request at `pos` asks for acks; None if it must be read, or is not here.

        Without acks the broker sends no response; waiting for one would shift all that follow.
        """
        data, protected = self.data, self._protected
        start = pos + HEAD.size + name_bytes
        head = data[start : min(stop, start + _PLAIN_HEAD_BYTES)]
        # As nearly always: no transactional id and, in the flexible versions, no tags before it.
        if len(head) == _PLAIN_HEAD_BYTES and version >= 3 and head[:2] == _NO_TRANSACTION[version >= 9]:
            answered = head[2:] != _NO_ACKS
            if not protected.active:
                return answered
            ours = protected.plain_names_ours(data, start + PLAIN_TOPICS_AT, stop, version)
        else:
            told = self._longer_head(pos, stop)
            if told is None:
                return None
            answered, ours = told
        if ours is None and stop > len(data):
            if len(data) < start + _HEAD_WITHIN_BYTES[0]:
                # One topic may be seen then; several are gathered.
                self.need = len(data) - pos + 1
        elif ours is None:
            ours = self._walked(pos, stop)
        return answered if ours is False else None

    def _walked(self, pos: int, stop: int) -> bool | None:
        """Whether a whole Produce request of several topics names what is ours; None: it is damaged."""
        # Up to here a search of all of it costs less than a walk.
        if stop - pos < STREAMED_FROM_BYTES and not self._protected.may_be_in(self.data, pos, stop, True):
            return False
        frame = self.copy(pos + LENGTH_BYTES, stop)
        try:
            return self._protected.names_ours(frame, parse_header(frame))
        except BadFrame:
            return None

    def _longer_head(self, pos: int, stop: int) -> tuple[bool, bool | None] | None:
        """Whether a Produce request with a transactional id or tags asks for acks and names what is ours.

        None: it must be read, or looked at again when there is more of it.
        """
        protected, here = self._protected, min(stop, len(self.data))
        for within in _HEAD_WITHIN_BYTES:
            frame = self.copy(pos + LENGTH_BYTES, min(here, pos + within))
            try:
                header = parse_header(frame)
                acks = produce_acks(frame, header)
                return acks != 0, protected.active and protected.head_names_ours(frame, header)
            except BadFrame:
                pass
        if here < min(stop, pos + _HEAD_WITHIN_BYTES[-1]):
            # What can pass unread is not gathered.
            self.need = here - pos + 1
        return None


def _bad_length(length: int) -> BadFrame:
    return BadFrame(Reason.NEGATIVE_LENGTH if length < 0 else Reason.TOO_LARGE)
