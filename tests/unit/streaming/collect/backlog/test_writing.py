"""A check's reports go out together, each record to its partition, marked as packed."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from collector_kit import report

from streaming.collect.backlog import packed_reports
from streaming.columns.packed import is_packed
from streaming.kafka_io.writer import Record


class Writer:
    """Takes records, as `Reports`."""

    def __init__(self, partitions: int) -> None:
        self.sent: list[list[Record]] = []
        self._partitions = partitions

    def partitions(self) -> int:
        """Of the topic."""
        return self._partitions

    def send(self, records: Iterable[Record]) -> None:
        """All of them."""
        self.sent.append(list(records))


def test_all_records_of_a_check_are_one_transaction() -> None:
    writer = Writer(2)
    reports = [replace(report(f"persistent://a/b/{n}", s=1), id=f"c-1.{n}") for n in range(9)]
    assert packed_reports.write_reports(writer, reports) == []  # type: ignore[arg-type]
    (records,) = writer.sent
    assert sorted(one.partition for one in records) == [0, 1]
    assert all(is_packed(one.headers) and one.key is None for one in records)


def test_without_a_topic_nothing_is_written() -> None:
    writer = Writer(2)
    assert packed_reports.write_reports(writer, []) == []  # type: ignore[arg-type]
    assert writer.sent == []


def test_what_is_too_large_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(_reports: object, _partitions: int) -> tuple[list[Record], list[str]]:
        return [Record(value=b"x")], ["persistent://a/b/large"]

    monkeypatch.setattr(packed_reports, "packed_reports", too_large)
    writer = Writer(1)
    assert packed_reports.write_reports(writer, []) == ["persistent://a/b/large"]  # type: ignore[arg-type]
    assert [one.value for one in writer.sent[0]] == [b"x"]
