"""Prometheus metrics of the job: reports of its query, and its tally. Names are in docs/metrics.md."""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from pyspark.accumulators import Accumulator
from pyspark.sql.streaming.query import StreamingQuery

from streaming.job.spark.counts import BatchCounts, Totals
from streaming.kafka_io.topic_watch import TopicMetrics
from streaming.laws.registry import LAWS
from streaming.metrics import MetricTable, counter, gauge, histogram

_LOG = logging.getLogger("weir.job")
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


class JobMetrics(MetricTable):
    """Metrics of one job process, in a registry of its own.

    Args:
        restarts: how often this checkpoint was started on before.
    """

    prefix = "weir_job_"

    batch_seconds = histogram("Duration of a batch by phase", _BATCH_S, "phase")
    events = counter("Events read, per law", "law")
    decisions = counter("Decisions written")
    dead_letters = counter("Records that could not be used")
    withheld_decisions = counter("Shares and limits not written: their life time was over")
    copies = counter("Records left out: their producer had sent them before")
    differences = counter(
        "Decisions of proxies that the law, knowing all, would have made otherwise",
        "subject", name="weir_local_differences",
    )  # fmt: skip
    candidate_decisions = counter("Decisions by policies that are only tried", "candidate law outcome")
    state_rows = gauge("Rows in the state store, one per law and shard")
    state_bytes = gauge("Memory of the state store")
    source_lag_records = gauge("Records not yet read when the last batch was planned", "topic")
    decision_age_seconds = histogram(
        "Age of a batch's oldest decision, from its event to the end of the batch", _BATCH_S
    )
    brokers_clock_ahead_seconds = gauge("The brokers' clock less that of the job's host")
    last_batch_number = gauge("Number of the newest finished batch")
    restarts = counter("Starts on this checkpoint after the first")
    segments = counter("Segments of a remote checkpoint", "what")
    segment_bytes = counter("Bytes of segments of a remote checkpoint", "what")

    def __init__(self, restarts: int) -> None:
        super().__init__()
        self.restarts.inc(restarts)
        self.topics = TopicMetrics(self.registry, "job")
        self._counted: Totals = Counter()
        for law in LAWS.by_name:
            self.events.labels(law=law)

    def count(self, totals: Totals) -> None:
        """Add what was counted since the last call."""
        before, self._counted = self._counted, totals
        for (name, *labels), number in (totals - before).items():
            metric = getattr(self, name)
            (metric.labels(*labels) if labels else metric).inc(number)

    def take(self, report: Report, oldest: Mapping[int, int]) -> None:
        """Count one progress report that has not been counted before.

        Args:
            report: in Spark's form.
            oldest: see `BatchCounts`.
        """
        for store in report.get("stateOperators", ()):
            self.state_rows.set(store["numRowsTotal"])
            self.state_bytes.set(store["memoryUsedBytes"])
        for source in report.get("sources", ()):
            for topic, lag in _lags(source):
                self.source_lag_records.labels(topic=topic).set(lag)
        # An idle query reports too, every ten seconds, with the number of the batch that is yet to come.
        if "addBatch" not in report["durationMs"]:
            return
        self.last_batch_number.set(report["batchId"])
        for name, phase in _PHASES.items():
            if name in report["durationMs"]:
                self.batch_seconds.labels(phase=phase).observe(report["durationMs"][name] / 1000)
        began = datetime.fromisoformat(report["timestamp"]).timestamp() * 1000
        ended = began + report["durationMs"]["triggerExecution"]
        for batch_ms, ts in oldest.items():
            if began <= batch_ms <= ended:
                self.decision_age_seconds.observe(max(0, ended - ts) / 1000)


class ProgressReader:
    """Hands each progress report of a query to its metrics once.

    Args:
        query: the running query.
        counts: what it counts.
        metrics: what counts them.
        first: the first offsets of the topics when the query began, by topic and partition.
    """

    def __init__(
        self, query: StreamingQuery, counts: Accumulator[BatchCounts], metrics: JobMetrics,
        first: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self._query = query
        self._counts = counts
        self._metrics = metrics
        self._first = first
        self._seen = ""

    def poll(self) -> bool:
        """Count the reports since the last call; returns whether there were any."""
        new = self._new_reports()
        counts = self._counts.value
        self._metrics.count(counts.totals)
        for report in new:
            self._metrics.take(report, counts.oldest)
        if new and not self._seen:
            for topic, gone in gone_unread(new[0], self._first):
                _LOG.error(
                    "%d records of %s were gone before this job read them, so nothing is decided on them: it"
                    " was away for longer than the topic holds events (kafka.topics_kept_ms)", gone, topic,
                )  # fmt: skip
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


def gone_unread(report: Report, first: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, int]]:
    """How many records of each topic a query would have begun with, and they are not there any more.

    Args:
        report: its first one.
        first: the first offsets when it began, by topic and partition.
    """
    for source in report.get("sources", ()):
        for topic, partitions in _offsets(source.get("startOffset")).items():
            there = first.get(topic, {})
            gone = sum(max(0, there.get(number, 0) - begin) for number, begin in partitions.items())
            if gone:
                yield topic, gone


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
