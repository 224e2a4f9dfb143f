"""One connection's part in metering: its requests wait while those who are charged for them owe."""

import struct
from collections.abc import Callable, Generator
from typing import Final, NamedTuple

from enforcer.core import bounds
from enforcer.core.account import DISPATCH, PUBLISH, Account, Wait
from enforcer.core.lines import Pause
from enforcer.core.metrics import Metrics
from enforcer.kafka.dispatch.fetch_responses import answer_of, changed
from enforcer.kafka.names import NameResolver
from enforcer.kafka.share_sessions import OUTSIDE, SHARE_TOPICS_MAX, Asking, ShareSession
from enforcer.kafka.shares.frame_meter import FETCH_SLICE_MS, FrameMeter
from enforcer.laws.shares.line_up import LineUp
from enforcer.laws.shares.topic_accounts import Bill, ChargeResult
from enforcer.wire.kafka.frames import Frame, RequestHeader, TooManyRows
from enforcer.wire.kafka.outcomes import emptied, refused, surely_accepted
from enforcer.wire.kafka.traffic import (
    FETCH_IDS_FROM,
    METADATA_IDS_FROM,
    UNKNOWN_SESSION,
    FetchSummary,
    Part,
    TopicUse,
    fetch_session,
    fetch_told,
    fetched_in_steps,
    fetching,
    session_of,
    with_limit,
    with_session,
)
from streaming.contract.names import QUOTA_GROUP_PREFIX
from streaming.contract.usage_events import DIMENSIONS

LEARN_MAX_BYTES: Final = 262_144
"""Larger Metadata responses are not read for topic ids; they are looked up when needed."""

_LENGTH: Final = struct.Struct(">8xi")
"""Of a batch, from behind itself on; its offset stands before it."""
_HEADS_MAX_BYTES: Final = 262_144
"""A response with more beyond its limit has too many partitions to be cut at once, or one batch above it."""


class AdmittedProduce(NamedTuple):
    """A Produce request that goes on.

    Attributes:
        bill: who was charged for it.
        charged: what came of that.
        parts: what each partition gets.
        told_ms: throttle time for its response; 0: none.
    """

    bill: Bill
    charged: ChargeResult
    parts: list[Part]
    told_ms: int


class ConnectionMeter:
    """A connection as the meter sees it.

    Attributes:
        naming: the names of its topics, and whether it was let in: before that nothing is charged.
        line_up: its place among those that wait for accounts.
    """

    def __init__(self, frames: FrameMeter, metrics: Metrics, pause: Pause, naming: NameResolver) -> None:
        self.naming = naming
        self._frames = frames
        self._meter = frames.meter
        self._steady_ms = frames.meter.clock.steady_ms
        self._metrics = metrics
        self.line_up = LineUp(frames.meter.lines, pause, bounds.MUTE_SPLIT_MS, FETCH_SLICE_MS)
        self._session: list[bytes] = []
        self._fetched, self._begun = ShareSession(), frames.meter.begun
        self._session_ids = False
        self._seen: tuple[ShareSession, int, int, bool] | None = None
        self.asking = OUTSIDE
        """The request of a session that was asked about last."""
        # That began one here last, and what the broker calls that; None: none has begun here.
        self._begins = OUTSIDE
        self._number: int | None = None
        # Topics that were in no request that was read, and have brought something.
        self._unnamed: list[bytes] = []
        self._accounts: set[Account] = set()
        self._found_by: tuple[int, int] | None = None

    @property
    def partitions(self) -> int:
        """How many are remembered."""
        return self._fetched.partitions

    def produce(self, frame: Frame, header: RequestHeader, user: str) -> AdmittedProduce | None:
        """Charge a Produce request; None: it must wait, and is to be handled again when the pause is over.

        Raises:
            BadFrame: it cannot be read.
        """
        if self.naming.must_prove():
            return None
        parts: list[Part] = []
        bill = self._frames.produced(frame, header, user, parts)
        if bill.unknown and self.naming.must_wait(bill.unknown):
            return None
        now_ms = self._steady_ms()
        if not self.line_up.admits(bill.owed, now_ms):
            return None
        # What a look-up did not help is not metered: the broker does not know it, or not for this user.
        self._meter.unmetered += len(bill.unknown)
        return self._charged(bill, parts, now_ms)

    def plain(
        self, brings: Part, version: int, size: int, user: str, client_id: bytes
    ) -> AdmittedProduce | None:
        """Charge a plain Produce request that need not wait (FrameMeter.plain); None: nothing was done."""
        if not self.naming.proven:
            return None
        bill = self._frames.plain(brings, version, size, user, client_id)
        now_ms = self._steady_ms()
        if bill is None or not self.line_up.passes(bill.owed, now_ms):
            return None
        return self._charged(bill, [brings] if self._meter.grouped else [], now_ms)

    def _charged(self, bill: Bill, parts: list[Part], now_ms: float) -> AdmittedProduce:
        charged = bill.charge(PUBLISH, now_ms)
        told_ms = 0
        if charged.wait is not None:
            queued_ms = self._meter.lines.cost(charged.wait.account.counters[0])
            told_ms = self._told_ms(charged.wait, queued_ms)
        return AdmittedProduce(bill, charged, parts, told_ms)

    def answered(self, admitted: AdmittedProduce, response: bytes, version: int) -> bool:
        """Undo the charge for what the broker refused of a Produce request; True if it refused something.

        Only what groups are charged: for the byte rate of a user counts what it sends.

        Raises:
            BadFrame: the response cannot be read.
        """
        if len(admitted.parts) == 1 and surely_accepted(response, version, admitted.parts[0]):
            return False
        errors = refused(response, version)
        if not errors:
            return False
        parts = {(part.topic, part.number): part for part in admitted.parts}
        for error in errors:
            part = parts.pop(error, None)
            if part is not None:
                admitted.bill.refund(PUBLISH, part.topic, part.records, part.size, admitted.charged)
        return True

    def fetch(self, frame: bytes, header: RequestHeader, user: str) -> tuple[bytes, int] | None:
        """A Fetch request as it is forwarded: a consumer of a limited group gets less at once.

        Returns:
            The request, and what it may bring where that is less than it asks for, bytes, else 0. None: it
            must wait, and is to be handled again when the pause is over.

        Raises:
            BadFrame: it cannot be read.
        """
        if self.naming.must_prove():
            return None
        asked = fetching(frame, header)
        ids = header.api_version >= FETCH_IDS_FROM
        if ids and self.naming.must_wait(self._frames.unknown_ids([*self._unnamed, *asked.topics])):
            return None
        self._unnamed.clear()
        self.asking = OUTSIDE
        if self._meter.grouped:
            # Else topics do not matter, and the first group begins anew.
            frame = self._note_session(frame, header, asked, ids)
        accounts = self._frames.fetching(self._session_accounts(), user, header.client_id or "")
        if not self.line_up.admits_fetch(accounts, self._steady_ms()):
            return None
        limit = self._frames.fetch_limit(asked, accounts)
        return (frame, 0) if limit is None else (with_limit(frame, asked, limit), limit)

    def fetched(
        self, response: Frame, header: RequestHeader, user: str, limit: int = 0, asking: Asking = OUTSIDE,
        cut: Callable[[bytes], bytes] = bytes,
    ) -> Generator[None, None, tuple[Frame, int]]:  # fmt: skip
        """Charge a Fetch response; it halts after so many parts of a large one, since others wait.

        One that comes while somebody owes whom it is charged to loses its records, as with Kafka's own
        quota: many may be on their way when the first puts them into debt. It is charged nothing.

        Args:
            limit: what `fetch` said that it may bring.
            asking: `asking` as it was then.
            cut: what others leave of a response, and count as delivered: asked once nothing else is lost.

        Returns:
            The response as the client gets it, and the throttle time for it, ms, 0 for none.

        Raises:
            BadFrame: it cannot be read.
        """
        version = header.api_version
        if asking.number:
            error, number = fetch_told(response, version)
            asking.hear(error)
            if asking is self._begins:
                self._number = number
        if 0 < limit < len(response) <= limit + _HEADS_MAX_BYTES:
            response = whole_batches(response, version)
        passed, bill = yield from self._billed(response, header, user, asking)
        now_ms = self._steady_ms()
        debt = self.line_up.fetched(bill.owed, now_ms)
        # Of too many, or of a session that began unread: they are looked up before the next request, which
        # brings it again.
        self._unnamed = self.naming.lacking(bill.unknown)
        if debt is not None and not (self._unnamed or self._meter.grouped):
            yield from fetched_in_steps(response, version, passed)
        if self._unnamed or (debt is not None and passed):
            self._metrics.traffic.emptied += 1
            told_ms = 0 if self._unnamed or debt is None else self._told_ms(debt)
            nothing = emptied(response, version)
            # What others waited for is given back; that it is left out is not said where nothing is.
            cut(nothing)
            return nothing, told_ms
        left = cut(bytes(response))
        if left is not response:
            response = left
            _, bill = yield from self._billed(response, header, user, asking)
            now_ms = self._steady_ms()
            self.line_up.fetched(bill.owed, now_ms)
        # Looked up a moment ago; who has no name then has none.
        self._meter.unmetered += len(bill.unknown)
        wait = bill.charge(DISPATCH, now_ms).wait
        return response, 0 if wait is None else self._told_ms(wait)

    def _billed(
        self, response: Frame, header: RequestHeader, user: str, asking: Asking
    ) -> Generator[None, None, tuple[list[TopicUse], Bill]]:
        """What a Fetch response brings of topics, where groups are charged, and whom to charge for it."""
        passed: list[TopicUse] = []
        if self._meter.grouped:
            yield from fetched_in_steps(response, header.api_version, passed)
            # It may have begun before anything was metered: then what comes tells its topics.
            asking.session.learn(use.topic for use in passed)
        return passed, self._frames.fetched(response, passed, header, user)

    def described(self, response: Frame, version: int) -> None:
        """Learn topic ids from a Metadata response.

        Raises:
            BadFrame: it cannot be read.
        """
        self.naming.proven = True
        if version >= METADATA_IDS_FROM and len(response) <= LEARN_MAX_BYTES:
            self._frames.learn(response, version)

    def _told_ms(self, wait: Wait, queued_ms: float = 0.0) -> int:
        by = "user" if wait.account.name.startswith(QUOTA_GROUP_PREFIX) else "group"
        self._metrics.throttled_frames.labels(by, DIMENSIONS[wait.dimension]).inc()
        return self._meter.told_ms(wait, queued_ms)

    def _note_session(self, frame: bytes, header: RequestHeader, asked: FetchSummary, ids: bool) -> bytes:
        """Whose topics a Fetch brings; returns the request, which the broker refuses of another session."""
        if self._begun != self._meter.begun:
            # It has gone on unread.
            self._fetched, self._number, self._begun = ShareSession(), None, self._meter.begun
        if asked.epoch < 0:
            self._look_for(asked.topics[:SHARE_TOPICS_MAX], ids)
            return frame
        its = self._fetched
        try:
            its.note(*fetch_session(frame, header))
        except TooManyRows:
            # What it forgets of so many is not kept up.
            its.note(asked.epoch, [(topic, ()) for topic in asked.topics], ())
            its.overflow()
        self.asking = Asking(its, its.number)
        self._use(its, ids)
        if not asked.epoch:
            self._begins, self._number = self.asking, UNKNOWN_SESSION
        elif self._number is not None:
            at, number, _ = session_of(frame, header)
            if self._number != number:
                # Its topics are not those that are known, and a client that has lost one begins anew.
                return with_session(frame, at, UNKNOWN_SESSION, asked.epoch)
        return frame

    def _use(self, session: ShareSession, ids: bool) -> None:
        """This session asks: its topics are those that accounts are looked for."""
        seen = session, session.changes, session.number, ids
        if self._seen != seen:
            self._look_for(session.wanted, ids)
            self._seen = seen

    def _look_for(self, topics: list[bytes], ids: bool) -> None:
        self._session, self._session_ids = topics, ids
        self._found_by = self._seen = None

    def _session_accounts(self) -> set[Account]:
        if self._found_by != (found_by := (self._meter.generation, self.naming.answers)):
            found = {self._frames.of_topic(topic, self._session_ids) for topic in self._session}
            self._accounts = {account for account in found if account is not None}
            self._found_by = found_by
        return self._accounts


def whole_batches(response: Frame, version: int) -> Frame:
    """A Fetch response without what our limit has cut off: of each partition up to its last whole batch.

    A broker fills what it is asked for to the last byte, and a consumer drops a batch that ends too early.
    Where the limit is its own, that is its affair; where it is ours, it would pay for bytes of no use.

    Raises:
        BadFrame: it ends too early, has too many parts, or a length in it is impossible.
    """
    answer = answer_of(response, version)
    stops: dict[int, int] = {}
    for topic in answer.topics:
        for part in topic.parts:
            stop = _whole_until(response, part.start, part.end)
            if stop < part.end:
                stops[part.start] = stop
    return changed(response, answer, version, stops, ()) if stops else response


def _whole_until(frame: Frame, start: int, end: int) -> int:
    offset = start
    while end - offset >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(frame, offset)
        if length <= 0:
            # No batches at all: nothing is known of where they end.
            return end
        after = offset + _LENGTH.size + length
        if after > end:
            break
        offset = after
    return offset
