"""What fails, when, and what of it each law's bound depends on."""

from dataclasses import dataclass
from math import inf
from typing import Final

from enforcer.core.membership import ALIVE_EVERY_MS, UNACKNOWLEDGED_MS
from weir.simulate.failures.excess import S
from weir.simulate.failures.proxy import LOOK_MS, Place
from weir.simulate.failures.world import BATCH_MS

NONE, AWAY, LOST, CUT, CLOCKS, LATE, MORE = SCENARIOS = (
    "none", "job-away", "proxy-lost", "cut-off", "clocks-apart", "late", "more-proxies",
)  # fmt: skip
SPANS: Final = {
    "mutation": (60, 240, 120), "shares": (180, 480, 420), "dispatch": (60, 240, 120),
    "concurrency": (150, 300, 150), "backlog": (300, 900, 300),
}  # fmt: skip
"""Seconds before a failure, of it, and after it: shares and backlogs take rounds and checks."""
_UNTOUCHED: Final = {
    (CLOCKS, "shares"): "each proxy measures its rounds by its steady clock",
    (CLOCKS, "concurrency"): "round trips are measured by steady clocks",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """What is to be tried.

    Attributes:
        proxies: that are there at first.
        at: when it fails, ms since the epoch; None: at the worst time of each law.
        away_s: the job is away so long.
        lost: so many proxies are killed, and do not come back.
        cut_s: one proxy is cut off from Kafka so long.
        skew_s: clocks of hosts are so far ahead and behind in turn.
        late_s: decisions come so much later.
        more: so many proxies come besides.
        seed: of who comes to which proxy.
        tried: names of SCENARIOS.
    """

    proxies: int = 3
    at: int | None = None
    away_s: float = 3_600
    lost: int = 1
    cut_s: float = 25
    skew_s: float = 3
    late_s: float = 3
    more: int = 3
    seed: int = 1
    tried: tuple[str, ...] = SCENARIOS

    def untouched(self, scenario: str, law: str) -> str | None:
        """Why a law cannot be touched by a failure; None: it can."""
        if scenario == LOST and self.lost >= self.proxies:
            return "there is one proxy only"
        return _UNTOUCHED.get((scenario, law))

    def titles(self) -> dict[str, str]:
        """What each scenario is, in words."""
        return {
            NONE: "nothing fails",
            AWAY: f"job away {self.away_s:g} s",
            LOST: f"{self.lost} of {self.proxies} proxies killed",
            CUT: f"1 proxy cut off {self.cut_s:g} s",
            CLOCKS: f"clocks {self.skew_s:g} s ahead, behind",
            LATE: f"decisions {self.late_s:g} s late",
            MORE: f"{self.more} more proxies",
        }

    def window(self, scenario: str, law: str, at: int) -> tuple[int, int, int]:
        """When a simulation begins, when the failure ends, and when the simulation does."""
        before, span, after = (s * S for s in SPANS[law])
        if scenario == AWAY:
            span = round(self.away_s * S)
        elif scenario == CUT:
            span = max(span, round(self.cut_s * S))
        return at - before, at + span, at + span + after

    def places(self, scenario: str, at: int) -> list[Place]:
        """Where proxies stand, and what befalls each."""
        skew_ms = round(self.skew_s * S) if scenario == CLOCKS else 0
        first = [
            Place(
                skew_ms=skew_ms if number % 2 == 0 else -skew_ms,
                killed=at if scenario == LOST and number < self.lost else inf,
                cut=(at, at + round(self.cut_s * S)) if scenario == CUT and number == 0 else (-1, -1),
            )
            for number in range(self.proxies)
        ]
        return first + [Place(start=at)] * (self.more if scenario == MORE else 0)

    def facts(self, scenario: str) -> "Facts":
        """What the bounds of the laws depend on."""
        place = Place()
        late_s = (place.up_ms + BATCH_MS + place.down_ms) / S
        if scenario == LATE:
            late_s += self.late_s
        return Facts(
            proxies=self.proxies + (self.more if scenario == MORE else 0), late_s=late_s,
            cut_s=self.cut_s if scenario == CUT else 0.0, away_s=self.away_s if scenario == AWAY else 0.0,
            joins=scenario == MORE,
        )  # fmt: skip


ALONE: Final = Failures(proxies=1)
"""One proxy, which decides as the law does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """See `Failures.facts`.

    Attributes:
        proxies: P, all that ever were.
        late_s: from a decision of one until all others have read of it.
        cut_s: for how long one was cut off.
        away_s: for how long the job was away.
        joins: some came.
    """

    proxies: int
    late_s: float
    cut_s: float
    away_s: float
    joins: bool

    @property
    def blind_late_s(self) -> float:
        """L of docs/laws.md, "Several proxies": who is cut off decides nothing at once after a while."""
        found_out_s = (UNACKNOWLEDGED_MS + ALIVE_EVERY_MS + LOOK_MS) / S
        return self.late_s + min(self.cut_s, found_out_s)
