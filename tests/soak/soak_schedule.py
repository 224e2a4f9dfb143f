"""What befalls which part, and when: all of it follows from a seed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, TypeVar

_One = TypeVar("_One")

PROXIES = ("one", "two")
"""Before Kafka."""
PULSAR = ("pulsar", "pulsar-proxy")
"""One broker, and what stands before it."""
LIMITING = (*PROXIES, PULSAR[1])
"""All that carry limits out."""
LINKS = ("job-broker", *(f"{end}-{name}" for name in PROXIES for end in ("client", "broker")))
"""Relays by the name of their ends: what a proxy has to the broker is cut all at once, as a host's cable."""
TARGETS: dict[str, tuple[str, ...]] = {
    "kill": ("kafka", "controller", "cluster", "job", "jvm", "worker", "admin", "collect", *PROXIES, *PULSAR),
    "stop": ("kafka", "cluster", "jvm", "worker", *PROXIES, *PULSAR),
    "cut": LINKS,
    "reset": LINKS,
    "delay": LINKS,
    "halve": LINKS,
    "full": ("checkpoint", "kafka"),
    "readonly": ("checkpoint",),
    "policy": ("changed",),
    "clients": PROXIES,
    "crowd": PROXIES,
}
"""Each fault and what it may befall: kafka is one broker, cluster all, controller the one that leads them."""
HELD = ("stop", "cut", "delay", "halve", "full", "readonly", "clients", "crowd")
"""Those that last; the others are done at once."""
HELD_S = (2.0, 12.0)
EVERY_S = (2.0, 10.0)
KILLS = ("kill", "down")
LONG = {
    ("down", "job"): 95.0, ("down", "one"): 100.0, ("stop", "jvm"): 280.0, ("down", "admin"): 160.0,
    ("down", "cluster"): 120.0, ("down", "collect"): 160.0,
}  # fmt: skip
"""What lasts as long as its alert needs (soak_alerts.DEMANDED), s; down: killed, and not started again."""
BESIDE = ("one", "admin", "collect")
"""While these are down, others are killed too."""
LONG_EVERY, LONG_FROM_S, RECOVERS_S = 3, 1_200.0, 30.0
"""After so many short ones a long one; all of them in a run of that length, fewer in a shorter one."""
BEGIN_S, BEGIN_PART = 240.0, 0.1
"""All is well for so long at first, in a short run for so much of it."""
QUIET_S = 20.0
"""So long before the end nothing more happens, so that the last part has time to be back."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them.

    Attributes:
        at_s: seconds since the beginning.
        what: a key of TARGETS, or of LONG.
        target: one of its targets.
        for_s: how long it lasts; 0: done at once.
        beside: others happen meanwhile.
    """

    at_s: float
    what: str
    target: str
    for_s: float = 0.0
    beside: bool = False


def schedule(seed: int, seconds: float) -> list[Fault]:
    """All faults of a run, in order of their times; no two of them at a time, but beside some long ones.

    Args:
        seed: the same gives the same; beyond LONG_FROM_S a longer run begins as a shorter one.
        seconds: how long the run is.
    """
    random, found = Random(seed), []
    at_s = BEGIN_S if seconds >= LONG_FROM_S else BEGIN_PART * seconds
    kills = _shuffled(random, TARGETS["kill"])
    others = _shuffled(random, [(what, one) for what in TARGETS if what != "kill" for one in TARGETS[what]])
    long = _long(random, seconds)
    for number in count():
        at_s += random.uniform(*EVERY_S)
        # In turn, so that a run of any length has its share of kills.
        what, target = ("kill", next(kills)) if number % 2 == 0 else next(others)
        for_s = round(random.uniform(*HELD_S), 1) if what in HELD else 0.0
        if number % LONG_EVERY == LONG_EVERY - 1 and long:
            what, target = long.pop()
            for_s = LONG[what, target]
        beside = what == "down" and target in BESIDE
        if at_s + for_s > seconds - QUIET_S:
            return found
        found.append(Fault(round(at_s, 1), what, target, for_s, beside))
        if not beside:
            at_s += for_s + (RECOVERS_S if for_s > HELD_S[1] else 0.0)
    raise AssertionError("numbers do not end")


def kind_of(fault: Mapping[str, Any]) -> tuple[str, str, bool]:
    """What, whom, and whether as long as its alert needs: a short one is none of these."""
    what, target = fault["what"], fault["target"]
    return what, target, (what, target) in LONG and fault["for_s"] >= LONG[what, target]


def smaller(
    faults: list[Fault], fails: Callable[[list[Fault]], bool], late: Callable[[], bool]
) -> list[Fault]:
    """Fewer faults that fail too: halves are left out, then quarters and so on, as long as it fails without.

    Args:
        faults: that have failed.
        fails: whether a run with some of them does.
        late: there is no time for another run.
    """
    size = len(faults) // 2
    while size and not late():
        for at in range(0, len(faults), size):
            fewer = faults[:at] + faults[at + size :]
            if late():
                return faults
            if fewer and fails(fewer):
                faults = fewer
                break
        else:
            size //= 2
    return faults


def _long(random: Random, seconds: float) -> list[tuple[str, str]]:
    """The long ones of a run, the first one last: what comes to a third of it, or all."""
    every, left = random.sample(sorted(LONG), len(LONG)), seconds / 3
    if seconds >= LONG_FROM_S:
        return every
    found = []
    for one in every:
        if LONG[one] <= left:
            found.append(one)
            left -= LONG[one]
    return found


def _shuffled(random: Random, every: Sequence[_One]) -> Iterator[_One]:
    """All of them in any order, then all again in another."""
    while True:
        yield from random.sample(every, len(every))
