"""A proxy of simulated histories: production's own code, in what `weir simulate failures` has it stand in.

Beside that it dies and comes back, stands still, reads back what was decided before it came, and its links
may hold all back or be slow, in order.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

from confluent_kafka import Message

from enforcer.core.feeds.decisions import Read
from enforcer.core.feeds.peers import charges_in
from enforcer.core.metrics import Metrics
from enforcer.laws.mutation.law import MutationQuotas
from weir.simulate.agenda import Timer
from weir.simulate.failures.proxy import Proxy
from weir.simulate.failures.world import TOPICS

METRICS = Metrics(1)
"""Of all proxies: nobody decides by them, and to make them takes long."""
SIGNS_MS = 20_000
"""A proxy that starts hears who said so long before that it lives (feeds.membership)."""


@dataclass(slots=True)
class Place:
    """Where the lives of one proxy stand (weir.simulate.failures.proxy.Place).

    Attributes:
        holds: links hold back what comes from a time to another one.
        slow: or it takes so much longer: from, to, ms.
        still: the process stands still from a time to another one.
    """

    up_ms: int
    down_ms: int
    skew_ms: int
    killed: float = inf
    holds: list[tuple[int, int]] = field(default_factory=list)
    slow: list[tuple[int, int, int]] = field(default_factory=list)
    still: list[tuple[int, int]] = field(default_factory=list)

    def through(self, at: int) -> int:
        """When what is sent at a time gets through: never before what was sent earlier."""
        there = at
        for begin, end, more in self.slow:
            if begin <= at:
                there = max(there, min(at, end) + more)
        for begin, end in self.holds:
            if begin <= at < end:
                there = max(there, end)
        return there

    def awake(self, at: int) -> int:
        """When it does what it would at a time."""
        return max((end for begin, end in self.still if begin <= at < end), default=at)


class Life(Proxy):
    """A proxy's process, from its start to its end."""

    world: Any
    place: Place

    def __init__(self, town: Any, name: str, place: Place) -> None:
        super().__init__(town, name, place, town.settings, METRICS)
        self.began, self.died = town.now, inf
        self.membership.alive.instance = f"{name} {town.now}"

    @property
    def law(self) -> MutationQuotas:
        """What decides."""
        return self.laws[0]

    def through(self, at: int) -> int:
        """See Proxy."""
        return self.place.through(at)

    def start(self) -> None:
        """See Proxy; besides it hears who lives."""
        super().start()
        for ts, tell in self.world.signs:
            if ts >= self.world.now - SIGNS_MS:
                self.world.at(self.through(self.world.now) + self.place.down_ms, partial(tell, self))

    def after(self, delay_ms: float, function: Callable[[], None]) -> Timer:
        """See Proxy; what waits until it stands still no more can be cancelled still, as in a real loop."""
        timer = Timer(function)

        def call() -> None:
            if timer.function is not None:
                timer.function()

        super().after(delay_ms, call)
        return timer

    def send(self, topic: str, law: str, value: bytes, acked: Callable[[int], None] | None) -> None:
        """See Proxy; what its link held back when it was killed is lost."""
        held = self.through(self.world.now)

        def stand() -> None:
            if self.died < held:
                self.world.note("lost", value=value.decode())
                return
            self.world.stand(topic, law, value)
            record_ms = self.world.now
            there = self.through(record_ms) + self.place.down_ms
            self.world.at(there, partial(self._acked, record_ms, acked))

        self.world.at(held + self.place.up_ms, stand)

    def awake(self, function: Callable[[], None]) -> bool:
        """Whether it can do something now; if it stands still, it does so afterwards."""
        at = self.place.awake(self.world.now)
        if at > self.world.now:
            self.world.at(at, function)
        return at <= self.world.now

    def read(self, said: list[Read]) -> None:
        """See Proxy."""
        if self.awake(partial(self.read, said)):
            super().read(said)

    def hear_alive(self, other: Proxy, ts: int) -> None:
        """See Proxy."""
        if self.awake(partial(self.hear_alive, other, ts)):
            super().hear_alive(other, ts)

    def die(self) -> None:
        """By kill -9."""
        self._die()
        self.died = self.world.now

    def _acked(self, record_ms: int, acked: Callable[[int], None] | None) -> None:
        if self.awake(partial(self._acked, record_ms, acked)):
            super()._acked(record_ms, acked)

    def _while_on(self, function: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            if self.on and self.awake(call):
                function()

        return call

    def _read_to_ms(self) -> int | None:
        now = self.world.now
        return next((begin for begin, end in self.place.holds if begin <= now < end), None)

    def _open(self) -> None:
        """All is read back: what was decided, and what proxies have decided since."""
        world, now = self.world, self.world.now
        wait_ms = max(self.through(now) - now, self.membership.alive.predecessor_ms(self._brokers.now_ms()))
        if wait_ms > 0:
            self.after(wait_ms, self._open)
            return
        for said in world.said:
            self.read(said)
        reading = self.law.coordinator.reading
        for ts, value in world.asked:
            record = Message(topic=TOPICS.requests, partition=0, offset=0, value=value, timestamp=(2, ts))
            for charge in charges_in(record):
                reading.event(charge)
        world.opened(self)
        self.open = True
