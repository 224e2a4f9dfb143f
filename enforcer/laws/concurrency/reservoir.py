"""A bounded sample of round trips that prefers none of them (docs/protocol_notes.md 5.6)."""

from typing import Final

from streaming.contract.broker_events import Sample

_MASK: Final = (1 << 64) - 1
_STEP: Final = 0x9E3779B97F4A7C15
"""Of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014)."""


class Reservoir:
    """At most so many samples between two calls of `take`; each that came is among them with equal chance.

    Vitter's algorithm R. The choice depends on the number of a sample alone, never on what it says, so means
    and the distribution of round trips and of requests in flight are those of all samples. A counter through
    a hash stands for the random numbers: two runs choose alike.

    Attributes:
        sent: samples taken out so far.
        discarded: samples that found no place, or lost it, so far.

    Args:
        size: the most that are kept.
        seed: where the counter begins, so that several of them do not choose alike.
    """

    __slots__ = ("_count", "_kept", "_seen", "_size", "discarded", "sent")

    def __init__(self, size: int, seed: int = 0) -> None:
        self._size = size
        self._count = seed & _MASK
        self._seen = 0
        self._kept: list[tuple[int, Sample]] = []
        self.sent = self.discarded = 0

    def add(self, sample: Sample) -> None:
        """A request was answered, or is lost."""
        number, self._seen = self._seen, self._seen + 1
        if number < self._size:
            self._kept.append((number, sample))
            return
        self._count = (self._count + _STEP) & _MASK
        self.discarded += 1
        place = mixed(self._count) % (number + 1)
        if place < self._size:
            self._kept[place] = number, sample

    def take(self) -> list[Sample]:
        """Those that were kept since the last call, in the order in which they came."""
        kept, self._kept, self._seen = self._kept, [], 0
        self.sent += len(kept)
        return [sample for _, sample in sorted(kept)]


def mixed(number: int) -> int:
    """A number whose bits all depend on all bits of another one; both of 64 bits."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & _MASK
    return number ^ (number >> 31)
