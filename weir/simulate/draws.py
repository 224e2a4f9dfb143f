"""Random numbers by counter: the n-th draw of a stream depends on seed, stream and n alone.

So all algorithms meet the same requests at the same times with the same work, whatever each does with them,
and what differs between two runs is the algorithm's doing.
"""

from math import log
from typing import Final

from enforcer.laws.concurrency.limiter import mixed

ARRIVALS, PLACES, WORK, STARTS = range(4)
"""Streams: times between arrivals, the proxy that a request reaches, its work, when a client begins."""
_MASK: Final = 2**64 - 1
_STEP: Final = 0x9E3779B97F4A7C15
_FRACTION_BITS: Final = 53


class Draws:
    """One stream of one seed."""

    __slots__ = ("_base",)

    def __init__(self, seed: int, stream: int) -> None:
        self._base = mixed((mixed(seed & _MASK) + stream * _STEP) & _MASK)

    def uniform(self, number: int) -> float:
        """The n-th draw, evenly from [0, 1)."""
        return (mixed((self._base + (number + 1) * _STEP) & _MASK) >> 64 - _FRACTION_BITS) * 2.0**-53

    def exponential(self, number: int) -> float:
        """The n-th draw, exponential with mean 1."""
        return -log(1.0 - self.uniform(number))
