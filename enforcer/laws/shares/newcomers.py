"""What a proxy may use of a group of which it has no share (docs/resource_groups.md).

Pure: times are arguments, ms of one steady clock. One of five proxies, before and after it was seen by all,
then with shares that stand elsewhere:

>>> from enforcer.laws.shares.decisions import slots_of
>>> newcomers = Newcomers()
>>> newcomers.set_alive(5, 0.0)
>>> newcomers.part("rg1", 0.0), newcomers.part("rg1", 1_000.0)
(0.0, 0.2)
>>> newcomers.stand(slots_of(["rg1"]), 1_000.0, ttl_ms=180_000)
>>> [newcomers.part(group, 1_000.0) for group in ("rg1", "rg2")], newcomers.part("rg1", 181_001.0)
([0.0125, 0.2], 0.2)
"""

from array import array
from math import ceil, inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from enforcer.laws.shares.decisions import SLOTS, slot_of

JOINING_FRACTION: Final = 0.05
"""Of a limit, what all proxies without a share may use together while others have shares."""
SETTLE_MS: Final = 1_000.0
"""A number of proxies that makes parts larger counts after so long: by then all have seen whoever came."""
_S: Final = 1_000.0
_LATEST_S: Final = 2**31 - 1


class Newcomers:
    """Tells which part of a limit is a proxy's own while it has no share.

    Where shares stand they add up to the limit, so all who have none get JOINING_FRACTION of it together;
    they are at most all proxies alive but one. Where none stand the proxies alive divide the limit. Who has
    come sees the others at once and is seen by them a little later: until then it has nothing but the one
    request that may always pass. So together they never have more than the limit and that part of it.

    Attributes:
        unread: some shares of others were not read, as they stand in packed records.
    """

    def __init__(self) -> None:
        self.unread = False
        self._alive: int | None = None
        self._before = inf
        self._since_ms = -inf
        self._until_s = array("i")

    def set_alive(self, count: int | None, now_ms: float) -> None:
        """So many proxies are alive, this one among them, at least 1; None: it is not known any more."""
        if count is not None and count < (self._alive or inf):
            # One that fell twice within the time is as it was before both.
            self._before = max(self._alive or inf, self._before if self.unseen_ms(now_ms) else 0.0)
            self._since_ms = now_ms
        self._alive = count

    def stand(self, slots: NDArray[np.int64], now_ms: float, ttl_ms: float) -> None:
        """Another proxy has shares of the groups in these slots, for so long unless they are repeated."""
        if not self._until_s:
            self._until_s.frombytes(bytes(self._until_s.itemsize * SLOTS))
        until_s = np.frombuffer(self._until_s, dtype=np.intc)
        until_s[slots] = np.maximum(until_s[slots], min(ceil((now_ms + ttl_ms) / _S), _LATEST_S))

    def stands(self, group: str, now_ms: float) -> bool:
        """Whether another proxy has shares of a group, as far as is known."""
        return bool(self._until_s) and self._until_s[slot_of(group)] * _S > now_ms

    def part(self, group: str, now_ms: float) -> float:
        """The part of a group's limit that this proxy may use without a share."""
        if self._alive is None:
            return JOINING_FRACTION
        count = max(self._before, self._alive) if self.unseen_ms(now_ms) else self._alive
        if count > 1 and self.stands(group, now_ms):
            return JOINING_FRACTION / (count - 1)
        return 1.0 / count

    def unseen_ms(self, now_ms: float) -> float:
        """For how long the others may still count without this proxy, or with one that is gone."""
        return max(0.0, self._since_ms + SETTLE_MS - now_ms)
