"""What passed since the last reading, from counters that only grow, and now and then begin anew."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

Counts = tuple[int, int, int, int]
"""Messages and bytes published, messages and bytes dispatched: the order of the four dimensions."""
NOTHING: Final[Counts] = (0, 0, 0, 0)
GONE_MS: Final = 3_600_000
"""A broker that has not answered for so long is forgotten: it may have got another name."""
PLACES_MAX: Final = 100_000
"""Topics and subscriptions whose counters are kept; others are counted."""
Shows = Callable[[str], bool]
"""Whether a reading would show a topic that is there."""


class Place(NamedTuple):
    """Where something is counted.

    Attributes:
        broker: name of the owner in events.
        topic: full name, of one partition.
        subscription: empty: the topic with all of them.
    """

    broker: str
    topic: str
    subscription: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """What passed between two readings.

    Attributes:
        period_ms: the time between them, of each broker: of one that did not answer it is longer.
        counts: of each place that was known or is new, also where nothing passed.
        restarted: counters that had gone back.
        unknown: places that were left out, since too many are kept.
        unheard: topic and subscription of places of which nothing was read now, though they may be there.
        whole: whether everybody has answered, so that what was not read is not there.
    """

    period_ms: Mapping[str, int]
    counts: Mapping[Place, Counts]
    restarted: int
    unknown: int
    unheard: frozenset[tuple[str, str]] = frozenset()
    whole: bool = True


def _unsure(_topic: str) -> bool:
    return False


class Differences:
    """Differences of consecutive readings.

    A counter begins at 0 when its topic is loaded: after an unload, a broker's restart, a move to another
    broker. So one that went back, and one of a topic that the reading before would have shown and did not,
    count from 0. What passed between the last reading and such a start is not seen. Any other counter that
    was not known before holds a past that nobody read, and begins with its first reading.

    >>> seen, here = Differences(), Place("b", "persistent://a/b/t")
    >>> for at_ms, count in ((0, 500), (1000, 530), (2000, 7)):
    ...     passed = seen.take(at_ms, ["b"], {here: (count, 0, 0, 0)})
    ...     passed.counts.get(here)
    (30, 0, 0, 0)
    (7, 0, 0, 0)
    """

    def __init__(self) -> None:
        self._last: dict[Place, tuple[int, Counts]] = {}
        self._read_ms: dict[str, int] = {}
        # By broker: of which topics its last reading would have shown counters.
        self._shown: dict[str, Shows] = {}

    def take(
        self, at_ms: int, brokers: Iterable[str], counters: Mapping[Place, Counts], shows: Shows = _unsure
    ) -> Passage:
        """A reading. The first one of a broker has nothing to be compared with, and is left out.

        Args:
            at_ms: when it was, by a steady clock.
            brokers: who answered.
            counters: of all places of these.
            shows: whether a topic would be among them if these brokers had it. What is known of others, and
                of brokers that did not answer, stays: no failure to answer is taken for a restart.
        """
        answered = frozenset(brokers)
        before = self._last
        # Who is known stays known, since one that takes another's room has a past.
        places = sorted(counters, key=lambda place: place not in before)
        places += [
            place
            for place in before
            if place not in counters and not (place.broker in answered and shows(place.topic))
        ]
        kept, beyond = places[:PLACES_MAX], places[PLACES_MAX:]
        periods = {broker: max(1, at_ms - self._read_ms[broker]) for broker in answered & set(self._read_ms)}
        result: dict[Place, Counts] = {}
        restarted = 0
        for place in kept:
            now, period_ms = counters.get(place), periods.get(place.broker)
            if now is None or period_ms is None:
                continue
            if place in before:
                then_ms, last = before[place]
                back = any(one < other for one, other in zip(now, last, strict=True))
                restarted += back
                passed = now if back else _less(now, last)
                # What an older reading is compared with took longer than this period.
                result[place] = _part(passed, period_ms, max(period_ms, at_ms - then_ms))
            elif self._shown[place.broker](place.topic):
                result[place] = now
        self._last = {
            place: (at_ms, counters[place]) if place in counters else before[place] for place in kept
        }
        self._read_ms |= dict.fromkeys(answered, at_ms)
        self._shown |= dict.fromkeys(answered, shows)
        self._shown |= dict.fromkeys({place.broker for place in beyond}, _unsure)
        for gone in [broker for broker, read_ms in self._read_ms.items() if at_ms - read_ms > GONE_MS]:
            del self._read_ms[gone], self._shown[gone]
            self._last = {place: last for place, last in self._last.items() if place.broker != gone}
        unknown = sum(place in counters for place in beyond)
        unheard = {place[1:] for place in kept if place not in counters}
        unheard.difference_update(place[1:] for place in counters)
        return Passage(
            period_ms=periods, counts=result, restarted=restarted, unknown=unknown,
            unheard=frozenset(unheard),
        )  # fmt: skip


def added(one: Counts, other: Counts) -> Counts:
    """Both together."""
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]


def _less(now: Counts, last: Counts) -> Counts:
    return now[0] - last[0], now[1] - last[1], now[2] - last[2], now[3] - last[3]


def _part(whole: Counts, numerator: int, denominator: int) -> Counts:
    return tuple(one * numerator // denominator for one in whole)  # type: ignore[return-value]
