"""Proxies before one broker: what each has in flight and waiting, and its part of the limit."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from enforcer.laws.concurrency.limiter import own_part
from streaming.laws.shares.law import FREE, THROTTLED, share_out
from weir.simulate.scenario import DEMAND, NS, Scenario

LEAST: Final = 1
"""Requests that each proxy may have in flight however small its part: with none it could never show that it
wants more. So all of them together may have the limit, and one less than there are proxies above it."""

HUNGRY_PART: Final = 0.05
"""From this part of a round on without room a proxy wants more."""


@dataclass(slots=True)
class Request:
    """A request on its way.

    Attributes:
        number: of all requests.
        proxy: that it reached.
        asked_ns, sent_ns: when it came, and when it went on to the broker.
        inflight: what the law is told of when it was sent, itself included.
        client: that waits for its answer, -1: nobody asks again.
        waiting: whether it waits in its proxy.
    """

    number: int
    proxy: int
    asked_ns: int
    client: int
    sent_ns: int = 0
    inflight: int = 0
    waiting: bool = False


@dataclass(slots=True)
class Proxy:
    """One of them.

    Attributes:
        part: of the limit, above 0; those of all proxies sum to 1.
        inflight: requests at the broker.
        peak: the most that it had in flight since the last division.
        full_ns: for how long it had no room since then.
        full_since_ns: since when it has none; -1: it has room.
        queue: requests that wait, oldest first; those that gave up stay until they are at the front.
        waits: how many of them still wait.
    """

    part: float
    inflight: int = 0
    peak: int = 0
    full_ns: int = 0
    full_since_ns: int = -1
    queue: deque[Request] = field(default_factory=deque)
    waits: int = 0

    def room(self, limit: int) -> int:
        """How many it may have in flight under the limit of all."""
        return own_part(limit, self.part)

    def note(self, now_ns: int, limit: int) -> None:
        """Requests in flight or the limit are others from now on."""
        self.peak = max(self.peak, self.inflight)
        if self.full_since_ns >= 0:
            self.full_ns += now_ns - self.full_since_ns
        self.full_since_ns = now_ns if self.inflight >= self.room(limit) else -1

    def sample_inflight(self) -> int:
        """What all proxies would have in flight if each used its part as this one does."""
        return round(self.inflight / self.part)


def equal_parts(scenario: Scenario) -> list[Proxy]:
    """The proxies at the beginning."""
    return [Proxy(1 / scenario.proxies) for _ in range(scenario.proxies)]


def divide(scenario: Scenario, limit: int, proxies: Sequence[Proxy]) -> None:
    """Set the parts of a new round: a step of the law of shares (docs/contract.md 3.2).

    What a proxy used is its peak, and it is throttled if it was full for HUNGRY_PART of the round.
    """
    if scenario.division != DEMAND or scenario.proxies == 1:
        return
    # Who used nothing has a part all the same: it must not begin with none.
    used = np.array([float(max(LEAST, proxy.peak)) for proxy in proxies])
    hungry_ns = HUNGRY_PART * scenario.round_s * NS
    throttled = np.array([THROTTLED if proxy.full_ns >= hungry_ns else FREE for proxy in proxies], np.int8)
    last = np.array([limit * proxy.part for proxy in proxies])
    shares = share_out(float(limit), used, throttled, last)
    for proxy, share in zip(proxies, shares.tolist(), strict=True):
        proxy.part = share / limit
        proxy.peak, proxy.full_ns = 0, 0
