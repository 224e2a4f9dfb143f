"""Moves subscriptions of a Pulsar cluster forward, to a position and never by a number of messages.

`POST TOPIC/subscription/NAME/expireMessages` with a position acknowledges all up to that entry, it included;
it never goes back, so a second one changes nothing, and it works with consumers connected. Pulsar answers
before it is done, so the position is looked at until it is there.
"""

import asyncio
import contextlib
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import Final
from urllib.parse import quote_plus

from streaming.collect.backlog.cluster import CannotEvict, Eviction, NotKnown
from streaming.collect.pulsar.limits import topic_path
from streaming.collect.pulsar.rest import Rest, RestError, part
from streaming.collect.pulsar_backlog.readings import PUBLISHED, Cursor, Stretch, TopicLog, topic_log, when
from streaming.contract.backlog.actions import Position
from streaming.contract.backlog.decisions import EvictionPlan
from streaming.contract.broker_events import Backlog
from streaming.contract.errors import BadEvent
from streaming.contract.names import partitioned_topic_of
from streaming.contract.printable import printable

HOW: Final = "expire"
EVICTION_WAIT_S: Final = 10.0
"""How long an eviction may take until the subscription is seen to have moved."""
EVICTION_SAMPLE: Final = 100
"""Entries of one eviction that are asked how many messages they hold, evenly apart."""
NARROWED_MAX: Final = 10
"""How often an eviction by time is cut before one that is too young."""
_POLL_S: Final = 0.05
_POLL_MAX_S: Final = 1.0
_MESSAGES: Final = "X-Pulsar-num-batch-message"


@dataclass(frozen=True, slots=True)
class _Held:
    """An entry: where it is, its messages, and when it was published; None: not known."""

    position: Position
    messages: int
    published: int | None


class Evictor:
    """Carries out plans; see BacklogCluster."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    async def prepare(self, report: Backlog, planned: EvictionPlan, *, may_delete: bool) -> Eviction | None:
        """None: it is there already, or has gone; positions can always be moved."""
        try:
            return await self._prepare(report, planned)
        except RestError as failure:
            if failure.absent:
                return None
            raise

    async def carry_out(self, eviction: Eviction) -> None:
        """Move the subscription, and see that it was."""
        path = f"{topic_path(eviction.topic)}/subscription/{_twice(eviction.subscription)}/expireMessages"
        ledger, entry = eviction.upto
        body = {"ledgerId": ledger, "entryId": entry, "partitionIndex": _partition(eviction.topic)}
        deadline = time.monotonic() + EVICTION_WAIT_S
        first = True
        while True:
            said = "it did not move"
            try:
                await self._rest.change("POST", path, body)
            except RestError as failure:
                # 409: it is being moved already, for the same reason or another.
                if failure.status is not None and failure.status != 409:
                    kind = CannotEvict if first and not failure.unsure else NotKnown
                    raise kind(str(failure)) from failure
                said = str(failure)
                if failure.silent is not None:
                    # It may have been done, and that cannot be seen where nobody is asked any more.
                    self._rest.ask_again()
            first = False
            if await self._arrived(eviction, min(deadline, time.monotonic() + _POLL_MAX_S)):
                return
            if time.monotonic() >= deadline:
                raise NotKnown(f"not at {ledger}:{entry} within {EVICTION_WAIT_S:g} s: {said}")

    async def _arrived(self, eviction: Eviction, deadline: float) -> bool:
        """Whether it is seen there before `deadline`; looks once at least."""
        while True:
            try:
                log = await log_of(self._rest, eviction.topic)
            except RestError as failure:
                if failure.absent:
                    raise
                log = None
            if log is not None:
                if eviction.subscription not in log.cursors:
                    raise NotKnown(f"{eviction.topic}: the subscription has gone")
                if has_passed(log, eviction.subscription, eviction.upto):
                    return True
            if time.monotonic() + _POLL_S >= deadline:
                return False
            await asyncio.sleep(_POLL_S)

    async def _prepare(self, report: Backlog, planned: EvictionPlan) -> Eviction | None:
        topic = report.topic
        log = await log_of(self._rest, topic)
        cursor = log.cursors.get(planned.subscription)
        if cursor is None:
            # It was deleted, and its backlog with it.
            return None
        if planned.before_publish_time is not None:
            upto = await self._by_time(report, log, planned.before_publish_time)
        elif planned.ledger is None or planned.entry is None:
            raise CannotEvict(f"no position is planned for {printable(planned.subscription)}")
        else:
            upto = (planned.ledger, planned.entry)
        if _moved_back(report, planned.subscription, log, cursor):
            raise CannotEvict(f"{printable(planned.subscription)} was moved back since the report")
        for _ in range(NARROWED_MAX):
            if upto is None or cursor.position >= upto:
                return None
            if log.size_of(upto[0]) is None:
                raise CannotEvict(f"{topic}: ledger {upto[0]} of the plan is not there any more")
            held = await self._sampled(topic, log, cursor, upto)
            young = _young(topic, held, planned.before_publish_time)
            if not young:
                messages, size = _amount(log, cursor, upto, held)
                return Eviction(
                    topic=topic,
                    subscription=planned.subscription,
                    how=HOW,
                    since=cursor.position,
                    upto=upto,
                    messages=messages,
                    bytes=size,
                )
            upto = log.before(min(young))
        raise CannotEvict(f"{topic}: its publish times are in disorder")

    async def _by_time(self, report: Backlog, log: TopicLog, before_ms: int) -> Position | None:
        """The last entry that was published before a time and was there when that was planned.

        Pulsar finds it by the publish times in its entries, so that no clock of today's has a say.
        """
        last = next((one for one in reversed(report.ledgers) if one.entries), None)
        if last is None or before_ms <= 0:
            return None
        found = await self._rest.get(f"{topic_path(report.topic)}/messageid/{before_ms}")
        try:
            first_kept = int(found["ledgerId"]), int(found["entryId"])
        except (KeyError, TypeError, ValueError) as error:
            raise BadEvent(f"messageid of {report.topic}: {error!r}; a position was expected") from error
        return log.before(min(first_kept, (last.id, last.entries)))

    async def _sampled(self, topic: str, log: TopicLog, cursor: Cursor, upto: Position) -> list[_Held]:
        """Entries that would go, all of them or some that stand evenly apart."""
        positions = [
            position
            for position in _spread(list(log.between(cursor.position, upto)), EVICTION_SAMPLE)
            if not _acknowledged(log, cursor, (position[0], position[1] - 1), position)
        ]
        return await asyncio.gather(*(self._held(topic, position) for position in positions))

    async def _held(self, topic: str, position: Position) -> _Held:
        """What an entry holds; one message if that cannot be read."""
        with contextlib.suppress(RestError, ValueError):
            headers = await self._rest.head(f"{topic_path(topic)}/ledger/{position[0]}/entry/{position[1]}")
            return _Held(position, max(1, int(headers.get(_MESSAGES, 1))), when(headers.get(PUBLISHED)))
        return _Held(position, 1, None)


async def log_of(rest: Rest, topic: str) -> TopicLog:
    """A topic's log now.

    Raises:
        RestError: no answer of use; `absent`: it has gone.
        BadEvent: an answer in another form.
    """
    return topic_log(topic, await rest.get(f"{topic_path(topic)}/internalStats"))


def has_passed(log: TopicLog, subscription: str, position: Position) -> bool | None:
    """Whether a subscription has acknowledged all up to a position; None: there is no such one."""
    cursor = log.cursors.get(subscription)
    return None if cursor is None else cursor.position >= position


def _moved_back(report: Backlog, name: str, log: TopicLog, cursor: Cursor) -> bool:
    """Whether entries lie between where a subscription is and where it was when it was reported."""
    reported = next(((one.ledger, one.entry) for one in report.subscriptions if one.name == name), None)
    return reported is not None and any(log.between(cursor.position, reported))


def _young(topic: str, held: Sequence[_Held], before_ms: int | None) -> list[Position]:
    """Those that must stay: producers' clocks may differ, and Pulsar looks for a time as if they did not."""
    if before_ms is None:
        return []
    for one in held:
        if one.published is None:
            ledger, entry = one.position
            raise CannotEvict(f"{topic}: entry {ledger}:{entry} does not tell when it was published")
    return [one.position for one in held if one.published is not None and one.published >= before_ms]


def _amount(log: TopicLog, cursor: Cursor, upto: Position, held: Sequence[_Held]) -> tuple[int, int]:
    """Messages and bytes that would go: of the entries that are not acknowledged one by one."""
    entries, size = 0, 0.0
    for ledger, first, end in log.between(cursor.position, upto):
        left = end - first - _acknowledged(log, cursor, (ledger.id, first - 1), (ledger.id, end - 1))
        entries += left
        size += left * ledger.size / ledger.entries
    messages = sum(one.messages for one in held)
    return round(entries * messages / len(held)) if held else entries, round(size)


def _acknowledged(log: TopicLog, cursor: Cursor, since: Position, upto: Position) -> int:
    """Entries behind `since` and not behind `upto` that are acknowledged one by one."""
    # Of all that a consumer may leave, one for every other message: those that lie there.
    begin = bisect_right(cursor.acknowledged, since, key=itemgetter(1))
    beyond = bisect_left(cursor.acknowledged, upto, key=itemgetter(0))
    return sum(
        end - first
        for low, high in cursor.acknowledged[begin:beyond]
        for _, first, end in log.between(max(low, since), min(high, upto))
    )


def _spread(stretches: Sequence[tuple[Stretch, int, int]], most: int) -> Iterator[Position]:
    """All entries of these, or that many that stand evenly apart."""
    lengths = [end - first for _, first, end in stretches]
    total = sum(lengths)
    ends, taken = list(accumulate(lengths)), min(total, most)
    for index in (number * total // taken for number in range(taken)):
        at = bisect_right(ends, index)
        ledger, _, end = stretches[at]
        yield ledger.id, end - (ends[at] - index)


def _partition(topic: str) -> int:
    """Which one it is by its name, as Pulsar wants it said; -1: none."""
    return -1 if partitioned_topic_of(topic) is None else int(topic.rpartition("-")[2])


def _twice(subscription: str) -> str:
    """A subscription's name as a part of a path: Pulsar decodes it twice, which only these two could tell.

    >>> _twice("a b/c"), _twice("50%+")
    ('a%20b%2Fc', '50%2525%252B')
    """
    return part(quote_plus(subscription) if {"%", "+"} & set(subscription) else subscription)
