"""Proxies before one broker: what each has in flight and waiting, and its part of the limit."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from streaming.laws.shares.law import NOT_REPORTED, share_out
from weir.simulate.scenario import DEMAND, Scenario

LEAST: Final = 1
"""Requests that each proxy may have in flight however small its part: with none it could never show that it
wants more. So all of them together may have the limit, and one less than there are proxies above it."""


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
        wanted: the most that it had or would have had in flight since the last division.
        queue: requests that wait, oldest first; those that gave up stay until they are at the front.
        waits: how many of them still wait.
    """

    part: float
    inflight: int = 0
    wanted: int = 0
    queue: deque[Request] = field(default_factory=deque)
    waits: int = 0

    def room(self, limit: int) -> int:
        """How many it may have in flight under the limit of all."""
        return max(LEAST, int(limit * self.part))

    def want(self) -> None:
        """Remember what one request more comes to."""
        self.wanted = max(self.wanted, self.inflight + self.waits + 1)

    def sample_inflight(self) -> int:
        """What all proxies would have in flight if each used its part as this one does."""
        return round(self.inflight / self.part)


def equal_parts(scenario: Scenario) -> list[Proxy]:
    """The proxies at the beginning."""
    return [Proxy(1 / scenario.proxies) for _ in range(scenario.proxies)]


def divide(scenario: Scenario, limit: int, proxies: Sequence[Proxy]) -> None:
    """Set the parts of a new round: a step of the law of shares, whose rates are what each wanted."""
    if scenario.division != DEMAND or scenario.proxies == 1:
        return
    # Nobody reports nothing at all, or he had no part when he wants one again.
    used = np.array([[float(max(LEAST, proxy.wanted))] for proxy in proxies])
    unknown = np.full(used.shape, NOT_REPORTED, dtype=np.int8)
    last = np.array([[limit * proxy.part] for proxy in proxies])
    shares = share_out(np.array([float(limit)]), used, unknown, last)[:, 0]
    for proxy, share in zip(proxies, shares.tolist(), strict=True):
        proxy.part = share / limit
        proxy.wanted = proxy.inflight + proxy.waits
