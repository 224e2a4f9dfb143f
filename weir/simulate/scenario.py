"""What is simulated: a broker, those who ask it, and a stretch of time in which it is slow."""

from dataclasses import dataclass
from typing import Final

from streaming.contract.errors import WeirError

NS: Final = 10**9
EQUAL, DEMAND = "equal", "demand"
"""How proxies divide a limit: in equal parts, or by the law of shares."""
REQUESTS_MAX: Final = 2_000_000
"""Requests of one algorithm's run: a minute of a slow machine's time."""
PROXIES_MAX: Final = 1_000
SECONDS_MAX: Final = 3_600


class BadScenario(WeirError):
    """The options do not go together; says which and what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One world, the same for all algorithms.

    Attributes:
        seconds: length.
        seed: of all draws.
        service_rate: requests per second that the broker completes while it is well.
        servers: requests that it works on at once; further ones queue in it.
        arrival_rate: requests per second of all clients, whatever is answered (an open system).
        clients: instead of that so many clients, each of which asks again when it is answered (a closed one).
        retry_ms: time after which such a client asks again when it was rejected.
        slow_at, slow_for: s: when the broker becomes slow, and for how long.
        slow_factor: its speed is divided by this then.
        proxies: how many stand before the broker; each has a part of the limit.
        division: EQUAL or DEMAND.
        first_part: part of the requests that reach the first proxy, the others have equal parts of the rest.
        round_s: time between two divisions by demand.
        decision_ms: age of a limit when the proxies hear of it.
        waiting: requests that wait in each proxy, at most; 0: they are rejected at once.
        wait_ms: time after which one that waits is rejected.

    Raises:
        BadScenario: they do not go together.
    """

    seconds: int = 90
    seed: int = 1
    service_rate: float = 500.0
    servers: int = 8
    arrival_rate: float = 400.0
    clients: int | None = None
    retry_ms: int = 100
    slow_at: int = 30
    slow_for: int = 30
    slow_factor: float = 10.0
    proxies: int = 1
    division: str = EQUAL
    first_part: float | None = None
    round_s: int = 5
    decision_ms: int = 0
    waiting: int = 0
    wait_ms: int = 1_000

    def __post_init__(self) -> None:
        if not self.slow_at + self.slow_for <= self.seconds:
            raise BadScenario(
                f"--slow-at {self.slow_at} and --slow-for {self.slow_for} end after --seconds {self.seconds};"
                " expected a slow time within the simulation"
            )
        if self.first_part is not None and self.proxies == 1:
            raise BadScenario("--first-part says how requests are spread; expected --proxies of at least 2")
        if self.requests_at_most() > REQUESTS_MAX:
            raise BadScenario(
                f"up to {self.requests_at_most():.0f} requests for each algorithm; expected {REQUESTS_MAX}"
                " at most: a shorter time or lower rates"
            )

    def requests_at_most(self) -> float:
        """About how many requests one run can have."""
        if self.clients is None:
            return self.seconds * self.arrival_rate
        return self.seconds * (self.service_rate + self.clients * 1_000 / self.retry_ms)

    def phases(self) -> dict[str, tuple[int, int]]:
        """Name -> first second and the one after the last; those of no length are left out."""
        end = self.slow_at + self.slow_for
        if not self.slow_for or self.slow_factor == 1:
            return {"calm": (0, self.seconds)}
        spans = {"calm": (0, self.slow_at), "slow": (self.slow_at, end), "recovery": (end, self.seconds)}
        return {name: span for name, span in spans.items() if span[0] < span[1]}

    def done_at(self, start_ns: int, work_ns: int) -> int:
        """When work that is begun at a time is done, since the broker works slower for a while.

        >>> world = Scenario(slow_at=1, slow_for=1, slow_factor=10)
        >>> [world.done_at(start * NS // 10, NS // 10) / NS for start in (0, 9.5, 10, 19.5, 20)]
        [0.1, 1.5, 2.0, 2.095, 2.1]
        """
        slow_ns, end_ns = self.slow_at * NS, (self.slow_at + self.slow_for) * NS
        if start_ns < slow_ns:
            before = min(work_ns, slow_ns - start_ns)
            start_ns, work_ns = start_ns + before, work_ns - before
        if not work_ns or start_ns >= end_ns:
            return int(start_ns + work_ns)
        slowly = round(work_ns * self.slow_factor)
        if start_ns + slowly <= end_ns:
            return start_ns + slowly
        return end_ns + round(work_ns - (end_ns - start_ns) / self.slow_factor)
