"""Several proxies, the job and the topics between them, in simulated time: the proxies' real code.

Each proxy sees the world late by its own delays, may be cut off from Kafka for a while, and has a clock of
its own. The job here is the law over one subject, event by event; that it decides as the real one is the
property of test_alone.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random

from law_kit import T0, quota
from mutation_kit import SUBJECT, own, statement

from enforcer.core.membership import ALIVE_EVERY_MS, Alive
from enforcer.laws.mutation.local_decisions import LocalDecisions
from enforcer.laws.mutation.request import Decision
from streaming.laws.mutation.law import PERMISSIVE, STRICT, charge_bucket
from streaming.laws.mutation.rates import FULL, refill
from streaming.policy.timeline import PolicyTimeline
from weir.simulate.agenda import Agenda

DEADLINE_MS = 2_000
READ_MS = 500
"""How often a proxy looks whether it hears enough."""
WAIT_MS = 1_000
"""After its start, until it lets clients in: by then others have heard of it."""


@dataclass(kw_only=True)
class Place:
    """Where a proxy stands in the world.

    Attributes:
        up_ms: how long its events take to the job.
        down_ms: how long decisions take to it.
        skew_ms: how far its clock is off.
        every_ms: a client of it asks so often.
        count: mutations of each request.
        in_turn: it waits for an answer before it asks again.
        start_ms: when it starts.
        stop_ms: when it leaves; None: never.
        cut_ms: from when to when it is cut off from Kafka.
    """

    up_ms: int = 50
    down_ms: int = 50
    skew_ms: int = 0
    every_ms: float = 20.0
    count: int = 1
    in_turn: bool = False
    start_ms: int = 0
    stop_ms: int | None = None
    cut_ms: tuple[int, int] = (-1, -1)


@dataclass(kw_only=True)
class _Event:
    proxy: "Proxy"
    id: str
    ts: int
    count: int
    charged: bool | None  # None: the job decides
    sent_ms: int


class Proxy:
    """A proxy in the world."""

    def __init__(self, world: "World", name: str, place: Place) -> None:
        self.world, self.name, self.place = world, name, place
        self.local = LocalDecisions(world.timeline, subjects_max=100, tail_max=100_000)
        self.alive = Alive(name)
        self.questions: dict[str, int] = {}
        self.asked = self.at_once = 0
        self.on = True
        self._numbers = count()
        self._quota = world.timeline.at(T0).mutation_quota_of_subject(SUBJECT)

    @property
    def ts(self) -> int:
        """Its clock."""
        return T0 + self.world.now + self.place.skew_ms

    def through(self, at_ms: int) -> int:
        """When what it sends or is sent at a time gets through."""
        begin, end = self.place.cut_ms
        return end if begin <= at_ms < end else at_ms

    def start(self) -> None:
        """Come up: say so, and let clients in."""
        self.alive.at_end(self.ts)
        self._say()
        self._note_end()
        self.world.after(WAIT_MS, self._next)

    def heard(self, name: str, ts: int, leaving: bool) -> None:
        """Read who is alive."""
        self.alive.heard(name, ts, leaving=leaving)
        self._look()

    def read(self, statement: Decision, allowed: bool | None) -> None:
        """Read an admission; `allowed` is None if it is of an event that was decided already."""
        self.local.stated(statement)
        sent_ms = self.questions.pop(statement.id, None)
        if sent_ms is not None:
            if allowed:
                self.world.admit(self.place.count)
            self._answered()

    def _say(self, leaving: bool = False) -> None:
        sent_ts = self.ts
        self.alive.sent(sent_ts)
        there = self.through(self.world.now) + self.place.up_ms

        def stand() -> None:
            self.alive.acknowledged(sent_ts)
            self.world.spread(lambda proxy: proxy.heard(self.name, T0 + self.world.now, leaving))

        self.world.at(there, stand)
        if not leaving:
            self.world.after(ALIVE_EVERY_MS, self._still)

    def _still(self) -> None:
        stop_ms = self.place.stop_ms
        if stop_ms is not None and self.world.now >= stop_ms:
            self.on = False
            self._say(leaving=True)
        elif self.on:
            self._say()

    def _note_end(self) -> None:
        # Who is cut off is not told that there is more to read.
        self.alive.at_end(self.ts)
        self._look()
        self.world.after(READ_MS, self._note_end)

    def _look(self) -> None:
        if not self.world.parts:
            return
        self.local.set_proxies(self.alive.count(away=self.world.job_away()))
        self.local.blind = self.alive.blind(self.ts)

    def _next(self) -> None:
        """A client asks, and will again."""
        if not self.on:
            return
        name = f"{self.name}-{next(self._numbers)}"
        asked = own(name, self.ts, {"x": self.place.count})
        assert self._quota is not None
        answer = self.local.decide(self._quota, *asked)
        event = _Event(
            proxy=self, id=name, ts=self.ts, count=self.place.count, charged=None, sent_ms=self.world.now
        )
        if answer is None:
            self.asked += 1
            self.questions[name] = self.world.now
            if not self.place.in_turn:
                self._later()
            self.world.after(DEADLINE_MS, lambda: self._deadline(name))
        else:
            self.at_once += 1
            event.ts, event.charged = answer.ts, answer.outcome == "allow"
            if event.charged:
                self.world.admit(self.place.count)
            self._later()
        self.world.at(self.through(self.world.now) + self.place.up_ms, lambda: self.world.send(event))

    def _deadline(self, name: str) -> None:
        if self.questions.pop(name, None) is not None:
            self.local.unanswered(SUBJECT, name)
            self._answered()

    def _answered(self) -> None:
        if self.place.in_turn:
            self._later()

    def _later(self) -> None:
        pause_ms = self.place.every_ms * self.world.random.uniform(0.5, 1.5)
        self.world.after(max(1, round(pause_ms)), self._next)


@dataclass(kw_only=True)
class World(Agenda):
    """All of it, by simulated ms.

    Attributes:
        rate: mutations per second.
        burst: at once.
        places: of the proxies.
        batch_ms: how often the job takes what has come.
        away_ms: from when to when it is away.
        parts: False: each proxy takes itself to be alone.
        seed: of the clients' pauses.
        above: the most that was ever admitted above rate x time + burst, over any stretch of time.
        admitted: mutations in all.
    """

    rate: float
    burst: float
    places: list[Place]
    batch_ms: int = 100
    away_ms: tuple[int, int] = (-1, -1)
    parts: bool = True
    seed: int = 0
    above: float = 0.0
    admitted: int = 0
    proxies: list[Proxy] = field(init=False)

    def __post_init__(self) -> None:
        super().__init__(0)
        self.timeline = PolicyTimeline({"quotas[user=alice]": quota(self.rate, self.burst)})
        self.random = Random(self.seed)
        self.tokens, self.last = FULL, T0
        self._left, self._went_ms = self.burst, 0
        self._topic: list[_Event] = []
        self.proxies = [Proxy(self, f"p{number}", place) for number, place in enumerate(self.places)]
        for proxy in self.proxies:
            self.at(proxy.place.start_ms, proxy.start)
        self.after(self.batch_ms, self._batch)

    def job_away(self) -> bool:
        """Whether the job is away."""
        return self.away_ms[0] <= self.now < self.away_ms[1]

    def admit(self, mutations: int) -> None:
        """A client goes on to the cluster."""
        self.admitted += mutations
        elapsed_ms, self._went_ms = self.now - self._went_ms, self.now
        self._left = refill(self._left, self.rate, self.burst, elapsed_ms) - mutations
        self.above = max(self.above, -self._left)

    def send(self, event: _Event) -> None:
        """An event stands on the topic."""
        if event.charged is None:
            event.ts = T0 + self.now
        self._topic.append(event)

    def spread(self, tell: Callable[[Proxy], None]) -> None:
        """All proxies read something that stands on a topic now."""
        for proxy in self.proxies:
            there = proxy.through(self.now + proxy.place.down_ms)
            self.at(max(there, proxy.place.start_ms), lambda proxy=proxy: tell(proxy))

    def _batch(self) -> None:
        self.after(self.batch_ms, self._batch)
        if self.job_away():
            return
        batch, self._topic = sorted(self._topic, key=lambda event: event.ts), []
        for event in batch:
            self._decide(event)

    def _decide(self, event: _Event) -> None:
        """The law, as the job takes an event through it."""
        # One that is far ahead is applied at its record's time.
        ts = event.ts if event.ts - T0 - self.now <= 1_000 else T0 + self.now
        at = max(ts, self.last)
        tokens = refill(self.tokens, self.rate, self.burst, at - self.last)
        rejected = [False]
        late = event.charged is None and T0 + self.now - event.ts > DEADLINE_MS
        if event.charged or (event.charged is None and not late):
            mode = PERMISSIVE if event.charged else STRICT
            tokens = charge_bucket(tokens, [float(event.count)], rejected, mode, False)
        self.tokens, self.last = FULL if tokens >= self.burst else tokens, at
        allowed = None if event.charged is not None else not late and not rejected[0]
        admission = statement(SUBJECT, event.id, at, tokens)
        self.spread(lambda proxy: proxy.read(admission, allowed))
