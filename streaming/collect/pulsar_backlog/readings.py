"""What Pulsar's admin API says of one topic's log, as far as backlogs need it.

Sources: `internalStats` and `stats` of Pulsar 4.0.7; where a field means something else than its name says,
that was measured on it (docs/backlog/pulsar.md).
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final
from urllib.parse import unquote_plus

from streaming.contract.backlog.actions import Position
from streaming.contract.errors import BadEvent
from streaming.contract.fields import TS_MAX_MS, Fields, integer, shown, text
from streaming.contract.times import instant_ms

INTERNAL: Final = ("__", "pulsar.dedup", "pulsar.repl")
"""Cursors of the broker's own begin so: they are not evicted, and nobody is for their sake."""
PUBLISHED: Final = "X-Pulsar-publish-time"
"""Header of a single entry."""
_BEYOND: Final[Position] = (2**63, -1)
"""A position behind all that there can be."""
_RANGE: Final = re.compile(r"\((\d+):(-?\d+)\.\.(\d+):(-?\d+)\]")


@dataclass(frozen=True, slots=True)
class Stretch:
    """A ledger: its id, and what it holds, in entries and bytes."""

    id: int
    entries: int
    size: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a subscription has come.

    Attributes:
        position: the mark-delete position.
        born: says when it was created, or last written anew; another one of that name has another.
        acknowledged: (from, to] behind the position that is acknowledged one by one.
    """

    position: Position
    born: str
    acknowledged: tuple[tuple[Position, Position], ...] = ()


@dataclass(frozen=True, slots=True)
class TopicLog:
    """A topic's log and its cursors at one moment.

    Attributes:
        ledgers: oldest first.
        closed: how many of them are.
        created: when the open one was created, ms since the epoch, which closed the one before; None: not
            known, or none is open.
        cursors: of subscriptions, by their names.
    """

    ledgers: tuple[Stretch, ...]
    closed: int
    created: int | None
    cursors: Mapping[str, Cursor]

    def size_of(self, ledger: int) -> Stretch | None:
        """The ledger of this id; None: it is not there."""
        number = self._number(ledger)
        found = self.ledgers[number] if number < len(self.ledgers) else None
        return found if found is not None and found.id == ledger else None

    def next_of(self, position: Position) -> Position | None:
        """The first entry behind a position; None: there is none."""
        return next(((one.id, first) for one, first, _ in self.between(position, _BEYOND)), None)

    def before(self, position: Position) -> Position | None:
        """The last entry before that of a position; None: there is none."""
        ledger, entry = position
        for one in reversed(self.ledgers[: self._number(ledger + 1)]):
            last = (min(entry, one.entries) if one.id == ledger else one.entries) - 1
            if last >= 0:
                return one.id, last
        return None

    def between(self, since: Position, upto: Position) -> Iterator[tuple[Stretch, int, int]]:
        """Ledgers with entries behind `since` up to `upto`: the first of them, and behind the last."""
        for one in self.ledgers[self._number(since[0]) : self._number(upto[0] + 1)]:
            first = since[1] + 1 if one.id == since[0] else 0
            end = min(upto[1] + 1, one.entries) if one.id == upto[0] else one.entries
            if first < end:
                yield one, first, end

    def _number(self, ledger: int) -> int:
        """Of the first ledger with this id or a greater one."""
        return bisect_left(self.ledgers, ledger, key=lambda one: one.id)


def topic_log(topic: str, answer: Any) -> TopicLog:
    """Of a topic's `internalStats`.

    Raises:
        BadEvent: they are none.
    """
    try:
        ledgers = [_stretch(one) for one in answer["ledgers"]]
        is_open = bool(ledgers) and not ledgers[-1].entries
        if is_open:
            ledgers[-1] = _open_ledger(ledgers[-1].id, answer)
        if any(after.id <= before.id for before, after in pairwise(ledgers)):
            raise BadEvent("ledgers: ids that ascend were expected")
        return TopicLog(
            ledgers=tuple(ledgers),
            closed=len(ledgers) - is_open,
            created=(when(answer.get("lastLedgerCreatedTimestamp")) or None) if is_open else None,
            cursors={
                name: _cursor(cursor)
                # They are named as the metadata store needs it.
                for name, cursor in ((unquote_plus(key), one) for key, one in answer["cursors"].items())
                if not name.startswith(INTERNAL)
            },
        )
    except (KeyError, TypeError, ValueError, AttributeError, BadEvent) as error:
        said = error.reason if isinstance(error, BadEvent) else repr(error)
        raise BadEvent(f"internalStats of {topic}: {said}; a log was expected") from error


def durabilities(topic: str, stats: Any) -> dict[str, bool]:
    """Which subscriptions there are, and whether they hold data back, by a topic's `stats`.

    Raises:
        BadEvent: they are none.
    """
    try:
        return {name: bool(one["isDurable"]) for name, one in stats["subscriptions"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise BadEvent(f"stats of {topic}: {error!r}; subscriptions were expected") from error


def earliest(stats: Any, subscription: str) -> int | None:
    """When its oldest unacknowledged message was published, by `stats` asked for it; None: unsaid."""
    said = stats["subscriptions"].get(subscription, {}).get("earliestMsgPublishTimeInBacklog")
    # 0 and -1 say that there is none, or that it could not be read.
    return said if type(said) is int and 0 < said <= TS_MAX_MS else None


def when(said: Any) -> int | None:
    """A time as the admin API writes it, ms since the epoch; None: it is none, or names no zone.

    >>> when("1970-01-01T00:00:01.5Z"), when("1970-01-01T01:00:01+01:00"), when("soon"), when(None)
    (1500, 1000, None, None)
    >>> when("1970-01-02T00:00:00"), when("1969-12-31T00:00:00Z")
    (None, None)
    """
    try:
        at = instant_ms(said)
    except (ValueError, TypeError):
        return None
    return at if 0 <= at <= TS_MAX_MS else None


def position_of(said: str) -> Position:
    """`LEDGER:ENTRY`.

    >>> position_of("17:-1")
    (17, -1)

    Raises:
        ValueError: it is none.
    """
    ledger, _, entry = said.partition(":")
    return int(ledger), int(entry)


def _stretch(said: Fields) -> Stretch:
    return Stretch(*(integer(said, name, None) for name in ("ledgerId", "entries", "size")))


def _open_ledger(ledger: int, answer: Fields) -> Stretch:
    """It is listed as empty, and what it holds stands elsewhere.

    Once it is closed its own numbers are right, and these stay until the next one is created. They are not
    read at one moment either: of a ledger without a confirmed entry they are still those of the one before.
    """
    entries, size = (integer(answer, f"currentLedger{name}", None) for name in ("Entries", "Size"))
    confirmed = position_of(text(answer, "lastConfirmedEntry", None))
    there = min(entries, confirmed[1] + 1) if confirmed[0] == ledger else 0
    return Stretch(ledger, there, size * there // entries if there else 0)


def _cursor(said: Fields) -> Cursor:
    ranges = _RANGE.findall(text(said, "individuallyDeletedMessages", ""))
    position = position_of(text(said, "markDeletePosition", None))
    if min(position) < -1:
        raise BadEvent(f"markDeletePosition: {shown(said['markDeletePosition'])}; a position was expected")
    return Cursor(
        position=position,
        born=text(said, "lastLedgerSwitchTimestamp", ""),
        acknowledged=tuple(
            ((int(ledger), int(entry)), (int(last_ledger), int(last)))
            for ledger, entry, last_ledger, last in ranges
        ),
    )
