"""What Fetch responses bring to one connection: counted, and cut where a limit is reached."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from enforcer.kafka.dispatch.claims import Ample, LimitedTopic, left_for
from enforcer.kafka.dispatch.context import FetchContext
from enforcer.kafka.dispatch.entries import BATCH_BYTES_MIN, Entry, entries, run
from enforcer.kafka.dispatch.fetch_requests import FetchRequest, TopicRequest
from enforcer.kafka.dispatch.fetch_responses import EmptyTopic, PartitionAnswer, answer_of, changed
from enforcer.kafka.groups.trails import Trail
from enforcer.kafka.part import FETCH_LIMIT_MAX
from enforcer.laws.dispatch.counter_table import Moment
from enforcer.wire.kafka.batches import BATCHES_MAX

MARKS_MAX: Final = 10_000
"""Partitions of a connection whose offsets are remembered; of others none are told while they must wait."""
_UNKNOWN: Final = (-1, -1, -1)
_MSGS: Final = 0
_SIZE: Final = 1
_STOP: Final = 2
_AFTER: Final = 3


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

    def nearly_used_up(self) -> bool:
        """Whether what may still be is no more than one response may bring of such."""
        units = self.entries if self.by_entry else self.msgs
        return min(self.left_size * units, self.left_msgs * self.size) <= FETCH_LIMIT_MAX * units

    def add(self, entries: list[Entry]) -> int:
        """Deliver as many of a partition's as may be; returns how many that is."""
        done = 0
        msgs, size, count, by_entry = 0, 0, 0, self.by_entry
        left_msgs, left_size = self.left_msgs, self.left_size
        for its_msgs, its_size, _, _, its_count in entries:
            if its_msgs:
                if left_msgs <= 0 or left_size <= 0:
                    break
                msgs += its_msgs
                size += its_size
                count += its_count
                left_msgs -= its_count if by_entry else its_msgs
                left_size -= its_size
            done += 1
        self.msgs, self.size, self.entries = self.msgs + msgs, self.size + size, self.entries + count
        self.left_msgs, self.left_size = left_msgs, left_size
        return done


class Deliveries:
    """What comes on one connection."""

    def __init__(self, context: FetchContext, trail: Trail) -> None:
        self._context = context
        self._trail = trail
        self._caught_up: set[bytes] = set()
        # What was told last of partitions of limited topics (EmptyTopic): no answer's transactions are kept.
        self._marks: dict[tuple[bytes, int], tuple[int, int, int]] = {}
        # Which of the deliveries was each one's last.
        self._served: dict[tuple[bytes, int], int] = {}
        self._deliveries = 0

    def caught_up(self, key: bytes) -> bool:
        """Whether the last response left nothing of a topic unread."""
        return key in self._caught_up

    def missing(self, wants: Iterable[LimitedTopic]) -> list[EmptyTopic]:
        """Those of some topics that must wait, as a response tells of them."""
        marks = self._marks
        return [
            (key, [(part.number, *marks.get((key, part.number), _UNKNOWN)) for part in parts])
            for key, _, _, parts in (want.topic for want in wants if want.wait_ms)
        ]

    def taken(
        self, response: bytes, version: int, asked: FetchRequest, broker: str, wants: list[LimitedTopic],
        ample: Ample,
    ) -> bytes:  # fmt: skip
        """A response as the client gets it; what that brings is delivered.

        Args:
            broker: who delivers.
            wants: its limited topics; of `ample` those are put there of which records came.

        Raises:
            BadFrame: it cannot be read.
        """
        answer = answer_of(response, version)
        if answer.error:
            return response
        parts: dict[bytes, list[PartitionAnswer]] = {}
        for topic in answer.topics:
            parts.setdefault(topic.key, []).extend(topic.parts)
        stops: dict[int, int] = {}
        cut = False
        if ample:
            brought = (key for key, its in parts.items() for got in its if got.end > got.start)
            found = (ample.get(key) for key in dict.fromkeys(brought))
            wants += [LimitedTopic(*each) for each in found if each is not None]
        moment = self._context.dispatch.moment(broker)
        committed = asked.isolation == 1
        for want in wants:
            its = None if want.wait_ms else parts.get(want.topic.key)
            if its is None:
                continue
            for got in its:
                if got.end > got.start:
                    cut |= self._take(response, its, want, committed, stops, moment)
                    break
            else:
                self._take_nothing(its, want, committed)
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
        moment: Moment,
    ) -> bool:
        """Deliver what may be of a topic; whether anything may not."""
        dispatch, key = self._context.dispatch, want.topic.key
        left = left_for(dispatch, moment, want)
        msgs, size = left.msgs, left.bytes
        parts = self._read(response, came, want, committed, msgs, size)
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
            want.scarce = total.nearly_used_up()
            for group in want.groups:
                dispatch.deliver_at(
                    moment, want.name, group,
                    msgs=total.msgs, size=total.size, entries=total.entries, backlog=total.backlog,
                )  # fmt: skip
        if total.used_up:
            # Only now it is known whose limit it was.
            want.left = left = left_for(dispatch, moment, want)
            if cut and left.level:
                dispatch.throttled(want.broker, want.name, want.group, left.level, left.dimension)
        return cut

    def _take_nothing(self, came: list[PartitionAnswer], want: LimitedTopic, committed: bool) -> None:
        """The same where nothing has come, as of most topics of a request for hundreds."""
        key, offsets = want.topic.key, _offsets(want.topic)
        known = backlog = False
        for got in came:
            offset = offsets.get(got.number)
            if not got.error and offset is not None:
                known = True
                self._note(key, got)
                backlog |= offset < _end(got, committed)
        (self._caught_up.add if known and not backlog else self._caught_up.discard)(key)

    def _read(
        self, response: bytes, came: list[PartitionAnswer], want: LimitedTopic, committed: bool, msgs: float,
        size: float,
    ) -> list[_Read]:  # fmt: skip
        """The partitions without an error, those first that were served longest ago.

        While they bring no more than these messages and bytes, the entries of each are one.
        """
        # Each entry is one message at least. Only where it matters who has caught up are the others needed.
        key, most = want.topic.key, msgs if self._context.dispatch.all_charged else inf
        offsets = _offsets(want.topic)
        found = []
        if len(came) > 1:
            came = sorted(came, key=lambda got: self._served.get((key, got.number), 0))
        for got in came:
            offset = offsets.get(got.number)
            if got.error or offset is None:
                continue
            self._note(key, got)
            end = _end(got, committed)
            aborted = got.aborted if committed else ()
            plain = None
            if not aborted and got.end - got.start <= min(size, msgs * BATCH_BYTES_MIN):
                plain = run(response, got.start, got.end, offset)
            if plain is not None and plain[_MSGS] <= msgs:
                its = [plain]
                msgs, size = msgs - plain[_MSGS], size - plain[_SIZE]
            else:
                its = entries(response, got.start, got.end, offset, aborted, most)
                size = 0.0 if its else size
            found.append(_Read(got, offset, end, its))
        return found

    def _deliver(self, part: _Read, key: bytes, total: _Sum) -> int:
        """Deliver what may be of a partition; returns how many of its entries that is."""
        before = total.entries
        count = total.add(part.entries)
        total.backlog |= _position(part, count) < part.end
        if total.entries > before:
            self._deliveries += 1
            self._served[key, part.got.number] = self._deliveries
            self._note(key, part.got)
        return count

    def _note(self, key: bytes, got: PartitionAnswer) -> None:
        place = key, got.number
        if place not in self._marks and len(self._marks) >= MARKS_MAX:
            gone = next(iter(self._marks))
            del self._marks[gone]
            self._served.pop(gone, None)
        self._marks[place] = got[2:5]


def _offsets(topic: TopicRequest) -> dict[int, int]:
    """What is asked for, by partition."""
    if len(topic.parts) == 1:
        number, offset, _, _ = topic.parts[0]
        return {number: offset}
    return {part.number: part.offset for part in topic.parts}


def _end(got: PartitionAnswer, committed: bool) -> int:
    """The end of what is there for a consumer."""
    return got.stable if committed and got.stable >= 0 else got.high


def _position(part: _Read, count: int) -> int:
    """The offset behind so many of a partition's entries."""
    return max(part.offset, part.entries[count - 1][_AFTER]) if count else part.offset
