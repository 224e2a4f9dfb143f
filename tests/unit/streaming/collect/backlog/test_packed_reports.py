"""Reports as packed records: what the job reads of them is what was reported."""

import itertools
from collections.abc import Iterable
from dataclasses import replace

import orjson
import pyarrow as pa
import pytest
from collector_kit import T0, TOPIC, report
from kafka.partitioner.default import murmur2
from law_kit import T0 as LAW_T0
from pack_kit import records_with

from streaming.collect.backlog.packed_reports import packed_reports, partition_of, rows_of, write_reports
from streaming.columns import packed as packed_module
from streaming.columns.packed import is_packed, unpack
from streaming.contract.broker_events import Backlog, Ledger, Subscription
from streaming.contract.broker_events import backlog as parsed
from streaming.kafka_io.writer import Record
from streaming.laws.law import StepContext
from streaming.laws.name_hashes import partition_of as partition_of_law
from streaming.laws.shard import step

FULL = Backlog(
    id="c-1.0", ts=T0, at=T0, broker="b", topic=TOPIC,
    ledgers=(
        Ledger(id=0, entries=0, size=0, close_time=T0 - 5),
        Ledger(id=7, entries=10, size=2**62, close_time=None),
    ),
    subscriptions=(
        Subscription(name="é \u202e", ledger=-1, entry=-1, durable=True, oldest_publish_time=None),
        Subscription(name="r", ledger=7, entry=2**62, durable=False, oldest_publish_time=T0),
    ),
)  # fmt: skip
EMPTY = replace(
    FULL, id="c-1.1", topic="persistent://acme/orders/empty", broker="", ledgers=(), subscriptions=()
)


def events_of(value: bytes) -> list[Backlog]:
    """The events that the contract's own parser makes of a packed record."""
    kind, rows = unpack(value)
    assert kind == "backlog"
    return [
        parsed({**row, "type": kind}, row["id"], row["ts"])
        for row in rows.to_pylist(maps_as_pydicts="strict")
    ]


def test_what_is_packed_is_read_back() -> None:
    ((piece,), _) = packed_reports([FULL, EMPTY], 1)
    assert piece.partition == 0
    assert events_of(piece.value) == [FULL, EMPTY]
    assert rows_of([FULL]).schema.names == ["id", "ts", "broker", "topic", "ledgers", "subscriptions"]
    assert packed_reports([], 1) == ([], [])


def test_the_job_decides_packed_reports_as_their_objects() -> None:
    """The intake of the law, with a report that is refused among them."""
    wrong = replace(report(slow=3), id="wrong", topic="no full name")
    reports = [replace(report(slow=3, fast=9), id="c-1.0", ts=LAW_T0), replace(wrong, ts=LAW_T0),
               replace(EMPTY, ts=LAW_T0)]  # fmt: skip
    quotas = {f"topics.{TOPIC}": {"backlogQuotaMap": {
        "destination_storage": {"limitSize": 100, "policy": "consumer_backlog_eviction"}}}}  # fmt: skip
    context = StepContext(initial=quotas, fail_fast=True)
    ((piece,), _) = packed_reports(reports, 1)
    values = [orjson.dumps({"type": "backlog", **rows_of([one]).to_pylist()[0]}) for one in reports]
    _, packed = step("backlog", 0, None, records_with([piece.value], [True], ts=LAW_T0), context)
    _, single = step("backlog", 0, None, records_with(values, [False] * 3, ts=LAW_T0), context)
    decided = [orjson.loads(value) for value in packed.value if b'"dead_letter"' not in value]
    assert decided == [orjson.loads(value) for value in single.value if b'"dead_letter"' not in value]
    assert [one["id"] for one in decided] == ["c-1.0", "c-1.1"]
    assert [line["subscription"] for line in decided[0]["evict"]] == ["fast", "slow"]


def test_rows_of_a_record_belong_to_one_partition() -> None:
    """As Kafka's clients would choose by the topic as key."""
    reports = [replace(report(f"persistent://a/b/{n}", s=1), id=f"c-1.{n}") for n in range(50)]
    pieces, _ = packed_reports(reports, 3)
    assert sorted(piece.partition for piece in pieces) == [0, 1, 2]
    for piece in pieces:
        for event in events_of(piece.value):
            assert (murmur2(event.topic.encode()) & 0x7FFFFFFF) % 3 == piece.partition
    names = [one.topic for one in reports]
    assert partition_of_law(pa.array(names), 7).tolist() == [partition_of(name, 7) for name in names]


@pytest.mark.parametrize("most", [3_000, 6_000])
def test_what_does_not_fit_is_cut_and_one_that_never_fits_left_out(most: int) -> None:
    letters = "abcdefghijklmnop"
    large = {"".join(pick): 1 for pick in itertools.islice(itertools.permutations(letters, 8), 4_000)}
    small = [replace(report(f"persistent://a/b/{n}", **{f"s{n}-{k}": k for k in range(20)}), id=f"c-1.{n}")
             for n in range(40)]  # fmt: skip
    reports = [*small[:20], replace(report(**large), id="c-1.x"), *small[20:]]
    pieces, too_large = packed_reports(reports, 1, most)
    assert too_large == [TOPIC]
    assert len(pieces) > 1 and all(len(piece.value) <= most for piece in pieces)
    assert [event for piece in pieces for event in events_of(piece.value)] == small


def test_one_that_no_reader_would_take_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscriptions are named by clients, thousands at 32 kB each: no report at all was sent."""
    monkeypatch.setattr(packed_module, "DECODED_BYTES", 10_000)
    names = itertools.islice(itertools.permutations("abcdefghijklmnop", 8), 4_000)
    large = {"".join(pick): 1 for pick in names}
    small = replace(report("persistent://a/b/small", s=1), id="c-1.1")
    pieces, too_large = packed_reports([replace(report(**large), id="c-1.0"), small], 1, 3_000)
    assert too_large == [TOPIC]
    assert [event for piece in pieces for event in events_of(piece.value)] == [small]


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
    assert write_reports(writer, reports) == []  # type: ignore[arg-type]
    (records,) = writer.sent
    assert sorted(one.partition for one in records) == [0, 1]
    assert all(is_packed(one.headers) and one.key is None for one in records)


def test_without_a_topic_nothing_is_written() -> None:
    writer = Writer(2)
    assert write_reports(writer, []) == []  # type: ignore[arg-type]
    assert writer.sent == []


def test_what_is_too_large_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(_reports: object, _partitions: int) -> tuple[list[Record], list[str]]:
        return [Record(value=b"x")], ["persistent://a/b/large"]

    monkeypatch.setattr("streaming.collect.backlog.packed_reports.packed_reports", too_large)
    writer = Writer(1)
    assert write_reports(writer, []) == ["persistent://a/b/large"]  # type: ignore[arg-type]
    assert [one.value for one in writer.sent[0]] == [b"x"]
