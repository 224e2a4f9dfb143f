"""What the admin API tells Prometheus; names and meanings are listed in docs/metrics.md."""

from collections.abc import Iterator, Sequence
from typing import Final

from enforcer.control.answers.shown import Pressed
from streaming.kafka_io.topic_watch import TopicMetrics
from streaming.metrics import MetricTable, Sample, counter, gauge, histogram, read_counter, read_gauge

SECONDS_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS: Final = frozenset({"GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS"})


class AdminMetrics(MetricTable):
    """All metrics of one admin API process, in a registry of their own."""

    prefix = "weir_admin_"

    requests = counter("Requests answered, by method, route and status", "method route code")
    request_seconds = histogram("From a request to its answer", SECONDS_BUCKETS)
    changes = counter(
        "Changes of policies: written, overtaken by another writer and tried again, or failed",
        "result", "written overtaken failed",
    )  # fmt: skip
    token_reads = counter(
        "Tries to read the file of tokens when it had changed: read, or unusable, and those before stayed",
        "result", "read unusable",
    )  # fmt: skip
    connections = gauge("Connections that are open")
    connections_ended = counter("Connections that were ended here, by reason", "reason")
    streams = read_gauge("Streams of events that are open", of="streams.open")
    streams_ended = counter(
        "Streams that have ended, by reason: gone, slow or stopped; full: turned away",
        "reason", "gone slow stopped full",
    )  # fmt: skip
    tls_failures = counter("Clients whose TLS handshake failed, by reason", "reason")
    refused_connections = counter("Clients turned away before anything of theirs was read", "reason")
    bad_policy_records = gauge("Records on weir.policies that cannot be used")
    policy_version = gauge("Newest version of the policies that was read")
    usage_rows = read_gauge("Pairs of group and broker whose use is kept", of="usage.rows.count")
    usage_rows_dropped = read_counter("Such pairs forgotten for lack of room", of="usage.rows.dropped")
    dispatch_rows = read_gauge(
        "Subscriptions at a broker, by proxy, whose deliveries are kept", of="deliveries.rows.count"
    )
    dispatch_rows_dropped = read_counter(
        "Such rows forgotten for lack of room", of="deliveries.rows.dropped"
    )
    backlog_rows = read_gauge(
        "Topics and their subscriptions whose backlogs are kept", of="backlogs.rows.count"
    )
    backlog_rows_dropped = read_counter("Such rows forgotten for lack of room", of="backlogs.rows.dropped")
    entities = read_gauge("Entities of all laws that are kept", of="view.table.rows.count")
    entities_dropped = read_counter("Such entities forgotten for lack of room", of="view.table.rows.dropped")
    entity_details_dropped = read_counter(
        "Entities that waited, whose details were forgotten for lack of room",
        of="view.details._waited.dropped",
    )
    entity_used = read_gauge(
        "Share of its limit that an entity uses", "law entity", name="weir_entity_used_ratio"
    )
    entity_held = read_gauge(
        "How long an entity waits or is refused", "law entity", name="weir_entity_throttled_seconds"
    )
    entity_empty = read_gauge(
        "Until nothing is left of an entity's limit", "law entity", name="weir_entity_empty_seconds"
    )
    entities_untold = gauge("Entities that wait or are near their limit and are left out above")

    def __init__(self) -> None:
        super().__init__()
        self._pressed: Sequence[Pressed] = ()
        self.parts: object = None
        """Whose tables these rows are of."""
        self.topics = TopicMetrics(self.registry, "admin")

    def tell(self, pressed: Sequence[Pressed], untold: int) -> None:
        """Show these entities from now on; called in the loop, read by another thread."""
        self._pressed = pressed
        self.entities_untold.set(untold)

    def read_samples(self) -> Iterator[Sample]:
        """Of what is kept, and of the entities that were told last."""
        if self.parts is not None:
            yield from self.read_paths((), self.parts)
        names = "entity_used", "entity_held", "entity_empty"
        used, held, empty = (vars(type(self))[name] for name in names)
        for each in self._pressed:
            yield used, each.labels, each.used
            yield held, each.labels, each.held_s
            if each.empty_s is not None:
                yield empty, each.labels, each.empty_s

    def answered(self, method: str, route: str, code: int, seconds: float) -> None:
        """Count one answer; `route` is the template of the path, so that names do not become series."""
        self.requests.labels(method if method in _METHODS else "other", route, str(code)).inc()
        self.request_seconds.observe(seconds)
