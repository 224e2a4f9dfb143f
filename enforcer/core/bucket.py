"""A token bucket with debt: what one proxy may use of one limit; pure, times are arguments.

Traffic is charged when it passes, also when that takes the balance below zero; the debt is then waited off.
So the long-run rate is exact whatever the sizes of the requests are, up to the largest debt that is kept.

>>> bucket = Bucket(100.0, burst_s=0.5, now_ms=0.0)
>>> bucket.charge(80.0, 0.0)
300.0
>>> bucket.set_rate(200.0, 100.0)
>>> bucket.tokens, bucket.wait_ms(100.0)
(-20.0, 100.0)
"""

from typing import Final

LONGEST_WAIT_MS: Final = float(2**31 - 1)
"""What an answer can say at most, in 32 bits with a sign."""


class Bucket:
    """The balance of one dimension.

    Attributes:
        rate: tokens per second, above 0; infinite: not limited.
        tokens: balance; below 0 it is debt.
        debt_ms: time spent in debt so far.
        debt_max: a debt above it, tokens, is forgiven.
        forgiven: what of its charges was above that so far.

    Args:
        burst_s: how many seconds of the rate an unused balance grows to.
    """

    __slots__ = ("_burst_s", "_settled_ms", "debt_max", "debt_ms", "forgiven", "rate", "tokens")

    def __init__(self, rate: float, burst_s: float, now_ms: float, debt_max: float = float("inf")) -> None:
        self.rate = rate
        self.tokens = 0.0 if rate == float("inf") else rate * burst_s
        self.debt_ms = 0.0
        self.debt_max = debt_max
        self.forgiven = 0.0
        self._burst_s = burst_s
        self._settled_ms = now_ms

    def charge(self, count: float, now_ms: float) -> float:
        """Take tokens; returns how long (ms) nothing more should pass, 0 unless the balance is below 0."""
        self.settle(now_ms)
        self.tokens -= count
        if self.tokens >= 0.0:
            return 0.0
        self.forgiven += self.forgive(self.debt_max)
        return self.wait_ms(now_ms)

    def give_back(self, count: float) -> None:
        """Undo a part of a charge; a balance above the burst is not kept."""
        self.tokens = min(self.rate * self._burst_s, self.tokens + count)

    def wait_ms(self, now_ms: float) -> float:
        """How long the debt lasts from now on."""
        self.settle(now_ms)
        return min(LONGEST_WAIT_MS, max(0.0, -self.tokens / self.rate * 1000.0))

    def set_rate(self, rate: float, now_ms: float) -> None:
        """Go on with another rate; balance and debt are kept, a balance above the new burst is not."""
        self.settle(now_ms)
        self.rate = rate
        self.settle(now_ms)

    def forgive(self, debt_max: float) -> float:
        """Keep at most so much debt; returns what was above it."""
        excess = -debt_max - self.tokens
        if excess <= 0.0:
            return 0.0
        self.tokens = -debt_max
        return excess

    @property
    def debt(self) -> float:
        """What has passed and is not waited off yet."""
        return max(0.0, -self.tokens)

    def settle(self, now_ms: float) -> None:
        """Let time pass."""
        elapsed_ms = now_ms - self._settled_ms
        self._settled_ms = now_ms
        if self.rate == float("inf"):
            self.tokens = 0.0
            return
        if self.tokens < 0.0 and elapsed_ms > 0.0:
            self.debt_ms += min(elapsed_ms, -self.tokens / self.rate * 1000.0)
        grown = self.tokens + self.rate * elapsed_ms / 1000.0
        self.tokens = min(self.rate * self._burst_s, grown)
