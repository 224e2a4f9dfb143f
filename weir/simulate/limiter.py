"""The law of concurrency as a proxy runs it: plain Python over the law's own functions."""

from typing import Any

from streaming.laws.concurrency.algorithms import STATE
from streaming.laws.concurrency.law import start, take
from streaming.laws.concurrency.settings import LimitSettings


class Limiter:
    """One partition's limit.

    The law reads its settings and state by name, so records and mappings are the same to it; these are
    mappings of Python's numbers, seven times as fast one sample at a time.
    """

    def __init__(self, settings: LimitSettings) -> None:
        row = settings.row[0]
        self._settings: dict[str, Any] = {name: row[name].item() for name in settings.row.dtype.names or ()}
        self._state: dict[str, Any] = dict.fromkeys(STATE.names or (), 0)
        start(self._state, self._settings)
        self.limit = int(self._state["estimate"])

    def take(self, start_ns: int, rtt_ns: int, inflight: int) -> bool:
        """Take a sample that was not dropped; returns whether `limit` is another now."""
        take(self._state, self._settings, start_ns, rtt_ns, inflight, False)
        before, self.limit = self.limit, int(self._state["estimate"])
        return self.limit != before
