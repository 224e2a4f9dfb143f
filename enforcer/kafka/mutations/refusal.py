"""Requests that the proxy refuses by itself, without a decision."""

from collections.abc import Collection
from math import ceil

from enforcer.kafka.mutations.admission import Strict
from enforcer.laws.mutation.gate import explain


class Refused(Strict):
    """Its subject must still wait, or makes too many dry runs: nobody is asked.

    Items that are bound to fail go to the broker all the same, as in Kafka, where validation comes first. The
    connection is muted only if it goes on beyond the rate of what costs nothing.
    """

    _asks = False
    _excess_ms = 0.0

    def _counted(self) -> None:
        if self._dropped:
            return
        if self.items and self.quota is not None:
            self._count_outcome("dry_run" if self.dry else "not_before")
            self._excess_ms = self._excess()
            if self._excess_ms:
                self.coordinator.metrics.unreported.inc()
            elif not self.dry:
                self.coordinator.report_refused(self._asked(), self.quota)
        self._carry_out([item.position for item, _ in self.items.values()])

    def _excess(self) -> float:
        """How long its subject has gone too far in what costs nothing; 0: not at all."""
        assert self.quota is not None
        if self.dry:
            return self.free.dry_runs.wait_ms(self.quota)
        return self.free.refusals.take(self.quota, len(self.items))

    def _verdict(self, rejected: Collection[int]) -> tuple[int, str]:
        left_ms = max(1, ceil(self.until_ms - self.coordinator.clock.steady_ms()))
        if not rejected or self.quota is None:
            return 0, ""
        if not self.dry:
            return left_ms, explain(self.quota, None, left_ms)
        return left_ms, self.free.explain_dry_runs(self.quota, left_ms)

    def _mute_ms(self, left_ms: int) -> int:
        return min(left_ms, ceil(self._excess_ms))
