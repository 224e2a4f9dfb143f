"""Metrics from Spark's progress reports."""

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql.streaming.query import StreamingQuery

from streaming.columns.outputs import DecisionRows, Outputs
from streaming.columns.records import Records
from streaming.job.process.progress import JobMetrics, ProgressReader, gone_unread
from streaming.job.spark.counts import (
    BATCHES_KEPT,
    OTHER_SUBJECTS,
    SUBJECTS_MAX,
    BatchCounts,
    CountsParam,
    Totals,
    counts_of,
)
from streaming.laws.registry import LAWS

BEGAN_MS = 1_795_176_000_000
"""2026-11-20T12:00:00Z, when the reports' minute begins."""


def report(batch: int, **fields: Any) -> dict[str, Any]:
    """A batch's report, in Spark's form."""
    return {
        "batchId": batch,
        "timestamp": f"2026-11-20T12:00:{batch:02}.000Z",
        "durationMs": {"addBatch": 80, "latestOffset": 5, "queryPlanning": 10, "triggerExecution": 100},
        "stateOperators": [{"numRowsTotal": 8, "memoryUsedBytes": 4096}],
        "sources": [
            {
                "endOffset": {"weir.requests": {"0": 40, "1": 7}},
                "latestOffset": {"weir.requests": {"0": 50, "1": 7}},
            },
            {"endOffset": None, "latestOffset": None},
        ],
    } | fields


def value(metrics: JobMetrics, name: str, **labels: str) -> float | None:
    """A sample of the registry."""
    return metrics.registry.get_sample_value(f"weir_job_{name}", labels)


def test_a_batch_is_counted_in_every_metric() -> None:
    """Counters add up, gauges keep the newest, durations are seconds."""
    metrics = JobMetrics(restarts=2)
    metrics.take(report(1), {BEGAN_MS + 1000: BEGAN_MS + 960, BEGAN_MS + 3000: 0})
    metrics.take(report(2), {BEGAN_MS + 1000: 0, BEGAN_MS + 2010: BEGAN_MS + 1960})
    metrics.count(Counter({("events", "mutation"): 12, ("decisions",): 10, ("dead_letters",): 2}))
    metrics.count(Counter({
        ("events", "mutation"): 24, ("decisions",): 20, ("dead_letters",): 4,
        ("candidate_decisions", "stricter", "mutation", "allow"): 3,
    }))  # fmt: skip
    labels = {"candidate": "stricter", "law": "mutation", "outcome": "allow"}
    assert value(metrics, "candidate_decisions_total", **labels) == 3
    assert value(metrics, "events_total", law="mutation") == 24
    assert value(metrics, "decisions_total") == 20
    assert value(metrics, "dead_letters_total") == 4
    assert value(metrics, "state_rows") == 8
    assert value(metrics, "state_bytes") == 4096
    assert value(metrics, "source_lag_records", topic="weir.requests") == 10
    assert value(metrics, "batch_seconds_sum", phase="run") == 0.16
    assert value(metrics, "batch_seconds_count", phase="total") == 2
    assert value(metrics, "decision_age_seconds_sum") == 0.28
    assert value(metrics, "last_batch_number") == 2
    assert value(metrics, "restarts_total") == 2


def test_a_report_of_an_idle_query_is_no_batch() -> None:
    """Spark writes one every ten seconds with the number of the batch to come."""
    metrics = JobMetrics(restarts=0)
    metrics.take(report(3, durationMs={"latestOffset": 4, "triggerExecution": 4}), {BEGAN_MS + 3000: 0})
    assert value(metrics, "decision_age_seconds_count") == 0
    assert value(metrics, "batch_seconds_count", phase="total") is None
    assert value(metrics, "decisions_total") == 0
    assert value(metrics, "state_rows") == 8


def test_records_that_were_gone_before_they_were_read_are_counted() -> None:
    """Those between where the query would have gone on and the first that is there; a new one misses none."""
    began = [
        {"startOffset": {"weir.requests": {"0": 40, "1": 7}}}, {"startOffset": '{"weir.usage":{"0":5}}'},
        {"startOffset": {"weir.policies": {"0": 3}}}, {"startOffset": None},
    ]  # fmt: skip
    first = {"weir.requests": {"0": 50, "1": 6}, "weir.usage": {"0": 5}}
    assert list(gone_unread(report(1, sources=began), first)) == [("weir.requests", 10)]
    assert list(gone_unread(report(1), first)) == []


def test_tallies_add_up() -> None:
    """Totals are sums, the oldest of a batch is that of all its tasks, only the newest batches are kept."""
    mutations = Counter({("events", "mutation"): 2, ("decisions",): 1})
    backlogs: Totals = Counter({("events", "backlog"): 3})
    one = BatchCounts(totals=mutations, oldest={5: 100})
    param, total = CountsParam(), BatchCounts()
    for part in (one, BatchCounts(totals=backlogs, oldest={5: 90, 6: 110}), one):
        total = param.addInPlace(total, part)
    assert total == BatchCounts(totals=mutations + backlogs + mutations, oldest={5: 90, 6: 110})
    for batch_ms in range(1000, 1000 + BATCHES_KEPT):
        total = param.addInPlace(total, BatchCounts(oldest={batch_ms: 1}))
    assert list(total.oldest) == list(range(1000, 1000 + BATCHES_KEPT))


def test_a_step_counts_what_belongs_to_its_shard() -> None:
    """Records for all shards are no events, dead letters are no decisions and have no age."""
    records = Records(broadcast=[True, False, False])
    outputs = Outputs()
    outputs.add_dead_letter(b"{}", ts=1, source=1)
    assert counts_of("mutation", records, outputs, 7).oldest == {}
    form = LAWS.by_name["mutation"].decision
    decided = [(2, {"type": "admission", "id": "a", "ts": ts, "subject": "s"}) for ts in (30, 20)]
    outputs.add(form.columns(decided))
    found = counts_of("mutation", records, outputs, 7)
    totals = Counter({("events", "mutation"): 2, ("decisions",): 2, ("dead_letters",): 1})
    assert found == BatchCounts(totals=totals, oldest={7: 20})


def test_differences_are_counted_by_subject_and_of_so_many() -> None:
    """Of decisions that say `law`; whose turn comes late shares a name that nobody has."""
    outputs = Outputs()
    said = pa.array([None, {"outcome": "reject", "rejected": ["t"]}])
    rows = pa.record_batch({"id": ["a", "b"], "ts": pa.array([1, 2]), "law": said})
    source = np.zeros(2, dtype=np.int64)
    outputs.add(DecisionRows(type="admission", rows=rows, source=source, keys=pa.array(["user=a", "user=b"])))
    total = counts_of("mutation", Records(), outputs, 7)
    assert total.totals - Counter({("decisions",): 2}) == Counter({("differences", "user=b"): 1})
    many: Totals = Counter({("differences", f"user={number}"): 2 for number in range(SUBJECTS_MAX)})
    for _ in range(2):
        total = CountsParam().addInPlace(total, BatchCounts(totals=many))
    totals = total.totals - Counter({("decisions",): 2})
    assert len(totals) == SUBJECTS_MAX + 1
    assert totals.total() == 1 + 4 * SUBJECTS_MAX
    assert totals["differences", "user=b"] == 1 and totals["differences", OTHER_SUBJECTS] == 4
    metrics = JobMetrics(restarts=0)
    metrics.count(totals)
    metrics.count(totals)
    name, label = "weir_local_differences_total", {"subject": OTHER_SUBJECTS}
    assert metrics.registry.get_sample_value(name, label) == 4


def test_each_report_is_counted_once_whatever_spark_still_keeps() -> None:
    """Polled twice, with reports that overlap, then with none of the known ones left."""
    kept: list[dict[str, Any]] = []

    def recent() -> list[Any]:
        return [SimpleNamespace(json=lambda found=found: json.dumps(found)) for found in kept]

    query = cast(StreamingQuery, SimpleNamespace(_jsq=SimpleNamespace(recentProgress=recent)))
    metrics = JobMetrics(restarts=0)
    counted = BatchCounts(totals=Counter({("decisions",): 5}))
    counts = cast(Accumulator[BatchCounts], SimpleNamespace(value=counted))
    reader = ProgressReader(query, counts, metrics)
    assert not reader.poll()
    for window in (range(1, 4), range(2, 6), range(20, 23)):
        kept[:] = [report(number) for number in window]
        assert reader.poll()
        assert not reader.poll()
    assert value(metrics, "batch_seconds_count", phase="total") == 8
    assert value(metrics, "decisions_total") == 5


def test_segments_of_a_remote_checkpoint_are_counted_once() -> None:
    """By what was done with them, and their bytes."""
    metrics = JobMetrics(restarts=0)
    outputs = Outputs()
    written: Totals = Counter({("segments", "written"): 1, ("segment_bytes", "written"): 100})
    first = counts_of("mutation", Records(), outputs, 7, written)
    fetched = counts_of("mutation", Records(), outputs, 8, Counter({("segments", "fetched"): 2}))
    metrics.count(first.totals)
    for _ in range(2):
        metrics.count(CountsParam().addInPlace(first, fetched).totals)
    value = metrics.registry.get_sample_value
    assert value("weir_job_segments_total", {"what": "written"}) == 1
    assert value("weir_job_segments_total", {"what": "fetched"}) == 2
    assert value("weir_job_segment_bytes_total", {"what": "written"}) == 100
