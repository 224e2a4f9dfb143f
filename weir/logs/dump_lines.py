"""What a dump says about each event beside the event itself: its time, its name, how it was applied.

Two things about the live run cannot be seen in an event. The job found it too late (`late`), or the event
was older than what its subject had seen, so it was applied at the subject's newest time (`applied_ts`).
The decisions tell both: late ones say so, and decisions stand on the topic in the order in which they were
made.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from streaming.contract.errors import WeirError
from streaming.contract.events import MAX_AHEAD_MS

# Held in memory while a dump is written; more than that is a shorter dump's work.
IDS_MAX = 1_000_000

RawRecord = tuple[str, int, int, int, bytes]
"""Topic, partition, offset, record time in ms, bytes."""


class Line(NamedTuple):
    """One line of the dump with what it is sorted by: time, policies first, then arrival."""

    at: int
    rank: int
    topic: str
    partition: int
    offset: int
    text: bytes


@dataclass(slots=True, kw_only=True)
class Counts:
    """What a dump wrote, for the summary.

    Attributes:
        events: lines from requests and usage.
        policies: policy changes.
        late: requests marked late.
        not_json: lines that are no JSON object, kept as they are.
        left_out: records that are no single line, such as tombstones.
        ahead: events so far ahead of their records that the job has buried them; a replay would not.
    """

    events: int = 0
    policies: int = 0
    late: int = 0
    not_json: int = 0
    left_out: int = 0
    ahead: int = 0


class History:
    """What the decisions say about how events were applied.

    Args:
        max_ahead_ms: the job's setting of that name.

    Attributes:
        late: ids of requests that were decided too late.
        applied: id -> time at which an event was applied, where that is not its own.
    """

    def __init__(self, max_ahead_ms: int = MAX_AHEAD_MS) -> None:
        self.max_ahead_ms = max_ahead_ms
        self.late: set[str] = set()
        self.applied: dict[str, int] = {}
        self._older: set[str] = set()
        self._newest: dict[str, int] = {}

    def look_for_older(self, records: Iterable[RawRecord]) -> None:
        """Note which events of one partition are older than one before them.

        Only those can have been applied at another time than their own; with LogAppendTime there are none
        unless the broker's clock went back, so nothing else has to be remembered.
        """
        newest = 0
        for topic, partition, offset, ts, value in records:
            event = _object(value)
            if self.buried(event or {}, ts):
                continue
            own = _time(event or {}, ts)
            if event is not None and own < newest:
                self._older.add(_name(event, topic, partition, offset))
                _check_size(self._older)
            newest = max(newest, own)

    def buried(self, event: dict[str, Any], ts: int) -> bool:
        """Whether the job has buried an event as too far ahead of its record, which was written at `ts`."""
        times = (event.get("ts"), event.get("applied_ts"))
        return any(type(time) is int and time - ts > self.max_ahead_ms for time in times)

    def read_decisions(self, values: Iterable[bytes]) -> None:
        """Read one partition of the decisions, in its order, after all of `look_for_older`."""
        for value in values:
            is_late = b'"late":true' in value
            # Parsing every decision to find the few would take most of the time of a dump.
            if not is_late and not self._older:
                continue
            decision = _object(value)
            if decision is None or not isinstance(decision.get("id"), str):
                continue
            if is_late and decision.get("late") is True:
                self.late.add(decision["id"])
                _check_size(self.late)
            self._follow(decision)

    def _follow(self, decision: dict[str, Any]) -> None:
        subject, ts = decision.get("subject"), decision.get("ts")
        if not subject or not isinstance(subject, str) or not isinstance(ts, int):
            return
        newest = self._newest.get(subject, ts)
        if ts < newest and decision["id"] in self._older:
            # The first one counts: a restarted job writes its last batch again.
            self.applied.setdefault(decision["id"], newest)
        self._older.discard(decision["id"])
        self._newest[subject] = max(newest, ts)
        _check_size(self._newest)


class Annotator:
    """Turns the records of one partition into lines.

    Args:
        history: how events were applied.
        counts: what is counted, shared by all partitions.
        is_policy: records are policy changes, in force from their own `ts` on.
    """

    def __init__(self, history: History, counts: Counts, *, is_policy: bool = False) -> None:
        self._history = history
        self._counts = counts
        self._is_policy = is_policy
        self._newest = 0

    def line(self, record: RawRecord) -> Line | None:
        """One record as a line; None if it cannot stand in a file of lines, or must not: that is counted."""
        topic, partition, offset, ts, value = record
        event = _object(value)
        at = ts
        if event is not None and not self._is_policy and self._history.buried(event, ts):
            self._counts.ahead += 1
            return None
        if event is not None:
            at = _time(event, ts)
            event.setdefault("ts", ts)
            event.setdefault("id", _name(event, topic, partition, offset))
            if not self._is_policy:
                self._mark(event)
            value = orjson.dumps(event)
        elif not value.strip() or b"\n" in value:
            self._counts.left_out += 1
            return None
        else:
            # Kept as it is, so that the replay has the same dead letters.
            self._counts.not_json += 1
        if self._is_policy:
            self._counts.policies += 1
            return Line(at, 0, topic, partition, offset, value)
        self._counts.events += 1
        # What is merged must not go back; the replay sorts by the event's own times anyway.
        self._newest = max(self._newest, at)
        return Line(self._newest, 1, topic, partition, offset, value)

    def _mark(self, event: dict[str, Any]) -> None:
        name = event["id"]
        if not isinstance(name, str):
            return
        if name in self._history.late:
            event["late"] = True
            self._counts.late += 1
        if name in self._history.applied:
            event["applied_ts"] = self._history.applied[name]


def _object(value: bytes) -> dict[str, Any] | None:
    try:
        loaded = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    return loaded if isinstance(loaded, dict) else None


def _time(event: dict[str, Any], default: int) -> int:
    ts = event.get("ts", default)
    return ts if type(ts) is int else default


def _name(event: dict[str, Any], topic: str, partition: int, offset: int) -> str:
    name = event.get("id")
    return name if isinstance(name, str) else f"{topic}-{partition}-{offset}"


def _check_size(table: set[str] | dict[str, int]) -> None:
    if len(table) > IDS_MAX:
        raise WeirError(f"more than {IDS_MAX} events to remember; dump a shorter stretch of time")
