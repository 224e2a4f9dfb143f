"""Samples on their way to the job: `latency` events of several each (docs/contract.md 1 and 3.4)."""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import pyarrow as pa

from enforcer.core import bounds
from enforcer.core.law import Context
from enforcer.laws.concurrency.in_force import of_all
from streaming.columns.packed import pack
from streaming.contract.broker_events import Sample

_NS_PER_MS = 1_000_000


class SamplesOut:
    """Writes the events of one enforcer.

    Args:
        context: see there.
        now_ns: the steady clock of the samples.
        pack_min: partitions from which on they go as one packed record.
    """

    def __init__(
        self, context: Context, now_ns: Callable[[], int], pack_min: int = bounds.PACK_MIN
    ) -> None:
        self._pack_min = pack_min
        self._context = context
        self._now_ns = now_ns
        self._id_head = f"{context.proxy_id}-latency-{context.brokers_ms()}"
        self._count = count(1)

    def __call__(self, samples: Mapping[str, list[Sample]], fractions: Mapping[str, float]) -> None:
        """Send what was kept of partitions' round trips.

        Args:
            samples: by partition, in order.
            fractions: this enforcer's part of each one's limit.
        """
        ts = self._context.brokers_ms()
        # All enforcers before one partition tell its starts on one clock.
        ahead_ns = ts * _NS_PER_MS - self._now_ns()
        rows: list[dict[str, Any]] = [
            {
                "id": f"{self._id_head}-{next(self._count)}",
                "ts": ts,
                "partition": name,
                "samples": [
                    [s.start_ns + ahead_ns, s.rtt_ns, of_all(s.inflight, fractions[name]), s.did_drop]
                    for s in kept
                ],
            }
            for name, kept in samples.items()
        ]
        if len(rows) < self._pack_min:
            for row in rows:
                self._context.send_usage({"type": "latency", **row}, row["partition"])
            return
        for row in rows:
            row["samples"] = [[int(part) for part in sample] for sample in row["samples"]]
        for value in pack("latency", pa.RecordBatch.from_pylist(rows)):
            self._context.send_usage_pack(value, self._context.proxy_id)
