"""The broker: a pool of servers with one queue (M/G/k), first come, first served."""

from heapq import heapreplace
from typing import Final

from weir.simulate.draws import WORK, Draws
from weir.simulate.scenario import NS, Scenario

CONSTANT_PART: Final = 0.5
"""Of the work of a request; the rest is exponential, so its deviation is half its mean."""


class Broker:
    """Says of each request when it will be answered; nothing but its work and those before it decide that."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._mean_ns = scenario.servers / scenario.service_rate * NS
        self._work = Draws(scenario.seed, WORK)
        self._free_at = [0] * scenario.servers

    def send(self, now_ns: int, number: int) -> int:
        """Take in the n-th request; returns when it is answered, at least 1 ns from now."""
        factor = CONSTANT_PART + (1 - CONSTANT_PART) * self._work.exponential(number)
        work_ns = max(1, round(self._mean_ns * factor))
        done_ns = self._scenario.done_at(max(now_ns, self._free_at[0]), work_ns)
        heapreplace(self._free_at, done_ns)
        return done_ns
