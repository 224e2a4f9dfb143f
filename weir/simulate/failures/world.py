"""Simulated time, and the job in it: the real laws' steps, Weir's topics and what delays them.

All times are ms since the epoch on the brokers' clock.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from enforcer.core.feeds.decisions import Read, decisions_in
from enforcer.core.law import EnforcerLaw
from streaming.columns.outputs import DEAD_LETTER, Outputs
from streaming.columns.records import Records
from streaming.contract.events import PolicyChange
from streaming.contract.topics import Topics
from streaming.laws.law import StepContext
from streaming.laws.shard import step
from streaming.policy.timeline import PolicyTimeline
from weir.simulate.agenda import Agenda
from weir.simulate.draws import PLACES, Draws
from weir.simulate.failures.excess import Found

if TYPE_CHECKING:
    from weir.simulate.failures.proxy import Place, Proxy
    from weir.simulate.failures.scenario import Facts

BATCH_MS: Final = 500
"""How often the job takes what has come."""
TICK_MS: Final = 5_000
"""How often it says that time has passed; the live job says so each second, which decides the same."""
HISTORY_MS: Final = 600_000
"""Decisions that a proxy that starts can read back: as far as any law asks for (law.BACK_MAX_MS)."""
TOPICS: Final = Topics()


@dataclass(kw_only=True, slots=True)
class Setting:
    """What all of a world share.

    Attributes:
        initial: policies in force from the start.
        changes: of them, later.
        places: where proxies stand, and what befalls each.
        begin, end: of the simulation.
        away: from when to when the job is away.
        late_ms: the job decides so much later than it would,
        late_from: from this time on.
        seed: of who comes to which proxy.
    """

    initial: Mapping[str, Any]
    changes: Sequence[PolicyChange]
    places: "Sequence[Place]"
    begin: int
    end: int
    away: tuple[int, int] = (-1, -1)
    late_ms: int = 0
    late_from: int = 0
    seed: int = 1


class Traffic(ABC):
    """What one law's clients do, and what limits them at a proxy.

    Attributes:
        job: laws that the job must decide for it.
        recorded: what the log has for it, in order.
        found: name of what is limited -> what passed.
        timeline: the policies.
        world: where it is.
    """

    job: ClassVar[tuple[str, ...]]
    world: "World"

    def __init__(self, recorded: Sequence[Any], found: Found, timeline: PolicyTimeline) -> None:
        self.recorded, self.found, self.timeline = recorded, found, timeline

    def begin(self) -> None:
        """Put on the agenda what clients will do."""
        for number, each in enumerate(self.recorded):
            self.world.at(each.ts, partial(self._come, number, each))

    def _come(self, number: int, each: Any) -> None:  # noqa: B027
        """The n-th of what was recorded comes."""

    @abstractmethod
    def enforce(self, proxy: "Proxy") -> list[EnforcerLaw]:
        """Make what enforces at a proxy."""

    @abstractmethod
    def bound(self, name: str, facts: "Facts") -> float:
        """The most that may pass beyond a limit, by docs/laws.md; inf: there is no bound."""

    def opened(self, proxy: "Proxy") -> None:  # noqa: B027
        """All is read back, and clients are let in."""

    def heard(self, proxy: "Proxy") -> None:  # noqa: B027
        """Decisions were read there, or time has passed."""


def stepped(
    law: str, body: bytes | None, offset: int, given: Sequence[tuple[str, int, bytes]], context: StepContext
) -> tuple[bytes, Outputs]:
    """A law's shard one batch further: topic, time and bytes of each record, the first of this offset."""
    topics, times, values = (list(column) for column in zip(*given, strict=True))
    offsets = list(range(offset, offset + len(given)))
    records = Records(topic=topics, partition=[0] * len(given), offset=offsets, ts=times, value=values)
    return step(law, 0, body, records, context)


@dataclass(slots=True)
class _Job:
    """The live job's shards, one for each law.

    Attributes:
        laws: that it decides.
        initial: policies in force from the start.
        changes: of them, each law is told with its first batch.
    """

    laws: tuple[str, ...]
    initial: Mapping[str, Any]
    changes: Sequence[bytes]
    _bodies: dict[str, bytes] = field(default_factory=dict)
    _offset: int = 0

    def decide(self, now: int, events: Sequence[tuple[str, str, int, bytes]]) -> list[bytes]:
        """Take events: law, topic, time of the record, bytes."""
        context = StepContext(initial=self.initial, processed_ts=now, fail_fast=True)
        said: list[bytes] = []
        for law in self.laws:
            own = [each[1:] for each in events if each[0] in (law, "")]
            if law not in self._bodies:
                own = [(TOPICS.policies, now, change) for change in self.changes] + own
            if not own:
                continue
            self._bodies[law], outputs = stepped(law, self._bodies.get(law), self._offset, own, context)
            self._offset += len(own)
            rows = zip(outputs.type, outputs.value, strict=True)
            said += [value for kind, value in rows if kind != DEAD_LETTER]
        return said


class World(Agenda):
    """One law's traffic through several proxies under one failure.

    Attributes:
        setting: see there.
        proxies: all that ever are.
        history: what was decided lately, for proxies that start.

    Args:
        setting: see there.
        traffic: of the law.
    """

    def __init__(self, setting: Setting, traffic: Traffic) -> None:
        # A proxy stands in its world.
        from weir.simulate.failures.proxy import Proxy

        super().__init__(setting.begin)
        self.setting = setting
        changes = [_as_event(change) for change in setting.changes]
        self._job = _Job(traffic.job, setting.initial, changes)
        self._draws = Draws(setting.seed, PLACES)
        self._pending: list[tuple[str, str, int, bytes]] = []
        self._batch_due = False
        self.history: deque[tuple[int, list[Read]]] = deque()
        self.traffic, traffic.world = traffic, self
        self.proxies = [Proxy(self, f"p{number}", place) for number, place in enumerate(setting.places, 1)]
        self._readers = {law.reads.type: law.reads for proxy in self.proxies[:1] for law in proxy.laws}
        for proxy in self.proxies:
            self.at(max(setting.begin, proxy.place.start), proxy.start)
        traffic.begin()
        if "shares" in traffic.job or "concurrency" in traffic.job:
            self.every(TICK_MS, self._tick)

    def go(self) -> None:
        """Let all of it happen."""
        self.run(self.setting.end)

    def home(self, number: int) -> "Proxy | None":
        """The proxy that the n-th thing comes to, one of those that are open; None: there is none."""
        there = [proxy for proxy in self.proxies if proxy.open]
        return there[int(self._draws.uniform(number) * len(there))] if there else None

    def stand(self, topic: str, law: str, value: bytes) -> None:
        """An event stands on a topic now."""
        self._pending.append((law, topic, self.now, value))
        if not self._batch_due:
            self._batch_due = True
            begin, end = self.setting.away
            due = (self.now // BATCH_MS + 1) * BATCH_MS
            self.at(end if begin <= due < end else due, self._batch)

    def stand_usage(self, law: str, value: bytes) -> None:
        """An event for a law stands on `weir.usage` now."""
        self.stand(TOPICS.usage, law, value)

    def tell_alive(self, tell: "Callable[[Proxy], None]") -> None:
        """All proxies read what stands on `weir.usage` now."""
        for proxy in self.proxies:
            there = max(proxy.through(self.now) + proxy.place.down_ms, proxy.place.start)
            self.at(there, partial(tell, proxy))

    def _tick(self) -> None:
        begin, end = self.setting.away
        if not begin <= self.now < end:
            self.stand(TOPICS.usage, "", b'{"type":"tick","ts":%d}' % self.now)

    def _batch(self) -> None:
        self._batch_due = False
        events, self._pending = self._pending, []
        values = self._job.decide(self.now, events)
        if values:
            late = self.now >= self.setting.late_from
            self.after(self.setting.late_ms if late else 0, lambda: self._spread(values))

    def _spread(self, values: list[bytes]) -> None:
        """What was decided stands on `weir.decisions`, and is read."""
        records = (Message(value=value, timestamp=(TIMESTAMP_LOG_APPEND_TIME, self.now)) for value in values)
        said = [read for record in records for read in decisions_in(record, self._readers)]
        self.history.append((self.now, said))
        while self.history[0][0] < self.now - HISTORY_MS:
            self.history.popleft()
        for proxy in self.proxies:
            if proxy.on:
                there = proxy.through(self.now) + proxy.place.down_ms
                self.at(there, partial(proxy.read, said))


def _as_event(change: PolicyChange) -> bytes:
    event = {"type": "policy", "id": change.id, "ts": change.ts, "path": change.path, "value": change.value}
    return orjson.dumps(event if change.version is None else event | {"version": change.version})
