"""Writes reports of backlogs to `weir.usage` as packed records, under a lease (docs/contract.md 1)."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any, Final

import pyarrow as pa
from kafka.partitioner.default import murmur2

from streaming.collect.reports import Reports
from streaming.columns.packed import CONTENT_TYPE, HEADER, RECORD_BYTES, opened, pack
from streaming.contract.broker_events import Backlog
from streaming.kafka_io.writer import Record

TYPE: Final = "backlog"
_LEDGER: Final = (("id", "id"), ("entries", "entries"), ("size", "size"), ("closeTime", "close_time"))
_SUBSCRIPTION: Final = (
    ("name", "name"),
    ("ledger", "ledger"),
    ("entry", "entry"),
    ("durable", "durable"),
    ("oldestPublishTime", "oldest_publish_time"),
)
_HEADERS: Final = ((HEADER, CONTENT_TYPE.encode()),)
_OTHERS: Final = {"name": pa.string(), "durable": pa.bool_()}


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


def write_reports(writer: Reports, reports: Sequence[Backlog]) -> list[str]:
    """Write reports, all or none; returns the topics whose reports were too large and left out.

    Raises:
        TakenOver: another collector of this cluster has started since.
        WeirError: they were not written, or are not known to be.
    """
    records, too_large = packed_reports(reports, writer.partitions())
    if records:
        writer.send(records)
    return too_large


def packed_reports(
    reports: Iterable[Backlog], partitions: int, most: int = RECORD_BYTES
) -> tuple[list[Record], list[str]]:
    """Reports as records of at most so many bytes, one a partition where it fits; topics of others."""
    by_partition: dict[int, list[Backlog]] = {}
    for report in reports:
        by_partition.setdefault(partition_of(report.topic, partitions), []).append(report)
    records, too_large = list[Record](), list[str]()
    for partition, own in by_partition.items():
        for value in pack(TYPE, rows_of(own), most):
            if len(value) <= most:
                records.append(Record(value=value, partition=partition, headers=_HEADERS))
            else:
                too_large.append(opened(value)[1]["topic"][0].as_py())
    return records, too_large


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
