"""Limits of dispatch of one process, by policies that a test sets, without decisions."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from benchmarks.kit.lone_proxy import context, enforce
from enforcer.core.feeds.policies import Policies
from enforcer.core.law import Clock
from enforcer.kafka.dispatch.part import DispatchLimit
from enforcer.laws.dispatch.counter_table import Moment
from enforcer.laws.dispatch.dispatch import Dispatch

Rates = tuple[int, int]
_FLAGS = {
    "by_entry": "dispatchThrottlingOnBatchMessageEnabled",
    "all_charged": "dispatchThrottlingOnNonBacklogConsumerEnabled",
}


def wall_ms() -> float:
    """The brokers' time, which is this machine's."""
    return time.time() * 1000


def full_name(topic: str) -> str:
    """A topic as limits know it."""
    return f"persistent://public/default/{topic}"


class Delivered(NamedTuple):
    """What was said to be delivered."""

    place: tuple[str, ...]
    msgs: int
    size: int
    entries: int
    backlog: bool


class Counted(Dispatch):
    """The arithmetic, with what was delivered and held back.

    Args:
        now_ms: the brokers' time.
        topics: messages and bytes a second of topics, by their full names; 0: not limited.
        subscriptions: the same of (topic, group).
        broker: the same of each broker.
        generation: what it begins with, where another one was there before.
        flags: its flags.
    """

    def __init__(
        self,
        now_ms: Callable[[], float],
        topics: Mapping[str, Rates] | None = None,
        subscriptions: Mapping[tuple[str, str], Rates] | None = None,
        broker: Rates = (0, 0),
        generation: int = 0,
        **flags: bool,
    ) -> None:
        self.topics, self.subscriptions = dict(topics or {}), dict(subscriptions or {})
        self.others = 0
        self.delivered: list[Delivered] = []
        self.held: list[tuple[str, ...]] = []
        self._broker = _rate(broker) | {_FLAGS[name]: value for name, value in flags.items()}
        self._entries: dict[str, dict[str, Any]] = {}
        clock = Clock(steady_ms=now_ms, wall_ms=lambda: int(now_ms()))
        self._feed = Policies(clock.wall_ms)
        self._enforce(0)
        accounts: Any = None
        super().__init__(context(clock, policies=self._feed), accounts)
        self.generation += generation

    def change(self) -> None:
        """Other rates are in force from now on."""
        now = self.brokers_ms()
        self._enforce(now)
        self._use(self._feed.at(now))

    @property
    def proxies(self) -> int:
        """Whether there are others is for tests to say."""
        return 1 + self.others

    def deliver(self, broker: str, topic: str, subscription: str, **fields: Any) -> None:
        """Count a delivery of now."""
        self.deliver_at(self.moment(broker), topic, subscription, **fields)

    def deliver_at(
        self, moment: Moment, topic: str, subscription: str, *, msgs: int, size: int, entries: int,
        backlog: bool,
    ) -> None:  # fmt: skip
        """Count it, and note it."""
        place = moment.broker, topic, subscription
        self.delivered.append(Delivered(place, msgs, size, entries, backlog))
        super().deliver_at(
            moment, topic, subscription, msgs=msgs, size=size, entries=entries, backlog=backlog
        )

    def throttled(self, broker: str, topic: str, subscription: str, level: str, dimension: str) -> None:
        """Noted."""
        self.held.append((broker, topic, subscription, level, dimension))

    def _enforce(self, ts: int) -> None:
        entries: dict[str, dict[str, Any]] = {"broker": self._broker}
        for topic, rates in self.topics.items():
            entries[f"topics.{topic}"] = {"dispatchRate": _rate(rates)}
        for (topic, group), rates in self.subscriptions.items():
            its = entries.setdefault(f"topics.{topic}", {}).setdefault("subscriptions", {})
            its[group] = {"dispatchRate": _rate(rates)}
        enforce(self._feed, ts, entries | dict.fromkeys(self._entries.keys() - entries.keys()))
        self._entries = entries


def _rate(rates: Rates) -> dict[str, Any]:
    names = "dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"
    return {name: rate for name, rate in zip(names, rates, strict=True) if rate}


def count_by(proxy: Any, counted: Counted) -> None:
    """From now on this is the arithmetic of a proxy's new connections."""
    proxy.fetch_context.dispatch = counted
    next(limit for limit in proxy.concerns if isinstance(limit, DispatchLimit)).law = counted
