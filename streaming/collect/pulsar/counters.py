"""What passed since the last reading, from counters that only grow, and now and then begin anew."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

Counts = tuple[int, int, int, int]
"""Messages and bytes published, messages and bytes dispatched: the order of the four dimensions."""
NOTHING: Final[Counts] = (0, 0, 0, 0)


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
class Passed:
    """What passed between two readings.

    Attributes:
        period_ms: the time between them, of each broker: of one that did not answer it is longer.
        counts: of each place, also where nothing passed.
        restarted: counters that had gone back.
        unknown: places that were left out, since too many are kept.
    """

    period_ms: Mapping[str, int]
    counts: Mapping[Place, Counts]
    restarted: int
    unknown: int


class Differences:
    """Differences of consecutive readings.

    A counter begins at 0 when its topic is loaded: after an unload, a broker's restart, a move to another
    broker. So one that went back, and one of a topic that was not there, count from 0. What passed between
    the last reading and such a start is not seen.

    >>> seen, here = Differences(9), Place("b", "persistent://a/b/t")
    >>> for at_ms, count in ((0, 500), (1000, 530), (2000, 7)):
    ...     passed = seen.take(at_ms, ["b"], {here: (count, 0, 0, 0)})
    ...     passed.counts.get(here)
    (30, 0, 0, 0)
    (7, 0, 0, 0)

    Args:
        places_max: how many are kept.
    """

    def __init__(self, places_max: int) -> None:
        self._places_max = places_max
        self._last: dict[Place, Counts] = {}
        self._read_ms: dict[str, int] = {}

    def take(self, at_ms: int, brokers: Iterable[str], counters: Mapping[Place, Counts]) -> Passed:
        """A reading. The first one of a broker has nothing to be compared with, and is left out.

        Args:
            at_ms: when it was, by a steady clock.
            brokers: who answered. What is known of others stays, so that a broker's failure to answer is
                not taken for a restart.
            counters: of all places of these.
        """
        answered = frozenset(brokers)
        kept = dict(list(counters.items())[: self._places_max])
        before = self._last
        absent = {place: count for place, count in before.items() if place.broker not in answered}
        result: dict[Place, Counts] = {}
        restarted = 0
        for place, now in kept.items():
            # Of a broker that was never read its whole past would count as one period.
            if place.broker not in self._read_ms:
                continue
            last = before.get(place, NOTHING)
            back = any(one < other for one, other in zip(now, last, strict=True))
            restarted += back
            result[place] = now if back else _less(now, last)
        room = self._places_max - len(kept)
        self._last = kept | dict(list(absent.items())[:room])
        periods = {broker: max(1, at_ms - self._read_ms[broker]) for broker in answered & set(self._read_ms)}
        self._read_ms |= dict.fromkeys(answered, at_ms)
        unknown = len(counters) - len(kept)
        return Passed(period_ms=periods, counts=result, restarted=restarted, unknown=unknown)


def added(one: Counts, other: Counts) -> Counts:
    """Both together."""
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]


def _less(now: Counts, last: Counts) -> Counts:
    return now[0] - last[0], now[1] - last[1], now[2] - last[2], now[3] - last[3]
