"""Which limit of a partition is in force: the job's, or, while the job is away, our own (docs/decisions.md,
"Concurrency limits at the proxy").

The law is the job's own code, run here as plain Python over our own samples, and only while nothing is heard
of the job. Pure: times are arguments, ms of one steady clock.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from enforcer.core import bounds
from streaming.contract.broker_events import Sample
from streaming.contract.decisions import LimitDecision
from streaming.laws.concurrency.algorithms import STATE
from streaming.laws.concurrency.law import start, take
from streaming.laws.concurrency.settings import LimitSettings


class LimitInForce:
    """The limit of one partition, of all enforcers together.

    Attributes:
        limit: in force now, at least 1.
        local: it is learned here, since nothing is heard of the job.
        changes: how often the limit went up (increase), down (decrease) or was said again (held).

    Args:
        entry: of the partition in `backpressure.partitions`.
    """

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self._key = 0
        self._algorithm = ""
        self._settings: dict[str, Any] = {}
        self._state: dict[str, Any] = {}
        self._decided: LimitDecision | None = None
        self._since_ts = 0
        self._until_ms = 0.0
        self._unheard_since_ms: float | None = None
        self.limit = 1
        self.local = False
        self.changes: Counter[str] = Counter()
        self.set_entry(entry)

    def set_entry(self, entry: Mapping[str, Any], since_ts: int = 0) -> None:
        """The policies have changed: under other settings the limit begins anew, as it does in the job.

        Args:
            since_ts: when they did, ms since the epoch: what was decided before is of no use any more.
        """
        settings = LimitSettings.of(entry)
        if settings.key == self._key:
            return
        self._key, self._algorithm = settings.key, settings.algorithm.value
        names = settings.row.dtype.names or ()
        self._settings = dict(zip(names, settings.row[0].tolist(), strict=True))
        known = self._decided
        self._since_ts = since_ts if known is None else max(since_ts, known.ts + 1)
        self._decided = self._unheard_since_ms = None
        self.local = False
        self._state = self._begun()
        self.limit = max(1, int(self._state["estimate"]))

    def take(self, decision: LimitDecision, now_ms: float) -> None:
        """A limit was decided or repeated; from now on it is the job's again."""
        if decision.algorithm != self._algorithm or decision.ts < self._since_ts:
            # Decided under policies that are in force no more, or not yet.
            return
        known = self._decided
        if known is not None and decision.ts < known.ts:
            return
        self._decided, self._until_ms = decision, now_ms + decision.ttl_ms
        self._unheard_since_ms = None
        self.local = False
        self._set(decision.limit)

    def heard(self, now_ms: float) -> None:
        """Something was heard of the job: it is there, and would have said if the limit had changed."""
        self._unheard_since_ms = None
        if self._decided is None:
            return
        self._until_ms = max(self._until_ms, now_ms + self._decided.ttl_ms)
        if self.local:
            self.local = False
            self._set(self._decided.limit)

    def feed(self, samples: Sequence[Sample], now_ms: float) -> None:
        """Our own samples, as they go to the job."""
        for sample in samples:
            if self._unheard_since_ms is None:
                self._unheard_since_ms = now_ms
            if self.local:
                take(self._state, self._settings, *sample)
        if samples and self.local:
            self._set(int(self._state["estimate"]))

    def unheard_ms(self, now_ms: float) -> float:
        """For how long nothing was heard of the job since samples were sent."""
        since_ms = self._unheard_since_ms
        return 0.0 if since_ms is None else now_ms - since_ms

    def look(self, now_ms: float) -> bool:
        """Whether the job has just been found to be away; from here on the limit is learned here."""
        if self.local:
            return False
        expired = self._decided is not None and now_ms >= self._until_ms
        since_ms = self._unheard_since_ms
        if not expired and (since_ms is None or now_ms - since_ms < bounds.BRAIN_AWAY_MS):
            return False
        self.local = True
        self._state = self._begun()
        # It goes on where the job was, with nothing learned of round trips.
        self._state["estimate"] = float(self.limit)
        return True

    def _begun(self) -> dict[str, Any]:
        state: dict[str, Any] = dict.fromkeys(STATE.names or (), 0)
        start(state, self._settings)
        return state

    def _set(self, limit: int) -> None:
        limit = max(1, limit)
        way = "held" if limit == self.limit else "increase" if limit > self.limit else "decrease"
        self.changes[way] += 1
        self.limit = limit
