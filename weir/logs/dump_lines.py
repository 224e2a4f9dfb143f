"""What a dump says about each event beside the event itself: its time, its name, how it was applied.

Two things about the live run cannot be seen in an event. The job found it too late (`late`), or it was
applied at another time than its own (`applied_ts`): older than what its subject had seen, or of a clock that
was ahead. The decisions tell both, and stand on the topic in the order in which they were made; refunds have
none, but the next admission of their subject lists them.
"""

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, cast

import numpy as np
import orjson
import pyarrow as pa
from confluent_kafka import Message

from streaming.columns.sent import SENT_HEADER, SentBefore
from streaming.contract.decisions import CANDIDATE
from streaming.contract.errors import BadEvent, WeirError
from streaming.contract.events import MAX_AHEAD_MS, OWN_AHEAD_MS, load_object, own_at
from streaming.contract.fields import INT64_MAX
from streaming.contract.topics import Topics
from streaming.laws.mutation.statements import LISTED_MS
from streaming.laws.registry import LAWS
from weir.logs.topic_reader import Record

# Held in memory while a dump is written; more than that is a shorter dump's work.
IDS_MAX = 1_000_000
_REFUND: Final = "refund"
_ON_REQUESTS: Final = {"tick": False} | {
    type: law.on_requests for law in LAWS.by_name.values() for type in law.readers
}
"""Type of events -> whether they stand on the topic of requests; elsewhere the job buries them."""
_AT_ONCE: Final = 100
"""Messages that are held meanwhile, of up to 1 MB each."""


class _Refund(NamedTuple):
    """Its own time and the one at which it is applied at the earliest, ms, and whose it is."""

    ts: int
    at: int
    subject: str


class Line(NamedTuple):
    """One line of the dump with what it is sorted by: applied time, policies first, then arrival. Before that
    counts the turn of events that were applied at one time in another order than they came.
    """

    at: int
    rank: int
    turn: int
    topic: str
    partition: int
    offset: int
    row: int
    text: bytes


@dataclass(slots=True, kw_only=True)
class DumpSummary:
    """What a dump wrote, for the summary.

    Attributes:
        events: lines from requests and usage.
        policies: policy changes.
        late: requests marked late.
        not_json: lines that are no JSON object, kept as they are.
        left_out: records that are no single line, such as tombstones.
        ahead: events that the job has buried, too far ahead or on another topic; a replay would not.
        copies: records that their producer had sent before, which the job leaves out too.
    """

    events: int = 0
    policies: int = 0
    late: int = 0
    not_json: int = 0
    left_out: int = 0
    ahead: int = 0
    copies: int = 0


def sent_once(messages: Iterable[Message], counts: DumpSummary) -> Iterator[Message]:
    """The messages of one partition, in order, but for copies; these are counted."""
    every, before = iter(messages), SentBefore()
    while some := list(islice(every, _AT_ONCE)):
        places = [(one.partition(), one.offset(), one.timestamp()[1]) for one in some]
        partition, offset, ts = np.array(places, dtype=np.int64).T
        copies = before.copies(partition, offset, ts, pa.array(map(_sent, some), pa.binary())).tolist()
        counts.copies += sum(copies)
        yield from (one for one, is_copy in zip(some, copies, strict=True) if not is_copy)


def _sent(message: Message) -> bytes | None:
    # A list, whatever the library's types say.
    headers = cast(list[tuple[str, bytes | None]], message.headers() or [])
    return next((value for name, value in headers if name == SENT_HEADER), None)


class History:
    """What the log and the decisions say about how events were applied.

    Args:
        max_ahead_ms: the job's setting of that name.
        requests: the topic of requests.
        to_ms: what came from then on, ms since the epoch, is not dumped.

    Attributes:
        late: ids and times of requests that were decided too late: of one that stands twice, maybe not both.
        applied: id -> time at which an event was applied, where that is not its own.
        turn: id -> its place among the events of its subject that were applied at the same time, from 1 on;
            those that have none come before them, as they arrived.
    """

    def __init__(
        self, max_ahead_ms: int = MAX_AHEAD_MS, requests: str = Topics().requests, to_ms: int = INT64_MAX
    ) -> None:
        self.max_ahead_ms, self._requests, self._to_ms = max_ahead_ms, requests, to_ms
        self.late: set[tuple[str, int]] = set()
        self.applied: dict[str, int] = {}
        self.turn: dict[str, int] = {}
        self._refunds: dict[str, _Refund] = {}
        self._newest: dict[str, int] = {}
        self._moved: dict[str, int] = {}

    def look_for_own(self, records: Iterable[Record]) -> None:
        """Note refunds, and what a proxy with a clock that is ahead has sent of its own."""
        for record in records:
            event = _object(record.value)
            if event is None or not _is_own(event):
                continue
            name, ts = _name(event, record), _time(event, record.ts)
            at = own_at(_time(event, ts, "applied_ts"), record.ts)
            if at != ts:
                self._apply(name, at)
            if event.get("type") == _REFUND:
                self._refunds[name] = _Refund(ts, at, str(event.get("subject")))
                _check_size(self._refunds)

    def buried(self, event: dict[str, Any], record: Record) -> bool:
        """Whether the job has buried an event: too far ahead of its record, or not on its own topic."""
        own = event.get("type")
        there = _ON_REQUESTS.get(own) if isinstance(own, str) else None
        if own == "policy" or (there is not None and there is not (record.topic == self._requests)):
            return True
        times = (event.get("ts"), event.get("applied_ts"))
        ahead = any(type(time) is int and time - record.ts > self.max_ahead_ms for time in times)
        return ahead and not _is_own(event)

    def read_decisions(self, values: Iterable[bytes]) -> None:
        """Read one partition of the decisions, in its order, after all of `look_for_own`."""
        for value in values:
            decision = _object(value)
            if decision is None or decision.get("repeat") is True or CANDIDATE in decision:
                continue
            if not isinstance(decision.get("id"), str):
                continue
            if decision.get("late") is True and is_near(decision, self._to_ms, self.max_ahead_ms):
                self.late.add((decision["id"], _time(decision, 0)))
                _check_size(self.late)
            subject, ts = _whose(decision), decision.get("ts")
            if isinstance(subject, str) and type(ts) is int:
                self._follow(subject, decision["id"], ts, decision)

    def place_others(self) -> None:
        """Place the refunds that no admission has listed so far: behind those of their subjects."""
        for name, refund in list(self._refunds.items()):
            newest = self._newest.get(refund.subject, 0)
            # An older one was not listed for its age.
            if refund.at + LISTED_MS >= newest:
                self._newest[refund.subject] = self._place(refund.subject, name, newest)

    def _follow(self, subject: str, name: str, ts: int, decision: dict[str, Any]) -> None:
        before = self._newest.get(subject, 0)
        refunds = decision.get("refunds")
        for refund in refunds if isinstance(refunds, list) else ():
            before = self._place(subject, refund, before)
        at = _time(decision, ts, "applied_ts")
        if at != ts:
            self._moved[subject] = at
        if is_near(decision, self._to_ms, self.max_ahead_ms):
            if at != ts:
                self._apply(name, at)
            else:
                self.applied.pop(name, None)
            if self._moved.get(subject) == at:
                self._take_turn(name)
        if subject:
            self._newest[subject] = max(before, at)
            _check_size(self._newest)

    def _place(self, subject: str, name: object, before: int) -> int:
        """Note when a refund that an admission lists was applied, not before `before`; that time."""
        if not isinstance(name, str) or name not in self._refunds:
            return before
        # Once, since a restarted job writes its last batch again.
        refund = self._refunds.pop(name)
        at = max(refund.at, before)
        if at != refund.ts:
            self._apply(name, at)
        self._moved[subject] = at
        self._take_turn(name)
        return at

    def _apply(self, name: str, at: int) -> None:
        self.applied[name] = at
        _check_size(self.applied)

    def _take_turn(self, name: str) -> None:
        # The first one counts: a restarted job writes its last batch again.
        self.turn.setdefault(name, len(self.turn) + 1)
        _check_size(self.turn)


class Annotator:
    """Turns the records of one partition into lines.

    Args:
        history: how events were applied.
        counts: what is counted, shared by all partitions.
        is_policy: records are policy changes, in force from their own `ts` on.
    """

    def __init__(self, history: History, counts: DumpSummary, *, is_policy: bool = False) -> None:
        self._history = history
        self._counts = counts
        self._is_policy = is_policy

    def line(self, record: Record) -> Line | None:
        """One record as a line; None if it cannot stand in a file of lines, or must not: that is counted."""
        event, value, at, turn = _object(record.value), record.value, record.ts, 0
        if event is not None and not self._is_policy and self._history.buried(event, record):
            self._counts.ahead += 1
            return None
        if event is not None:
            at = _time(event, record.ts)
            event.setdefault("ts", record.ts)
            event.setdefault("id", record.name)
            if not self._is_policy:
                self._mark(event)
                at = _time(event, at, "applied_ts")
                turn = self._history.turn.get(_name(event, record), 0)
            value = orjson.dumps(event)
        elif not value.strip() or b"\n" in value:
            self._counts.left_out += 1
            return None
        else:
            # Kept as it is, so that the replay has the same dead letters.
            self._counts.not_json += 1
        rank = 0 if self._is_policy else 1
        if self._is_policy:
            self._counts.policies += 1
        else:
            self._counts.events += 1
        return Line(at, rank, turn, record.topic, record.partition, record.offset, record.row, value)

    def _mark(self, event: dict[str, Any]) -> None:
        name = event["id"]
        if not isinstance(name, str):
            return
        if (name, _time(event, 0)) in self._history.late:
            event["late"] = True
            self._counts.late += 1
        if name in self._history.applied:
            event["applied_ts"] = self._history.applied[name]


def _object(value: bytes) -> dict[str, Any] | None:
    try:
        return load_object(value)
    except BadEvent:
        return None


def _time(event: dict[str, Any], default: int, name: str = "ts") -> int:
    time = event.get(name, default)
    return time if type(time) is int else default


def is_near(decision: dict[str, Any], to_ms: int, max_ahead_ms: int) -> bool:
    """Whether its event may be of a log up to `to_ms`; what is later is not, and may be most of it."""
    ts = _time(decision, 0)
    return min(ts, _time(decision, ts, "applied_ts")) < to_ms + max(max_ahead_ms, OWN_AHEAD_MS)


def _whose(decision: dict[str, Any]) -> object:
    """Whose time a decision moves on: a subject's, that of a broker's counters, or a topic's."""
    # No subject begins so: all begin with user= or client-id=.
    if decision.get("type") == "dispatch":
        return f"broker {decision.get('broker')}"
    if decision.get("type") == "backlog":
        return f"topic {decision.get('topic')}"
    return decision.get("subject")


def _name(event: dict[str, Any], record: Record) -> str:
    name = event.get("id")
    return name if isinstance(name, str) else record.name


def _is_own(event: dict[str, Any]) -> bool:
    """Whether a proxy says what it has done, by its own clock; see contract.events.parse."""
    return event.get("type") == _REFUND or "decided" in event


def _check_size(table: Sized) -> None:
    if len(table) > IDS_MAX:
        raise WeirError(f"more than {IDS_MAX} events to remember; dump a shorter stretch of time")
