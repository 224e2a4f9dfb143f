"""What a simulated history is of, all by its seed: proxies, a quota, what clients want, what befalls whom.

Histories stand side by side before one job, as subjects do: what befalls that follows from their number.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

BEGIN_MS, CALM_MS, LAST_MS, END_MS = 2_000, 30_000, 38_000, 43_000
"""The first client comes; the last fault is over; each proxy is asked once more; the end."""
OWN = ("kill", "cut", "slow", "stop", "clock", "policy", "join")
"""Of one history: a proxy is killed and started again, or not; one or all are cut off from Weir's topics, or
hear them late; one stands still; its host's clock is set; the quota is another one; a proxy more."""
WEIGHTS = (1, 1, 1, 1, 1, 0.4, 1)
"""Each change of a policy costs all histories beside it."""
JOB = ("die", "late")
"""Of the job, for all histories before it: it dies within a batch; its decisions take longer."""
DIES = ("before", "half", "after")
"""Of a batch that is run again, so much was written before."""
_FOR_MS = {
    "kill": (300, 8_000, 16_000, 0), "cut": (1_500, 6_000, 13_000, 22_000), "slow": (2_000, 8_000),
    "stop": (1_500, 4_000, 12_000), "die": (700, 5_000, 14_000), "late": (4_000, 8_000),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them.

    Attributes:
        at: ms since the beginning.
        what: one of OWN or JOB.
        target: number of the proxy; -1: all, or the job.
        for_ms: how long it lasts.
        how: what belongs to it.
    """

    at: int
    what: str
    target: int = -1
    for_ms: int = 0
    how: Any = None


@dataclass(frozen=True, slots=True)
class Wish:
    """What a client asks, as events have it.

    Attributes:
        at: ms since the beginning.
        place: which of the proxies that are open it comes to, 0 to 1.
        user, client_id, strict, validate_only, names, mutations: see contract.events.Request.
        fails: names that the cluster refuses.
        leaves_ms: it waits so long for its answer; None: as long as it takes.
    """

    at: int
    place: float
    user: str
    strict: bool
    validate_only: bool
    names: tuple[str, ...]
    mutations: tuple[int, ...]
    fails: frozenset[str]
    leaves_ms: int | None
    client_id: str = "c"


@dataclass(frozen=True, slots=True)
class Case:
    """All of one.

    Attributes:
        seed: see there.
        links: of each proxy: how long records take to the topics and back, and how far its clock is ahead.
        quota: of its user at first.
        on_late: what proxies do without a decision.
        wishes: in order.
        faults: that befall it, in order.
    """

    seed: int
    links: list[tuple[int, int, int]]
    quota: dict[str, Any]
    on_late: str
    wishes: list[Wish]
    faults: list[Fault] = field(default_factory=list)

    @property
    def user(self) -> str:
        """Whose quota it is."""
        return f"h{self.seed}"

    @property
    def path(self) -> str:
        """Of the quota."""
        return f"quotas[user={self.user}]"


def draw(seed: int) -> Case:
    """The history of a seed."""
    random = Random(f"history {seed}")
    count = random.choice((1, 2, 2, 3))
    links = [
        (random.choice((5, 50, 300)), random.choice((5, 50, 300)), random.choice((0, 0, -800, 900)))
        for _ in range(count)
    ]
    quota = _quota(random)
    on_late = random.choice(("allow", "reject"))
    hungry = random.random() < 0.2
    if hungry:
        quota |= {"controller_mutation_rate": random.choice((0.5, 2.0)), "controller_mutation_burst": 8.0}
    wishes = sorted((_hungry if hungry else _wishes)(random, f"h{seed}"), key=lambda wish: wish.at)
    faults = sorted(_faults(random, count), key=lambda fault: fault.at)
    return Case(seed, links, quota, on_late, wishes, faults)


def befalls_job(number: int) -> list[Fault]:
    """What befalls the job of a company of histories."""
    random = Random(f"job {number}")
    found = []
    for _ in range(random.choice((0, 1, 1, 2))):
        what = random.choice(JOB)
        how = random.choice(DIES) if what == "die" else random.choice((500, 1_500, 3_000))
        for_ms = random.choice(_FOR_MS[what])
        found.append(Fault(random.randint(BEGIN_MS, CALM_MS - for_ms), what, -1, for_ms, how))
    return sorted(found, key=lambda fault: fault.at)


def shown(fault: Fault) -> dict[str, Any]:
    """As it stands in a history."""
    return {"fault": fault.what, "target": fault.target, "for_ms": fault.for_ms, "how": fault.how}


def _quota(random: Random) -> dict[str, Any]:
    quota = {
        "controller_mutation_rate": random.choice((0.5, 2.0, 10.0)),
        "controller_mutation_burst": random.choice((2.0, 8.0, 30.0)),
        "decide": random.choice(("local", "local", "local", "strict")),
    }
    if random.random() < 0.08:
        quota |= {"algorithm": "sampled_rate", "decide": "strict"}
    if random.random() < 0.05:
        quota |= {"shadow": True}
    return quota


def _wishes(random: Random, user: str) -> Iterator[Wish]:
    number = 0
    for _ in range(random.randint(3, 9)):
        at = random.randint(BEGIN_MS, CALM_MS + 2_000)
        # Some come at a time.
        for _ in range(random.choice((1, 1, 2, 5))):
            number += 1
            at += random.choice((0, 30, 400))
            names = tuple(f"t{number}-{item}" for item in range(random.choice((1, 1, 1, 2, 3))))
            yield Wish(
                at=at, place=random.random(), user=user, strict=random.random() < 0.8,
                validate_only=random.random() < 0.05, names=names,
                mutations=tuple(random.choice((1, 1, 2, 5)) for _ in names),
                fails=frozenset(name for name in names if random.random() < 0.08),
                leaves_ms=random.choice((1, 200, 1_900)) if random.random() < 0.06 else None,
            )  # fmt: skip


def _hungry(random: Random, user: str) -> Iterator[Wish]:
    """Far more than it may, by so little at a time that a limit is met exactly."""
    for burst in range(2):
        at = random.randint(BEGIN_MS + burst * 12_000, CALM_MS - 12_000 + burst * 12_000)
        for number in range(30):
            yield Wish(
                at=at + 40 * number, place=random.random(), user=user, strict=True, validate_only=False,
                names=(f"t{burst}-{number}",), mutations=(1,), fails=frozenset(), leaves_ms=None,
            )  # fmt: skip


def _faults(random: Random, proxies: int) -> Iterator[Fault]:
    for _ in range(random.choice((0, 1, 2, 3))):
        what = random.choices(OWN, WEIGHTS)[0]
        for_ms = random.choice(_FOR_MS.get(what, (0,)))
        # One that starts waits for its name, and for those who live.
        starts_ms = 9_000 if what in ("kill", "join") else 0
        at = random.randint(BEGIN_MS, CALM_MS - for_ms - starts_ms)
        how: Any = None
        if what == "slow":
            how = random.choice((700, 2_500))
        elif what == "clock":
            how = random.choice((-3_000, -300, 300, 3_000))
        elif what == "policy":
            how = None if random.random() < 0.2 else _quota(random)
        target = -1 if what in ("policy", "join") else random.randrange(proxies)
        if what in ("cut", "slow") and random.random() < 0.2:
            target = -1
        yield Fault(at, what, target, for_ms, how)
