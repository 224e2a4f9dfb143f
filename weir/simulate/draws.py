"""Random numbers by counter: the n-th draw of a stream depends on seed, stream and n alone.

So all algorithms meet the same requests at the same times with the same work, whatever each does with them,
and what differs between two runs is the algorithm's doing.
"""

from math import log
from typing import Final

ARRIVALS, PLACES, WORK, STARTS = range(4)
"""Streams: times between arrivals, the proxy that a request reaches, its work, when a client begins."""
_MASK: Final = 2**64 - 1
_STEP: Final = 0x9E3779B97F4A7C15
"""Of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014)."""
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


def mixed(number: int) -> int:
    """A number whose bits all depend on all bits of another one; both of 64 bits."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & _MASK
    return number ^ (number >> 31)
