"""Metrics from Spark's progress reports."""

import json
from types import SimpleNamespace
from typing import Any, cast

from pyspark.sql.streaming.query import StreamingQuery

from streaming.job.progress import JobMetrics, ProgressReader


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
        "observedMetrics": {
            "events": {"mutation": 12},
            "decisions": {"decisions": 10, "dead_letters": 2, "age_ms": 40},
        },
    } | fields


def value(metrics: JobMetrics, name: str, **labels: str) -> float | None:
    """A sample of the registry."""
    return metrics.registry.get_sample_value(f"weir_job_{name}", labels)


def test_a_batch_is_counted_in_every_metric() -> None:
    """Counters add up, gauges keep the newest, durations are seconds."""
    metrics = JobMetrics(restarts=2)
    metrics.take(report(1))
    metrics.take(report(2))
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
    metrics.take(report(3, durationMs={"latestOffset": 4, "triggerExecution": 4}))
    assert value(metrics, "batch_seconds_count", phase="total") is None
    assert value(metrics, "decisions_total") == 0
    assert value(metrics, "state_rows") == 8


def test_a_batch_of_policies_alone_has_no_age() -> None:
    """Nothing was decided; Spark gives null."""
    metrics = JobMetrics(restarts=0)
    nothing = {"decisions": 0, "dead_letters": 0, "age_ms": None}
    metrics.take(report(1, observedMetrics={"decisions": nothing}))
    assert value(metrics, "decision_age_seconds_count") == 0
    assert value(metrics, "events_total", law="mutation") == 0


def test_each_report_is_counted_once_whatever_spark_still_keeps() -> None:
    """Polled twice, with reports that overlap, then with none of the known ones left."""
    kept: list[dict[str, Any]] = []

    def recent() -> list[Any]:
        return [SimpleNamespace(json=lambda found=found: json.dumps(found)) for found in kept]

    query = cast(StreamingQuery, SimpleNamespace(_jsq=SimpleNamespace(recentProgress=recent)))
    metrics = JobMetrics(restarts=0)
    reader = ProgressReader(query, metrics)
    assert not reader.poll()
    for window in (range(1, 4), range(2, 6), range(20, 23)):
        kept[:] = [report(number) for number in window]
        assert reader.poll()
        assert not reader.poll()
    assert value(metrics, "batch_seconds_count", phase="total") == 8
