"""Lines of event files as records for Kafka: which topic, which key, which time (docs/contract.md 1)."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import orjson

from streaming.contract.errors import BadEvent
from streaming.contract.events import Event, PolicyChange, Tick
from streaming.contract.fields import INT64_MAX, TS_MAX_MS
from streaming.contract.times import instant_ms
from streaming.contract.topics import Topics
from streaming.kafka_io.policy_topic import PolicyLog
from streaming.laws.registry import LAWS
from streaming.log.reading import Line, read_lines
from streaming.policy.groups import round_rules
from streaming.policy.policy_set import RAISE, UNTIL
from weir.logs.policy_log import actor_here
from weir.logs.times import moment

_TIMES: Final = ("ts", "applied_ts", "asked_ts", "of_ts", "effective_ts")
_OF_ALL: Final = ("id", "ts")
_OF_A_TICK: Final = (*_OF_ALL, "applied_ts")
_OF_THE_LOG: Final = ("actor", "reason", "earlier", "repeat")
_NS_PER_MS: Final = 1_000_000
NO_TIME: Final = -1
"""Of lines before the first that has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLine:
    """A line with its place in time.

    Attributes:
        at: time of the recording, ms since the epoch; of one without that of the line before, or NO_TIME.
        event: what it says, or why it cannot be used.
        line: where it stands and its bytes.
    """

    at: int
    event: Event | BadEvent
    line: Line


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRecord:
    """A record to publish.

    Attributes:
        due: time of the event in it, ms since the epoch, shifted if times are.
        topic, key, value: as produced.
    """

    due: int
    topic: str
    key: bytes
    value: bytes


def recorded(files: Sequence[str]) -> Iterator[RecordedLine]:
    """The lines of all files by time; a line that is older than one before it in its file comes after that.

    Files are read side by side, never whole.

    Raises:
        WeirError: a file cannot be read.
    """
    return heapq.merge(*(_timed(read_lines([file])) for file in files), key=lambda each: each.at)


def _timed(lines: Iterable[Line]) -> Iterator[RecordedLine]:
    at = NO_TIME
    for line in lines:
        event: Event | BadEvent
        try:
            event = LAWS.parse(line.value, default_id=line.name, default_ts=at)
            at = max(at, event.ts)
        except BadEvent as error:
            event = error
        yield RecordedLine(at=at, event=event, line=line)


def shift_for(first_ms: int, now_ms: int, round_ms: int) -> int:
    """By how much to move times so that a recording begins now, in ms.

    It is a multiple of the rounds of resource groups, so every event keeps its place within its round (and
    within its second): reports that were divided together still are. The first event is at most one round
    ahead of now, never behind, since policies that were just published do not apply to what was before.

    >>> shift_for(3_200, 1_000_100, 60_000)
    1020000
    """
    return -((first_ms - now_ms) // round_ms) * round_ms


@dataclass(slots=True, kw_only=True)
class Addresser:
    """Makes records of lines.

    Attributes:
        topics: names of the topics.
        log: policies in force, for requests that name no quota entity; policies of the files are added.
        now_ms: wall time of the start.
        shift_ms: added to every time of every event.
        invalid: lines that cannot be used; they are sent as they are.
        first_invalid: the first of them, as `FILE:LINE: reason`.
    """

    topics: Topics
    log: PolicyLog
    now_ms: int
    shift_ms: int = 0
    invalid: int = 0
    first_invalid: str = field(default="", init=False)
    _actor: str = field(default_factory=partial(actor_here, "send"), init=False)

    @property
    def round_ms(self) -> int:
        """Length of a resource group's round in force now."""
        return round_rules(self.log.timeline.at(self.now_ms)).interval_ms

    def address(self, item: RecordedLine) -> OutgoingRecord:
        """The record for one line; a line that cannot be used is counted and goes out unchanged."""
        due, event, value = item.at + self.shift_ms, item.event, item.line.value
        if isinstance(event, BadEvent):
            # The job writes the dead letter, as it does for what any other producer sends.
            self.invalid += 1
            self.first_invalid = self.first_invalid or f"{item.line.name}: {event.reason}"
            return OutgoingRecord(due=due, topic=self.topics.requests, key=b"", value=value)
        if self.shift_ms:
            value = orjson.dumps(shifted(orjson.loads(value), self.shift_ms))
        if isinstance(event, PolicyChange):
            # Whoever sends a recording makes the change, not whom it names.
            said = {name: each for name, each in orjson.loads(value).items() if name not in _OF_THE_LOG}
            value = orjson.dumps({**said, "actor": self._actor})
            self.log.take(value, due)
            return OutgoingRecord(due=due, topic=self.topics.policies, key=event.path.encode(), value=value)
        law = LAWS.by_event.get(type(event))
        if law is None:
            # Time has passed, but no other job is there, nor a proxy of the recording.
            kept = _OF_A_TICK if isinstance(event, Tick) else _OF_ALL
            said = {name: each for name, each in orjson.loads(value).items() if name in kept}
            value = orjson.dumps({"type": "tick", **said})
            return OutgoingRecord(due=due, topic=self.topics.usage, key=b"", value=value)
        if law.stamp is not None:
            # What is in force now counts for what is older, too: so does the proxy's stamp.
            policies = self.log.timeline.at(max(event.at + self.shift_ms, self.now_ms))
            subject = law.stamp(event, policies)
            if subject is not None:
                value = orjson.dumps(orjson.loads(value) | {"subject": subject})
                event = LAWS.parse(value, default_id=item.line.name, default_ts=event.ts)
        topic = self.topics.requests if law.on_requests else self.topics.usage
        return OutgoingRecord(due=due, topic=topic, key=law.key_of(event).encode(), value=value)


def shifted(event: dict[str, Any], shift_ms: int) -> dict[str, Any]:
    """An event with all its times moved; a time that would leave the calendar stays.

    A broker's own clock (`start_ns`) moves along: a recording sent twice must not have it go back.

    Args:
        event: a valid event; changed in place.
        shift_ms: how far, ms.
    """
    for name in _TIMES:
        _move(event, name, shift_ms, TS_MAX_MS)
    _move(event, "start_ns", shift_ms * _NS_PER_MS, INT64_MAX)
    law = next((law for law in LAWS.by_name.values() if event["type"] in law.readers), None)
    for each, name in () if law is None else law.times:
        for item in event[each]:
            _move(item, name, shift_ms, INT64_MAX)
    if event["type"] == "policy":
        _move_raise(event.get("value"), shift_ms)
    return event


def _move_raise(value: Any, by: int) -> None:
    """Move the end of an entry's raise; what is wrong with it is for its readers to say."""
    with suppress(TypeError, LookupError, ValueError):
        end = instant_ms(value[RAISE][UNTIL]) + by
        if 0 <= end <= TS_MAX_MS:
            value[RAISE][UNTIL] = moment(end)


def _move(item: dict[str, Any], name: str, by: int, most: int) -> None:
    # A field that this type of event does not have may hold anything: unknown fields are ignored.
    if type(item.get(name)) is int and 0 <= item[name] + by <= most:
        item[name] += by
