"""Limits of dispatch without policies or decisions: the law's counters of one process."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from enforcer.core.lines import Lines, Others
from enforcer.kafka.dispatch.part import DispatchLimit
from streaming.laws.dispatch.law import DIMENSIONS, available, rolled, wait_ms

SECOND = 1_000


def wall_ms() -> float:
    """The brokers' time, which is this machine's."""
    return time.time() * 1000


def full_name(topic: str) -> str:
    """A topic as limits know it."""
    return f"persistent://public/default/{topic}"


Names = tuple[str, ...]
Rates = tuple[int, int]


class Left(NamedTuple):
    """What may be delivered (left.Left)."""

    msgs: int | None
    bytes: int | None
    wait_ms: int
    level: str
    dimension: str


class Delivered(NamedTuple):
    """What was said to be delivered."""

    place: Names
    msgs: int
    size: int
    entries: int
    backlog: bool


class Counted:
    """The arithmetic (dispatch.Dispatch).

    Args:
        now_ms: the brokers' time.
        topics: messages and bytes a second of topics, by their full names; 0: not limited.
        subscriptions: the same of (topic, group).
        broker: the same of each broker.
        fields: its flags.
    """

    def __init__(
        self,
        now_ms: Callable[[], float],
        topics: Mapping[str, Rates] | None = None,
        subscriptions: Mapping[tuple[str, str], Rates] | None = None,
        broker: Rates = (0, 0),
        **fields: bool,
    ) -> None:
        self.now_ms = now_ms
        self.topics, self.subscriptions, self.broker = dict(topics or {}), dict(subscriptions or {}), broker
        self.active, self.by_subscription = True, bool(subscriptions)
        self.by_entry, self.all_charged = False, True
        self.generation, self.others, self.begun = 0, 0, 1
        self.lines = Lines(now_ms)
        for name, value in fields.items():
            setattr(self, name, value)
        self._acquired: dict[Names, list[int]] = {}
        self._at: dict[Names, int] = {}
        self._seen: dict[Names, list[int]] = {}
        self.delivered: list[Delivered] = []
        self.held: list[tuple[str, ...]] = []

    def limits(self, topic: str, subscription: str) -> bool:
        """Whether a rate applies."""
        return any(any(rates) for _, _, rates in self._levels("", topic, subscription))

    def limits_group(self, topic: str, subscription: str) -> bool:
        """Whether a rate of its own applies to it."""
        return any(self.subscriptions.get((topic, subscription), (0, 0)))

    def may_limit_groups(self, topic: str) -> bool:
        """Whether any of its groups has one."""
        return any(name == topic for name, _ in self.subscriptions)

    @property
    def proxies(self) -> int:
        """Whether there are others is for tests to say."""
        return 1 + self.others

    def counters(self, broker: str, topic: str, subscription: str) -> list[Names]:
        """Those that limit."""
        return [names for _, names, rates in self._levels(broker, topic, subscription) if any(rates)]

    def left(self, broker: str, topic: str, subscription: str, others: Others | None = None) -> Left:
        """As the law says."""
        now = int(self.now_ms())
        least: list[int | None] = [None, None]
        longest, by = 0, ("", "")
        for level, names, rates in self._levels(broker, topic, subscription):
            for dimension, rate in enumerate(rates):
                if not rate:
                    continue
                acquired = self._rolled(names, rates, now)[dimension]
                free = available(acquired, rate)
                if others is not None:
                    free = others(names).leaves(free, dimension)
                before = least[dimension]
                least[dimension] = free if before is None else min(before, free)
                wait = wait_ms(acquired, rate, SECOND, now)
                if wait > longest:
                    longest, by = wait, (level, DIMENSIONS[dimension])
        return Left(*least, longest, *by)

    def moment(self, broker: str) -> str:
        """Here it is always now."""
        return broker

    def left_at(self, moment: str, topic: str, subscription: str, others: Others | None = None) -> Left:
        """As `left`."""
        return self.left(moment, topic, subscription, others)

    def deliver_at(self, moment: str, topic: str, subscription: str, **fields: Any) -> None:
        """As `deliver`."""
        self.deliver(moment, topic, subscription, **fields)

    def deliver(
        self, broker: str, topic: str, subscription: str, *, msgs: int, size: int, entries: int, backlog: bool
    ) -> None:
        """Count it."""
        place = (broker, topic, subscription)
        self.delivered.append(Delivered(place, msgs, size, entries, backlog))
        seen = self._seen.setdefault(place, [0, 0, 0])
        for number, count in enumerate((msgs, size, entries)):
            seen[number] += count
        if not backlog and not self.all_charged:
            return
        for _, names, rates in self._levels(broker, topic, subscription):
            acquired = self._rolled(names, rates, int(self.now_ms()))
            for number, count in enumerate((entries if self.by_entry else msgs, size)):
                acquired[number] += count if rates[number] else 0

    def mean_entry(self, broker: str, topic: str, subscription: str) -> tuple[float, float]:
        """Of all that was delivered."""
        msgs, size, entries = self._seen.get((broker, topic, subscription), (0, 0, 0))
        return (msgs / entries, size / entries) if entries else (1.0, 0.0)

    def throttled(self, broker: str, topic: str, subscription: str, level: str, dimension: str) -> None:
        """Noted."""
        self.held.append((broker, topic, subscription, level, dimension))

    def _levels(self, broker: str, topic: str, subscription: str) -> list[tuple[str, Names, Rates]]:
        levels = [
            ("broker", (broker,), self.broker),
            ("topic", (broker, topic), self.topics.get(topic, (0, 0))),
        ]
        if subscription:
            rates = self.subscriptions.get((topic, subscription), (0, 0))
            levels.append(("subscription", (broker, topic, subscription), rates))
        return levels

    def _rolled(self, names: Names, rates: Rates, now: int) -> list[int]:
        acquired = self._acquired.setdefault(names, [0, 0])
        since = self._at.get(names, now)
        for number, rate in enumerate(rates):
            acquired[number] = rolled(acquired[number], rate, SECOND, since, now)
        self._at[names] = now
        return acquired


def count_by(proxy: Any, counted: Counted) -> None:
    """From now on this is the arithmetic of a proxy's new connections."""
    proxy.fetch_context.dispatch = counted
    next(limit for limit in proxy.concerns if isinstance(limit, DispatchLimit)).law = counted
