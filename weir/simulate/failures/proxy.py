"""A proxy in simulated time: its laws as they are, its clocks, its membership, and what befalls it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final

import orjson

from enforcer.core.feeds.decisions import Read
from enforcer.core.feeds.policies import Policies
from enforcer.core.law import Clock, Context
from enforcer.core.membership import ALIVE_EVERY_MS, Membership
from enforcer.core.metrics import Metrics
from enforcer.core.reports import Acknowledged
from enforcer.core.settings import ProxySettings
from enforcer.laws.shares.meter import Meter
from streaming.columns.json_rows import objects
from streaming.columns.packed import unpack
from streaming.contract.events import PolicyChange
from streaming.kafka_io.brokers_clock import BrokersClock
from streaming.laws.registry import LAWS
from weir.simulate.agenda import Timer
from weir.simulate.failures.world import TOPICS, World

LOOK_MS: Final = 1_000
"""How often a proxy looks at the time, at the least."""
HEARD_MS: Final = 1_000
"""It lets clients in so long after it read its own sign of life."""
SPEAKS: Final = "kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a proxy stands, and what befalls it.

    Attributes:
        up_ms, down_ms: how long its events take to a topic, and records to it.
        skew_ms: how far its host's clock is ahead.
        start: when it starts.
        killed: when it is; inf: never.
        cut: from when to when it is cut off from Kafka.
    """

    up_ms: int = 30
    down_ms: int = 30
    skew_ms: int = 0
    start: int = 0
    killed: float = inf
    cut: tuple[int, int] = (-1, -1)


class Proxy:
    """One.

    Attributes:
        name, place: its own.
        context: what its laws stand in.
        meter: its accounts.
        laws: what enforces.
        on: it runs.
        open: clients are let in.

    Args:
        world, name, place: see there.
        settings: of it.
        metrics: of it; None: it makes its own.
    """

    def __init__(
        self, world: World, name: str, place: Place, settings: ProxySettings | None = None,
        metrics: Metrics | None = None,
    ) -> None:  # fmt: skip
        self.world, self.name, self.place = world, name, place
        self.on = self.open = False
        clock = Clock(
            steady_ms=lambda: float(world.now - world.setting.begin),
            wall_ms=lambda: world.now + place.skew_ms,
        )
        self._brokers = BrokersClock(clock.steady_ms, clock.wall_ms)
        policies = Policies(self._brokers.now_ms)
        policies.apply(
            [
                PolicyChange(id=path, ts=0, at=0, path=path, value=value, version=1)
                for path, value in world.setting.initial.items()
            ]
        )
        policies.apply(list(world.setting.changes))
        self.membership = Membership(name, SPEAKS, self._brokers.now_ms, self._read_to_ms)
        self.context = Context(
            proxy_id=name, settings=settings or ProxySettings(), metrics=metrics or Metrics(1), topics=TOPICS,
            connection={}, clock=clock, brokers_ms=self._brokers.now_ms, policies=policies,
            membership=self.membership, requests=_Topic(self, TOPICS.requests),
            send_usage=_Topic(self, TOPICS.usage).send,
            send_usage_pack=lambda value, _key: self._send_pack(value),
            # Nobody here reads of blocks that began or ended.
            send_action=lambda event, key, acked=None: True, soon=lambda function: function(),
            call_later=self.after, call_at=lambda ts, function: world.at(ts, self._while_on(function)),
            in_loop=lambda function: function(), ask_for_a_sign=self._ask_for_a_sign,
        )  # fmt: skip
        self.meter = Meter(self.context.settings, clock)
        self.laws = world.traffic.enforce(self)

    def through(self, at: int) -> int:
        """When what it sends or is sent at a time gets through."""
        begin, end = self.place.cut
        return end if begin <= at < end else at

    def after(self, delay_ms: float, function: Callable[[], None]) -> Timer:
        """Call something later, if it still runs then."""
        return self.world.after(delay_ms, self._while_on(function))

    def each_round(self, do: Callable[[], None]) -> None:
        """Do something whenever a round of shares ends."""

        def again() -> None:
            do()
            self.each_round(do)

        self.after(self.meter.interval_ms, again)

    def start(self) -> None:
        """Come up: say so, read back what was decided, and let clients in."""
        self.on = True
        if self.place.killed != inf:
            self.world.at(int(self.place.killed), self._die)
        self._look()
        self._beat()

    def read(self, said: list[Read]) -> None:
        """Read decisions."""
        if self.on:
            for law in self.laws:
                law.take([each for kind, each in said if kind == law.reads.type])
            self.world.traffic.heard(self)

    def send(self, topic: str, law: str, value: bytes, acked: Acknowledged | None) -> None:
        """An event leaves."""
        world = self.world

        def stand() -> None:
            record_ms = world.now
            world.stand(topic, law, value)
            world.at(self.through(world.now) + self.place.down_ms, partial(self._acked, record_ms, acked))

        world.at(self.through(world.now) + self.place.up_ms, stand)

    def _acked(self, record_ms: int, acked: Acknowledged | None) -> None:
        if self.on:
            self._brokers.learn(record_ms, self.context.clock.steady_ms())
            if acked is not None:
                acked(record_ms)

    def _send_pack(self, value: bytes) -> bool:
        world = self.world
        for row in objects(*unpack(value)).to_pylist():
            stand = partial(world.stand_usage, world.traffic.job[0], row)
            world.at(self.through(world.now) + self.place.up_ms, stand)
        return True

    def _look(self) -> None:
        self.membership.look()
        for law in self.laws:
            law.look()
        self.world.traffic.heard(self)
        self.after(LOOK_MS, self._look)

    def _beat(self) -> None:
        """Say that it lives (enforcer/core/feeds/membership.py)."""
        alive, world = self.membership.alive, self.world
        if self.membership.hears_of_no_decision:
            self._ask_for_a_sign()
        sent_ms = self._brokers.now_ms()
        alive.sent(sent_ms)

        def stand() -> None:
            record_ms = world.now
            world.tell_alive(lambda proxy: proxy.hear_alive(self, record_ms))
            there = self.through(world.now) + self.place.down_ms
            world.at(there, partial(self._acked, record_ms, lambda _: alive.acknowledged(sent_ms)))

        world.at(self.through(world.now) + self.place.up_ms, stand)
        self.after(ALIVE_EVERY_MS, self._beat)

    def hear_alive(self, other: "Proxy", ts: int) -> None:
        """Read a sign of life."""
        if not self.on:
            return
        alive = self.membership.alive
        first = not alive.read_own
        alive.heard(other.name, ts, speaks=SPEAKS, instance=other.membership.alive.instance)
        self.membership.look()
        if first and alive.read_own:
            self.after(HEARD_MS, self._open)

    def _open(self) -> None:
        for _, said in list(self.world.history):
            self.read(said)
        self.world.traffic.opened(self)
        self.open = True

    def _die(self) -> None:
        self.on = self.open = False

    def _ask_for_a_sign(self) -> None:
        for law in self.laws:
            law.ask_for_a_sign()

    def _read_to_ms(self) -> int | None:
        begin, end = self.place.cut
        return begin if begin <= self.world.now < end else None

    def _while_on(self, function: Callable[[], None]) -> Callable[[], None]:
        return lambda: function() if self.on else None


_LAW_OF: Final = {kind: law.name for law in LAWS.by_name.values() for kind in law.readers}


class _Topic:
    """Takes events of a proxy for a topic (core.law.Sender)."""

    def __init__(self, proxy: Proxy, name: str) -> None:
        self._proxy, self._name = proxy, name

    def send(
        self, event: Mapping[str, Any], key: str, *, acked: Callable[[int | None], object] | None = None
    ) -> bool:
        """Hand an event over."""
        self._proxy.send(self._name, _LAW_OF[event["type"]], orjson.dumps(event), acked)
        return True

    def room(self) -> bool:
        """For any number: Kafka is there but for the one that is cut off."""
        return True
