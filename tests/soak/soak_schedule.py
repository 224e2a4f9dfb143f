"""What befalls which part, and when: all of it follows from a seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import TypeVar

_One = TypeVar("_One")

PROXIES = ("one", "two")
LINKS = ("job-broker", *(f"{end}-{name}" for name in PROXIES for end in ("client", "broker")))
"""Relays by the name of their ends: what a proxy has to the broker is cut all at once, as a host's cable."""
TARGETS: dict[str, tuple[str, ...]] = {
    "kill": ("kafka", "job", "jvm", "worker", "admin", "collect", *PROXIES),
    "stop": ("kafka", "jvm", "worker", *PROXIES),
    "cut": LINKS,
    "reset": LINKS,
    "delay": LINKS,
    "halve": LINKS,
    "full": ("checkpoint", "kafka"),
    "readonly": ("checkpoint",),
    "policy": ("changed",),
    "clients": PROXIES,
}
"""Each fault and what it may befall."""
HELD = ("stop", "cut", "delay", "halve", "full", "readonly", "clients")
"""Those that last; the others are done at once."""
HELD_S = (2.0, 12.0)
EVERY_S = (3.0, 12.0)
QUIET_S = 20.0
"""So long before the end nothing more happens, so that the last part has time to be back."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them.

    Attributes:
        at_s: seconds since the beginning.
        what: a key of TARGETS.
        target: one of its targets.
        for_s: how long it lasts; 0: done at once.
    """

    at_s: float
    what: str
    target: str
    for_s: float = 0.0


def schedule(seed: int, seconds: float, without: tuple[str, ...] = ()) -> list[Fault]:
    """All faults of a run, in order of their times; no two of them at a time.

    Args:
        seed: the same gives the same, and a longer run begins as a shorter one.
        seconds: how long the run is.
        without: faults that cannot be made here.
    """
    random, found, at_s = Random(seed), [], 0.0
    kills = _shuffled(random, TARGETS["kill"])
    others = _shuffled(random, [(what, one) for what in TARGETS if what != "kill" for one in TARGETS[what]])
    for number in count():
        at_s += random.uniform(*EVERY_S)
        # In turn, so that a run of any length has its share of kills.
        what, target = ("kill", next(kills)) if number % 2 == 0 else next(others)
        for_s = round(random.uniform(*HELD_S), 1) if what in HELD else 0.0
        if at_s + for_s > seconds - QUIET_S:
            return found
        if what not in without:
            found.append(Fault(round(at_s, 1), what, target, for_s))
        at_s += for_s
    raise AssertionError("numbers do not end")


def _shuffled(random: Random, every: Sequence[_One]) -> Iterator[_One]:
    """All of them in any order, then all again in another."""
    while True:
        yield from random.sample(every, len(every))
