"""Rounds of usage reports as many brokers write them: the estimate of PIP-82, in the proxy's own form."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.load.events import T0
from enforcer.laws.shares.usage import report_rows
from streaming.columns.byte_strings import Integers
from streaming.columns.json_rows import objects
from streaming.columns.packed import pack

ROUND_MS: Final = 60_000
_TYPE: Final = "group_usage"
LIMIT: Final = 1_000_000
"""Of each group, bytes per second."""
POLICIES: Final[dict[str, Any]] = {"quotas[user=<default>]": {"producer_byte_rate": LIMIT}}
"""One entry gives every group its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Who reports what.

    Attributes:
        groups: there are; each is used through `spread` brokers.
        brokers: there are, a multiple of `spread`; `groups` is a multiple of it.
        spread: brokers of one group.
        start: number of round 0 since the epoch.
    """

    groups: int
    brokers: int
    spread: int
    start: int = T0 // ROUND_MS

    @property
    def entries(self) -> int:
        """Pairs of group and broker, each reported once a round."""
        return self.groups * self.spread

    def reports(self, number: int, *, packed: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Records (key, value) of round `number`, counted from 0; every use differs from the round before.
        They are JSON, or packed as a proxy does it.
        """
        for broker in range(self.brokers):
            name = f"proxy-{broker:03d}"
            rows = self._rows(name, broker, number)
            for value in pack(_TYPE, rows) if packed else objects(_TYPE, rows).to_pylist():
                yield name.encode(), value

    def _rows(self, name: str, broker: int, number: int) -> pa.RecordBatch:
        """The report of one broker, as `enforcer.laws.shares.usage` makes its columns."""
        groups, use, times = self._used(broker, number)
        counts = np.stack([use, use * 100, use // 2, use * 50], axis=1)
        throttled = np.stack([np.full(len(use), -1), times, *[np.full(len(use), -1)] * 2], axis=1)
        return report_rows(
            id=f"{name}-usage-{number * 100}", ts=self.begin(number) + broker, broker=name,
            period_ms=ROUND_MS, groups=group_names(groups), counts=counts, throttled_ms=throttled,
        )  # fmt: skip

    def begin(self, number: int) -> int:
        """When round `number` begins, ms."""
        return (self.start + number) * ROUND_MS

    def tick(self, number: int) -> bytes:
        """What closes round `number`."""
        return b'{"type":"tick","ts":%d}' % self.begin(number + 1)

    def _used(self, broker: int, number: int) -> tuple[Integers, Integers, Integers]:
        """Group, use and time held back in ms of all groups of a broker."""
        apart = self.brokers // self.spread
        firsts = [(broker - turn * apart) % self.brokers for turn in range(self.spread)]
        own = [np.arange(first, self.groups, self.brokers) for first in firsts]
        group, turn = np.concatenate(own), np.repeat(np.arange(self.spread), list(map(len, own)))
        use = (group * 7919 + turn * 104_729 + number * 1299) % 9000 + 1000
        # A third of the brokers are held back, so shares move by stealing too.
        return group, use, np.where((group + turn + number) % 3 == 0, use, 0)


def group_names(numbers: Integers) -> pa.Array:
    """Names of the groups that share out one principal's byte rates each."""
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 8, "0")
    return pc.binary_join_element_wise("quota/user=ns-", digits, "")
