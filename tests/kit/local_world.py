"""Several proxies that decide here, each with a client of its own: the world of `weir simulate failures`.

Harder than there: clocks are as far off as they are said to be, whatever acknowledgements tell, and who is
cut off is not told that there is more to read.
"""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from math import inf
from random import Random
from unittest.mock import patch

from law_kit import T0, quota
from mutation_kit import SUBJECT

from enforcer.laws.mutation.request import Stage
from streaming.contract.events import Request as Asked
from streaming.policy.timeline import PolicyTimeline
from weir.simulate.failures import proxy as proxy_module
from weir.simulate.failures import world as world_module
from weir.simulate.failures.excess import Found
from weir.simulate.failures.mutations import Asking, Mutations
from weir.simulate.failures.proxy import Proxy


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(proxy_module.Place):
    """Where a proxy stands in the world, and its client.

    Attributes:
        every_ms: its client asks so often.
        count: mutations of each request.
        in_turn: it waits for an answer before it asks again.
        leaves: when the proxy leaves; inf: never.
    """

    up_ms: int = 50
    down_ms: int = 50
    every_ms: float = 20.0
    count: int = 1
    in_turn: bool = False
    leaves: float = inf


class Client(Asking):
    """One request."""

    def go(self) -> None:
        """See Asking."""
        super().go()
        if self.admission is not None:
            self.proxy.world.asked += self.admission.stage is Stage.ASKED

    def note(self, outcome: str) -> None:
        """See admission.Shell."""
        self.proxy.world.outcomes[outcome] += 1
        if self.proxy.place.in_turn:
            self.proxy.world.traffic.later(self.proxy)


class Clients(Mutations):
    """What they ask, from when their proxy lets them in."""

    def opened(self, proxy: Proxy) -> None:
        """See Traffic."""
        super().opened(proxy)
        self._next(proxy)

    def later(self, proxy: Proxy) -> None:
        """Its client will ask again."""
        pause_ms = proxy.place.every_ms * self.world.random.uniform(0.5, 1.5)
        proxy.after(max(1, pause_ms), partial(self._next, proxy))

    def _next(self, proxy: Proxy) -> None:
        asked = Asked(
            id="", ts=0, at=0, proxy="", user="alice", client_id="", subject=None, strict=True,
            validate_only=False, names=("x",), mutations=(proxy.place.count,), deadline_ms=None,
            reject_late=False, late=False, answered=False, decided=None,
        )  # fmt: skip
        if not proxy.place.in_turn:
            self.later(proxy)
        Client(self, proxy, self._coordinators[proxy.name], asked).go()


class World(world_module.World):
    """All of it.

    Attributes:
        rate: mutations per second.
        burst: at once.
        places: of the proxies.
        batch_ms: how often the job takes what has come.
        asked: questions to the job.
        outcomes: of requests.

    Args:
        away: from when to when the job is away.
        parts: False: each proxy takes itself to be alone.
        seed: of the clients' pauses.
    """

    def __init__(
        self, *, rate: float, burst: float, places: list[Place], batch_ms: int = 100,
        away: tuple[int, int] = (-1, -1), parts: bool = True, seed: int = 0,
    ) -> None:  # fmt: skip
        self.rate, self.burst, self.places, self.batch_ms = rate, burst, places, batch_ms
        self.random, self.asked, self.outcomes = Random(seed), 0, Counter[str]()
        initial = {f"quotas[{SUBJECT}]": quota(rate, burst)}
        setting = world_module.Setting(
            initial=initial, changes=[], places=places, begin=T0, end=0, away=away
        )
        super().__init__(setting, Clients([], Found(0), PolicyTimeline(initial)))
        for proxy in self.proxies:
            proxy._brokers.learn = lambda *_: None
            proxy.membership._read_to_ms = lambda: None
            if not parts:
                proxy.membership._followers.clear()
            if proxy.place.leaves != inf:
                self.at(int(proxy.place.leaves), partial(self._leave, proxy))

    @property
    def above(self) -> float:
        """The most that was ever admitted above rate x time + burst, over any stretch of time."""
        return self.traffic.found.of(SUBJECT).over

    @property
    def admitted(self) -> float:
        """Mutations in all."""
        return self.traffic.found.of(SUBJECT).passed

    def run(self, until: int) -> None:
        """Let so many ms pass since the start."""
        with patch.object(world_module, "BATCH_MS", self.batch_ms):
            super().run(T0 + until)

    def _leave(self, proxy: Proxy) -> None:
        proxy._die()
        alive = proxy.membership.alive

        def stand() -> None:
            ts = self.now
            self.tell_alive(
                lambda other: other.membership.alive.heard(
                    proxy.name, ts, leaving=True, speaks=proxy_module.SPEAKS, instance=alive.instance
                )
            )

        self.at(proxy.through(self.now) + proxy.place.up_ms, stand)
