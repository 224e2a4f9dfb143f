"""What Fetch responses bring to one connection: counted, and cut where a limit is reached."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, inf
from typing import Final, NamedTuple

from enforcer.core.lines import Claim, Counter
from enforcer.kafka.dispatch.context import FetchContext
from enforcer.kafka.dispatch.entries import Entry, entries
from enforcer.kafka.dispatch.fetch_requests import FetchRequest, TopicRequest
from enforcer.kafka.dispatch.fetch_responses import (
    EmptyTopic,
    Marks,
    PartitionAnswer,
    answer_of,
    changed,
)
from enforcer.kafka.groups.trails import Trail
from enforcer.kafka.part import FETCH_LIMIT_MAX, PART_BYTES_MIN
from enforcer.laws.dispatch.left import Left, both
from enforcer.wire.kafka.batches import BATCHES_MAX

MARKS_MAX: Final = 10_000
"""Partitions of a connection whose offsets are remembered; of others none are told while they must wait."""
_ENTRY_BYTES: Final = 1_024.0
"""Size that an entry is taken to have until some were seen."""
_SLACK: Final = 1.5
"""Entries larger than the mean by so much still come; a broker may leave out what does not fit."""
_UNKNOWN: Final = PartitionAnswer(-1, 0, *Marks(), (), 0, 0, 0)
_STOP: Final = 2
_AFTER: Final = 3


@dataclass(slots=True)
class LimitedTopic:
    """A limited topic of a request.

    Attributes:
        topic: what is asked for of it, wherever the request lists it.
        broker: who delivers.
        name: its full name.
        groups: who reads it, or may: it counts for each.
        claim: its place among those that wait.
        tracked: groups of the topic may have limits of their own.
        unsure: it may be of several groups.
        counters: those that limit it.
        group: that of them whose limit was the strictest when it was looked at last.
        wait_ms: it must wait so long; 0: it goes on.
        msgs: messages, or entries where these are counted, that may be delivered of it.
        size: the same, bytes.
        most: most bytes of each of its partitions; 0: as many as it asks for.
        est_msgs: messages, or entries where these are counted, that it may bring.
        est_size: the same, bytes.
        turns: whether a limit was reached before, so that it takes turns at its counters.
        left: what is left once a limit was reached by what came.
    """

    topic: TopicRequest
    broker: str
    name: str
    groups: tuple[str, ...]
    claim: Claim
    tracked: bool
    unsure: bool
    counters: Sequence[Counter]
    group: str = ""
    wait_ms: float = 0.0
    msgs: float = inf
    size: float = inf
    most: int = 0
    est_msgs: float = 0.0
    est_size: float = 0.0
    turns: bool = False
    left: Left | None = None


def each(wanted: Mapping[int, LimitedTopic]) -> list[LimitedTopic]:
    """The topics, once each: a request may list one in several places, as Java clients of two topics do."""
    return list({want.topic.key: want for want in wanted.values()}.values())


def left_for(context: FetchContext, want: LimitedTopic) -> Left:
    """What may be delivered of a topic now, beside others who take turns, by the strictest of its groups."""
    others = partial(context.lines.taken, claim=want.claim) if want.turns else None
    want.group = want.groups[0]
    found = context.dispatch.left(want.broker, want.name, want.group, others)
    for group in want.groups[1:]:
        other = context.dispatch.left(want.broker, want.name, group, others)
        if other.wait_ms > found.wait_ms:
            want.group = group
        found = both(found, other)
    return found


def estimate(context: FetchContext, want: LimitedTopic) -> None:
    """How much may be read of a topic, and what that may bring."""
    entry_msgs, entry_bytes = context.dispatch.mean_entry(want.broker, want.name, want.group)
    unit = 1.0 if context.dispatch.by_entry else max(1.0, entry_msgs)
    entry_bytes = entry_bytes or _ENTRY_BYTES
    entries = min(
        ceil(want.msgs / unit) if want.msgs < inf else inf,
        max(1, ceil(want.size / entry_bytes)) if want.size < inf else inf,
        max(1, ceil(FETCH_LIMIT_MAX / entry_bytes)),
    )
    want.most = int(min(FETCH_LIMIT_MAX, max(PART_BYTES_MIN, entries * entry_bytes * _SLACK)))
    want.est_msgs, want.est_size = entries * unit, entries * entry_bytes


class _Read(NamedTuple):
    """A partition of a response, the offset asked for, the end of what is there, and its entries."""

    got: PartitionAnswer
    offset: int
    end: int
    entries: list[Entry]


@dataclass(slots=True)
class _Sum:
    """What is delivered of a topic, and what may still be."""

    left_msgs: float
    left_size: float
    by_entry: bool
    msgs: int = 0
    size: int = 0
    entries: int = 0
    backlog: bool = False

    @property
    def used_up(self) -> bool:
        return self.left_msgs <= 0 or self.left_size <= 0

    def add(self, entries: list[Entry]) -> int:
        """Deliver as many of a partition's as may be; returns how many that is."""
        done = 0
        msgs, size, count, by_entry = 0, 0, 0, self.by_entry
        left_msgs, left_size = self.left_msgs, self.left_size
        for its_msgs, its_size, _, _ in entries:
            if its_msgs:
                if left_msgs <= 0 or left_size <= 0:
                    break
                msgs += its_msgs
                size += its_size
                count += 1
                left_msgs -= 1 if by_entry else its_msgs
                left_size -= its_size
            done += 1
        self.msgs, self.size, self.entries = self.msgs + msgs, self.size + size, self.entries + count
        self.left_msgs, self.left_size = left_msgs, left_size
        return done


class Deliveries:
    """What comes on one connection.

    Args:
        context: knows the limits.
        trail: of the connection.
    """

    def __init__(self, context: FetchContext, trail: Trail) -> None:
        self._context = context
        self._trail = trail
        self._caught_up: set[bytes] = set()
        # What was told last of partitions of limited topics, and which of the deliveries was each one's last.
        self._marks: dict[tuple[bytes, int], tuple[PartitionAnswer, int]] = {}
        self._served = 0

    def caught_up(self, key: bytes) -> bool:
        """Whether the last response left nothing of a topic unread."""
        return key in self._caught_up

    def missing(self, wants: Iterable[LimitedTopic]) -> list[EmptyTopic]:
        """Those of some topics that must wait, as a response tells of them."""
        waiting = (want.topic for want in wants if want.wait_ms)
        return [
            EmptyTopic(key, [(part.number, self._seen(key, part.number)[0].marks) for part in parts])
            for key, _, _, parts in waiting
        ]

    def taken(
        self, response: bytes, version: int, asked: FetchRequest, wants: Sequence[LimitedTopic]
    ) -> bytes:
        """A response as the client gets it; what that brings is delivered.

        Raises:
            BadFrame: it cannot be read.
        """
        answer = answer_of(response, version)
        if answer.error:
            return response
        parts: dict[bytes, list[PartitionAnswer]] = {}
        for topic in answer.topics:
            parts[topic.key] = [*parts[topic.key], *topic.parts] if topic.key in parts else topic.parts
        stops: dict[int, int] = {}
        cut = False
        for want in wants:
            if not want.wait_ms and want.topic.key in parts:
                cut |= self._take(response, parts[want.topic.key], want, asked.isolation == 1, stops)
        self._caught_up &= {topic.key for topic in asked.topics}
        missing = self.missing(wants)
        if cut:
            self._context.metrics.cut_fetches.inc()
        return changed(response, answer, version, stops, missing) if stops or missing else response

    def _take(
        self,
        response: bytes,
        came: list[PartitionAnswer],
        want: LimitedTopic,
        committed: bool,
        stops: dict[int, int],
    ) -> bool:
        """Deliver what may be of a topic; whether anything may not."""
        dispatch, key = self._context.dispatch, want.topic.key
        for got in came:
            if got.end > got.start:
                break
        else:
            self._take_nothing(came, want, committed)
            return False
        left = left_for(self._context, want)
        msgs = inf if left.msgs is None else float(left.msgs)
        size = inf if left.bytes is None else float(left.bytes)
        # Each entry is one message at least. Only where it matters who has caught up are the others needed.
        parts = self._read(response, came, want, committed, msgs if dispatch.all_charged else inf)
        if not dispatch.all_charged and all(_position(part, len(part.entries)) >= part.end for part in parts):
            msgs = size = inf
        total, cut = _Sum(msgs, size, dispatch.by_entry), False
        for part in parts:
            count = self._deliver(part, key, total)
            cut |= count < len(part.entries) or count == BATCHES_MAX
            if want.tracked and count:
                self._trail.had(want.name, part.got.number, part.offset, _position(part, count))
            # A batch that is cut off at the end does not count, so nobody gets its first records either.
            stop = part.entries[count - 1][_STOP] if count else part.got.start
            if stop < part.got.end:
                stops[part.got.start] = stop
        if total.backlog or not parts:
            self._caught_up.discard(key)
        else:
            self._caught_up.add(key)
        if total.entries:
            for group in want.groups:
                dispatch.deliver(
                    want.broker, want.name, group,
                    msgs=total.msgs, size=total.size, entries=total.entries, backlog=total.backlog,
                )  # fmt: skip
        if total.used_up:
            # Only now it is known whose limit it was.
            want.left = left = left_for(self._context, want)
            if cut and left.level:
                dispatch.throttled(want.broker, want.name, want.group, left.level, left.dimension)
        return cut

    def _take_nothing(self, came: list[PartitionAnswer], want: LimitedTopic, committed: bool) -> None:
        """The same where nothing has come, as of most topics of a request for hundreds."""
        key, offsets = want.topic.key, {part.number: part.offset for part in want.topic.parts}
        known = backlog = False
        for got in came:
            offset = offsets.get(got.number)
            if not got.error and offset is not None:
                known = True
                self._note(key, got)
                backlog |= offset < _end(got, committed)
        (self._caught_up.add if known and not backlog else self._caught_up.discard)(key)

    def _read(
        self, response: bytes, came: list[PartitionAnswer], want: LimitedTopic, committed: bool, most: float
    ) -> list[_Read]:
        """The partitions without an error, those first that were served longest ago; `most` as in entries."""
        key = want.topic.key
        offsets = {part.number: part.offset for part in want.topic.parts}
        found = []
        for got in sorted(came, key=lambda got: self._seen(key, got.number)[1]):
            offset = offsets.get(got.number)
            if got.error or offset is None:
                continue
            self._note(key, got)
            end = _end(got, committed)
            aborted = got.aborted if committed else ()
            found.append(
                _Read(got, offset, end, entries(response, got.start, got.end, offset, aborted, most))
            )
        return found

    def _deliver(self, part: _Read, key: bytes, total: _Sum) -> int:
        """Deliver what may be of a partition; returns how many of its entries that is."""
        before = total.entries
        count = total.add(part.entries)
        total.backlog |= _position(part, count) < part.end
        if total.entries > before:
            self._served += 1
            self._note(key, part.got, self._served)
        return count

    def _note(self, key: bytes, got: PartitionAnswer, served: int = 0) -> None:
        place = key, got.number
        before = self._marks.get(place)
        if before is None and len(self._marks) >= MARKS_MAX:
            del self._marks[next(iter(self._marks))]
        self._marks[place] = got, served or (0 if before is None else before[1])

    def _seen(self, key: bytes, number: int) -> tuple[PartitionAnswer, int]:
        return self._marks.get((key, number), (_UNKNOWN, 0))


def _end(got: PartitionAnswer, committed: bool) -> int:
    """The end of what is there for a consumer."""
    return got.stable if committed and got.stable >= 0 else got.high


def _position(part: _Read, count: int) -> int:
    """The offset behind so many of a partition's entries."""
    return max(part.offset, part.entries[count - 1][_AFTER]) if count else part.offset
