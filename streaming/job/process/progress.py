"""Prometheus metrics of the job: reports of its query, and its tally. Names are in docs/metrics.md."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pyspark.accumulators import Accumulator
from pyspark.sql.streaming.query import StreamingQuery

from streaming.job.spark.counts import BYTES, BatchCounts
from streaming.kafka_io.topic_watch import TopicMetrics
from streaming.laws.registry import LAWS

Report = Mapping[str, Any]
_BATCH_S = (0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# The names of Spark's `durationMs`, in the order in which a batch goes through them.
_PHASES = {
    "latestOffset": "find_offsets",
    "queryPlanning": "plan",
    "walCommit": "log_offsets",
    "addBatch": "run",
    "commitOffsets": "commit",
    "triggerExecution": "total",
}
_TOTALS = {
    "decisions": ("weir_job_decisions", "Decisions written"),
    "dead_letters": ("weir_job_dead_letters", "Records that could not be used"),
    "withheld": ("weir_job_withheld_decisions", "Shares and limits not written: their life time was over"),
}
"""Metrics of those counts of `BatchCounts` that are numbers."""


class JobMetrics:
    """Metrics of one job process, in a registry of its own.

    Attributes:
        brokers_ahead: how far the brokers' clock is ahead of the host's, s.

    Args:
        restarts: how often this checkpoint was started on before.
    """

    def __init__(self, restarts: int) -> None:
        self.registry = CollectorRegistry()
        self._batch = Histogram(
            "weir_job_batch_seconds",
            "Duration of a batch by phase",
            ["phase"],
            buckets=_BATCH_S,
            registry=self.registry,
        )
        self._events = Counter("weir_job_events", "Events read, per law", ["law"], registry=self.registry)
        self._totals = {name: Counter(*said, registry=self.registry) for name, said in _TOTALS.items()}
        self._differences = Counter(
            "weir_local_differences",
            "Decisions of proxies that the law, knowing all, would have made otherwise",
            ["subject"],
            registry=self.registry,
        )
        self._state_rows = Gauge(
            "weir_job_state_rows", "Rows in the state store, one per law and shard", registry=self.registry
        )
        self._state_bytes = Gauge("weir_job_state_bytes", "Memory of the state store", registry=self.registry)
        self._lag = Gauge(
            "weir_job_source_lag_records",
            "Records not yet read when the last batch was planned",
            ["topic"],
            registry=self.registry,
        )
        self._age = Histogram(
            "weir_job_decision_age_seconds",
            "Age of a batch's oldest decision, from its event to the end of the batch",
            buckets=_BATCH_S,
            registry=self.registry,
        )
        self.brokers_ahead = Gauge(
            "weir_job_brokers_clock_ahead_seconds",
            "The brokers' clock less that of the job's host",
            registry=self.registry,
        )
        self._finished = Gauge(
            "weir_job_last_batch_number", "Number of the newest finished batch", registry=self.registry
        )
        self._restarts = Counter(
            "weir_job_restarts", "Starts on this checkpoint after the first", registry=self.registry
        )
        self._restarts.inc(restarts)
        self._segments = _Segments(self.registry)
        self.topics = TopicMetrics(self.registry, "weir_job_topic_faults", "weir_job_topics_replaced")
        self._counted = BatchCounts()
        for law in LAWS.by_name:
            self._events.labels(law=law)

    def count(self, counts: BatchCounts) -> None:
        """Add what was counted since the last call."""
        for law, events in (counts.events - self._counted.events).items():
            self._events.labels(law=law).inc(events)
        for subject, differences in (counts.differences - self._counted.differences).items():
            self._differences.labels(subject=subject).inc(differences)
        self._segments.count(counts.segments - self._counted.segments)
        for name, counter in self._totals.items():
            counter.inc(getattr(counts, name) - getattr(self._counted, name))
        self._counted = counts

    def take(self, report: Report, oldest: Mapping[int, int]) -> None:
        """Count one progress report that has not been counted before.

        Args:
            report: in Spark's form.
            oldest: see `BatchCounts`.
        """
        for store in report.get("stateOperators", ()):
            self._state_rows.set(store["numRowsTotal"])
            self._state_bytes.set(store["memoryUsedBytes"])
        for source in report.get("sources", ()):
            for topic, lag in _lags(source):
                self._lag.labels(topic=topic).set(lag)
        # An idle query reports too, every ten seconds, with the number of the batch that is yet to come.
        if "addBatch" not in report["durationMs"]:
            return
        self._finished.set(report["batchId"])
        for name, phase in _PHASES.items():
            if name in report["durationMs"]:
                self._batch.labels(phase=phase).observe(report["durationMs"][name] / 1000)
        began = datetime.fromisoformat(report["timestamp"]).timestamp() * 1000
        ended = began + report["durationMs"]["triggerExecution"]
        for batch_ms, ts in oldest.items():
            if began <= batch_ms <= ended:
                self._age.observe(max(0, ended - ts) / 1000)


class _Segments:
    """What goes to a checkpoint that is far away, and comes from it.

    Args:
        registry: where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._number, self._bytes = (
            Counter(name, text, ["what"], registry=registry)
            for name, text in (
                ("weir_job_segments", "Segments of a remote checkpoint"),
                ("weir_job_segment_bytes", "Bytes of segments of a remote checkpoint"),
            )
        )

    def count(self, new: Mapping[str, int]) -> None:
        """Add what was counted since the last call, see `BatchCounts`."""
        for what, number in new.items():
            counter = self._bytes if what.endswith(BYTES) else self._number
            counter.labels(what=what.removesuffix(BYTES)).inc(number)


class ProgressReader:
    """Hands each progress report of a query to its metrics once.

    Args:
        query: the running query.
        counts: what it counts.
        metrics: what counts them.
    """

    def __init__(self, query: StreamingQuery, counts: Accumulator[BatchCounts], metrics: JobMetrics) -> None:
        self._query = query
        self._counts = counts
        self._metrics = metrics
        self._seen = ""

    def poll(self) -> bool:
        """Count the reports since the last call; returns whether there were any."""
        new = self._new_reports()
        counts = self._counts.value
        self._metrics.count(counts)
        for report in new:
            self._metrics.take(report, counts.oldest)
        if new:
            self._seen = _name(new[-1])
        return bool(new)

    def _new_reports(self) -> list[Report]:
        # The public recentProgress turns all hundred reports into JSON at every call, which costs more
        # than the batches themselves; from the newest backwards only the new ones are asked for.
        reports = self._query._jsq.recentProgress()
        new: list[Report] = []
        for position in range(len(reports) - 1, -1, -1):
            report = json.loads(reports[position].json())
            if _name(report) == self._seen:
                break
            new.append(report)
        return new[::-1]


def _name(report: Report) -> str:
    return f"{report['batchId']} {report['timestamp']}"


def _lags(source: Report) -> list[tuple[str, int]]:
    """Records per topic between what was planned to be read and the newest offsets."""
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    return [
        (
            topic,
            sum(max(0, newest - end.get(topic, {}).get(number, 0)) for number, newest in partitions.items()),
        )
        for topic, partitions in latest.items()
    ]


def _offsets(value: Any) -> dict[str, dict[str, int]]:
    """Offsets by topic and partition; Spark reports them as JSON or as text with JSON in it."""
    loaded = json.loads(value) if isinstance(value, str) else value
    return loaded if isinstance(loaded, dict) else {}
