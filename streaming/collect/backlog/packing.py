"""Reports of backlogs as packed records of `weir.usage` (docs/contract.md 1 and 3.5)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any, Final

import pyarrow as pa
from kafka.partitioner.default import murmur2

from streaming.columns.packed import RECORD_BYTES, columns_in, pack
from streaming.contract.broker_events import Backlog

TYPE: Final = "backlog"
_LEDGER: Final = (("id", "id"), ("entries", "entries"), ("size", "size"), ("closeTime", "close_time"))
_SUBSCRIPTION: Final = (
    ("name", "name"),
    ("ledger", "ledger"),
    ("entry", "entry"),
    ("durable", "durable"),
    ("oldestPublishTime", "oldest_publish_time"),
)
_OTHERS: Final = {"name": pa.string(), "durable": pa.bool_()}


@dataclass(frozen=True, slots=True)
class Piece:
    """One packed record.

    Attributes:
        partition: of `weir.usage` that it belongs to.
        value: its bytes.
    """

    partition: int
    value: bytes


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The report of this topic is alone larger than a record may be, so that it cannot be sent."""

    topic: str


def rows_of(reports: Sequence[Backlog]) -> pa.RecordBatch:
    """Reports as columns, in the order of docs/contract.md's example."""
    columns = {
        "id": pa.array([one.id for one in reports], pa.string()),
        "ts": pa.array([one.ts for one in reports], pa.int64()),
        "broker": pa.array([one.broker for one in reports], pa.string()),
        "topic": pa.array([one.topic for one in reports], pa.string()),
        "ledgers": _lists([one.ledgers for one in reports], _LEDGER),
        "subscriptions": _lists([one.subscriptions for one in reports], _SUBSCRIPTION),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def packed_reports(
    reports: Iterable[Backlog], partitions: int, most: int = RECORD_BYTES
) -> Iterator[Piece | TooLarge]:
    """Reports as packed records, one a partition where it fits.

    Args:
        reports: of topics, each once.
        partitions: of `weir.usage`.
        most: bytes of a record.
    """
    by_partition: dict[int, list[Backlog]] = {}
    for report in reports:
        by_partition.setdefault(partition_of(report.topic, partitions), []).append(report)
    for partition, own in by_partition.items():
        for value in pack(TYPE, rows_of(own), most):
            if len(value) <= most:
                yield Piece(partition, value)
            else:
                yield TooLarge(columns_in(value, TYPE, ["topic"])["topic"][0].as_py())


def partition_of(topic: str, partitions: int) -> int:
    """The partition into which Kafka's clients put what has this topic as its key (KIP-480)."""
    return 0 if partitions == 1 else _hash(topic) % partitions


@lru_cache(2**17)
def _hash(topic: str) -> int:
    return int(murmur2(topic.encode())) & 0x7FFFFFFF


def _lists(lists: Sequence[Sequence[Any]], fields: Sequence[tuple[str, str]]) -> pa.Array:
    flat = list(chain.from_iterable(lists))
    parts = [
        pa.array([getattr(one, attribute) for one in flat], _OTHERS.get(name, pa.int64()))
        for name, attribute in fields
    ]
    items = pa.StructArray.from_arrays(parts, [name for name, _ in fields])
    ends = pa.array(accumulate(map(len, lists), initial=0), pa.int32())
    return pa.ListArray.from_arrays(ends, items)
