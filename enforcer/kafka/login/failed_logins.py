"""Failed logins by address: who guesses passwords has to wait."""

from collections import Counter
from collections.abc import Callable
from typing import Final

HELD_MAX_MS: Final = 10_000
"""A login waits no longer: clients give up. Who would have to is to come again."""
AWAY_MAX_MS: Final = 60_000
"""However many logins of an address have failed, its turn comes after so long."""
ADDRESSES_MAX: Final = 10_000
MOMENT_MS: Final = 200
"""A login whose turn depends on others asks again after so long."""
_MINUTE_MS: Final = 60_000


class FailedLogins:
    """How long the logins of each address must wait (`source_of` of core/security/doors.py).

    A minute's worth of failures is free. Beyond, logins take turns at that rate. Each counts as failed from
    its turn on, so that many connections at once gain nothing, and so does closing before the answer; a good
    login gives its turn back.

    Args:
        per_minute: failures that are free; 0: all.
        now_ms: the steady clock.
    """

    def __init__(self, per_minute: int, now_ms: Callable[[], float]) -> None:
        self._each_ms = _MINUTE_MS / per_minute if per_minute else 0.0
        self._now_ms = now_ms
        # When all failures will be forgiven.
        self._until_ms: dict[str, float] = {}
        # Logins that did not wait and have no answer yet.
        self._undecided: Counter[str] = Counter()

    def turn_ms(self, address: str) -> float | None:
        """How long a login must wait from now on; `decide` is to be called for each that has got its turn.

        Returns:
            Above HELD_MAX_MS it has got no turn; None: nor has it yet, for others may not have failed.
        """
        if not self._each_ms:
            return 0.0
        wait_ms = max(0.0, self._until_ms.get(address, 0.0) - self._now_ms() - _MINUTE_MS)
        if 0 < wait_ms <= self._undecided[address] * self._each_ms:
            return None
        if wait_ms <= HELD_MAX_MS:
            self.add(address)
            if not wait_ms:
                self._undecided[address] += 1
        return wait_ms

    def decide(self, address: str, *, waited: bool, failed: bool) -> None:
        """What became of a login that had its turn."""
        if not waited and address in self._undecided:
            self._undecided[address] -= 1
            if not self._undecided[address]:
                del self._undecided[address]
        if not failed and address in self._until_ms:
            self._until_ms[address] -= self._each_ms
            if self._until_ms[address] <= self._now_ms():
                del self._until_ms[address]

    def add(self, address: str) -> None:
        """A login counts as failed."""
        if not self._each_ms:
            return
        now_ms = self._now_ms()
        until_ms = max(now_ms, self._until_ms.pop(address, now_ms)) + self._each_ms
        if len(self._until_ms) >= ADDRESSES_MAX:
            del self._until_ms[next(iter(self._until_ms))]
        self._until_ms[address] = min(until_ms, now_ms + _MINUTE_MS + AWAY_MAX_MS)
