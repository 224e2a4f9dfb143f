"""Writes reports of backlogs to `weir.usage` as packed records, under a cluster's lease."""

from collections.abc import Sequence

from streaming.collect.backlog.packing import TooLarge, packed_reports
from streaming.collect.reports import Reports
from streaming.columns.packed import CONTENT_TYPE, HEADER
from streaming.contract.broker_events import Backlog
from streaming.kafka_io.writer import Record

_HEADERS = ((HEADER, CONTENT_TYPE.encode()),)


def write_reports(writer: Reports, reports: Sequence[Backlog]) -> list[str]:
    """Write reports, all or none; returns the topics whose reports were too large and left out.

    Raises:
        TakenOver: another collector of this cluster has started since.
        WeirError: they were not written, or are not known to be.
    """
    too_large: list[str] = []
    records: list[Record] = []
    for piece in packed_reports(reports, writer.partitions()):
        if isinstance(piece, TooLarge):
            too_large.append(piece.topic)
        else:
            records.append(Record(value=piece.value, partition=piece.partition, headers=_HEADERS))
    if records:
        writer.send(records)
    return too_large
