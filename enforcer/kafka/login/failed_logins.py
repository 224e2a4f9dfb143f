"""Failed logins by address: who guesses passwords has to wait."""

from collections.abc import Callable
from typing import Final

HELD_MAX_MS: Final = 10_000
"""A login waits no longer: clients give up. Who would have to is to come again."""
AWAY_MAX_MS: Final = 60_000
"""However many logins of an address have failed, its turn comes after so long."""
ADDRESSES_MAX: Final = 10_000
_MINUTE_MS: Final = 60_000


class FailedLogins:
    """How long the logins of each address must wait (`source_of` of core/security/doors.py).

    A minute's worth of failures is free. Beyond, logins take turns at that rate, so that many connections at
    once gain nothing; a good login gives its turn back.

    Args:
        per_minute: failures that are free; 0: all.
        now_ms: the steady clock.
    """

    def __init__(self, per_minute: int, now_ms: Callable[[], float]) -> None:
        self._each_ms = _MINUTE_MS / per_minute if per_minute else 0.0
        self._now_ms = now_ms
        # When all failures will be forgiven.
        self._until_ms: dict[str, float] = {}

    def turn_ms(self, address: str) -> float:
        """How long a login must wait from now on; above HELD_MAX_MS it has got no turn."""
        wait_ms = self._until_ms.get(address, 0.0) - self._now_ms() - _MINUTE_MS
        if wait_ms <= 0:
            return 0.0
        if wait_ms <= HELD_MAX_MS:
            self._until_ms[address] += self._each_ms
        return wait_ms

    def give_back(self, address: str) -> None:
        """A login that had to wait for its turn has succeeded."""
        if address in self._until_ms:
            self._until_ms[address] -= self._each_ms

    def add(self, address: str) -> None:
        """A login has failed that did not have to wait."""
        if not self._each_ms:
            return
        now_ms = self._now_ms()
        until_ms = max(now_ms, self._until_ms.pop(address, now_ms)) + self._each_ms
        if len(self._until_ms) >= ADDRESSES_MAX:
            del self._until_ms[next(iter(self._until_ms))]
        self._until_ms[address] = min(until_ms, now_ms + _MINUTE_MS + AWAY_MAX_MS)
