"""What the proxy tells Prometheus; names and meanings are listed in docs/metrics.md."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from streaming.kafka_io.topic_watch import TopicMetrics
from streaming.metrics import serve_metrics

DELAY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
WAIT_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0)


@dataclass(slots=True)
class Traffic:
    """Plain numbers counted per frame, where a library counter with its lock would be too dear.

    Attributes:
        bytes_in: from clients.
        bytes_out: to clients.
        frames_in: requests from clients.
        connections: open now.
        departed: those of them whose client is gone, while what it sent is carried out.
        connections_max: how many may be open, as far as file descriptors go round.
        muted: connections not read because of a throttle, now.
        held: requests kept behind one that waits, now.
        subjects: subjects with a not-before time, now.
        pending: requests waiting for their decision, now.
        policy_version: version of the policies in force.
        brokers: brokers with a port of their own.
        resident: memory of the process, bytes.
        emptied: Fetch responses whose records were held back.
    """

    bytes_in: int = 0
    bytes_out: int = 0
    frames_in: int = 0
    connections: int = 0
    departed: int = 0
    connections_max: int = 0
    muted: int = 0
    held: int = 0
    subjects: int = 0
    pending: int = 0
    policy_version: int = 0
    brokers: int = 0
    resident: int = 0
    emptied: int = 0


@dataclass(slots=True)
class DecisionAnomalies:
    """What went past the ordinary where requests are decided here, since the start.

    Attributes:
        folded: events that had to leave a tail before their admission was read.
        passed_over: statements that do not hold such events.
        forgotten: subjects that had to be forgotten while they had something to say.
        lost: events of which nothing will ever be said.
        between: requests refused since nobody answers questions.
        unnamed: admissions whose ids could not be kept: read again, they would count as new.
    """

    folded: int = 0
    passed_over: int = 0
    forgotten: int = 0
    lost: int = 0
    between: int = 0
    unnamed: int = 0


@dataclass(slots=True)
class Local:
    """What is decided at once, in plain numbers.

    Attributes:
        proxies: that are alive, this one included.
        own_events: sent, whose decision was not read, with their items.
        counts: what went past the ordinary.
        alone: whether we serve though the job has decided nothing since our start.
    """

    proxies: int = 1
    own_events: int = 0
    counts: DecisionAnomalies = field(default_factory=DecisionAnomalies)
    alone: bool = False


class _TrafficCollector(Collector):
    def __init__(self, traffic: Traffic, local: Local) -> None:
        self._traffic = traffic
        self._local = local

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        seen = self._traffic
        size = CounterMetricFamily("weir_proxy_bytes", "Bytes of client frames", labels=["direction"])
        size.add_metric(["in"], seen.bytes_in)
        size.add_metric(["out"], seen.bytes_out)
        yield size
        yield CounterMetricFamily("weir_proxy_frames", "Requests read from clients", value=seen.frames_in)
        yield CounterMetricFamily(
            "weir_proxy_emptied_fetches", "Fetch responses whose records were held back", value=seen.emptied
        )
        for name, text, value in (
            ("connections", "Open client connections", seen.connections),
            ("departed_connections", "Connections whose client is gone, still at work", seen.departed),
            ("connections_max", "Connections that are let in", seen.connections_max),
            ("muted_connections", "Connections not read because of a throttle", seen.muted),
            ("held_frames", "Requests kept behind one that waits", seen.held),
            ("not_before_subjects", "Subjects that must wait", seen.subjects),
            ("pending_requests", "Requests that wait for their decision", seen.pending),
            ("policy_version", "Version of the policies in force", seen.policy_version),
            ("brokers", "Brokers that have a port of their own", seen.brokers),
            ("resident_bytes", "Memory of the process", seen.resident),
            ("proxies_alive", "Proxies that decide, this one included", self._local.proxies),
            ("alone", "1: the job has decided nothing since our start", self._local.alone),
            ("own_events", "Events and items sent, whose decision was not read", self._local.own_events),
        ):
            yield GaugeMetricFamily(f"weir_proxy_{name}", text, value=value)
        uncommon = CounterMetricFamily(
            "weir_proxy_local_uncommon", "Local decisions out of the ordinary", labels=["what"]
        )
        for name, count in asdict(self._local.counts).items():
            uncommon.add_metric([name], count)
        yield uncommon


class Metrics:
    """All metrics of one proxy, in a registry of their own.

    Args:
        subjects_max: subjects with series of their own; the least recently decided one goes first.
    """

    def __init__(self, subjects_max: int) -> None:
        self.registry = CollectorRegistry()
        self.traffic = Traffic()
        self.local = Local()
        self.registry.register(_TrafficCollector(self.traffic, self.local))
        self._subjects_max = subjects_max
        self._subjects: dict[str, None] = {}
        self.requests = self._counter("requests", "Requests for partition mutations", "api", "outcome")
        self.unreported = self._counter("unreported_requests", "Dry runs and refusals beyond their rate")
        self.unusable = self._counter("unusable_records", "Records of our own topics not used", "topic")
        self.events = self._counter("events", "Events sent, dropped (buffer full) or failed", "result")
        self.closed = self._counter("closed_connections", "Connections that the proxy ended", "reason")
        self.dropped = self._counter(
            "dropped_requests", "Requests of departed clients that were not carried out", "reason"
        )
        self.bad_frames = self._counter("bad_frames", "Frames that the protocol does not allow", "reason")
        self.upstream_failures = self._counter("upstream_failures", "Failed broker connections", "reason")
        self.late_decisions = self._counter("late_decisions", "Decisions that came after the time limit")
        self.corrections = self._counter(
            "corrected_mutations", "Partition mutations refunded or charged afterwards", "kind"
        )
        self.shadow_decisions = self._counter("shadow_decisions", "Decisions of shadow quotas, not acted on")
        self.accepted = self._counter("accepted_connections", "Client connections accepted")
        self.throttled = self._counter(
            "throttled_frames", "Frames after which their connection waits, by whose limit", "by", "dimension"
        )
        self.decision_wait = Histogram(
            "weir_proxy_decision_wait_seconds",
            "From sending a request event to its decision",
            registry=self.registry,
            buckets=WAIT_BUCKETS_S,
        )
        self.topics = TopicMetrics(self.registry, "weir_proxy_topic_faults", "weir_proxy_topics_replaced")
        self.loop_delay = Histogram(
            "weir_proxy_loop_delay_seconds",
            "How late a timer of the event loop is, twenty times a second",
            registry=self.registry,
            buckets=DELAY_BUCKETS_S,
        )
        self._count_refusals()
        self._count_local()
        self._count_dispatch()
        self._begin_at_zero()
        self._tokens = self._gauge("subject_tokens", "Balance after the last decision, mutations")
        self._rate = self._gauge("subject_rate", "Partition mutations per second, sampled")
        self._throttle = self._gauge("subject_throttle_ms", "Throttle time of the last decision, ms")

    def _begin_at_zero(self) -> None:
        """Series that alerts look at are there from the start: one that appears with 1 shows no increase."""
        for counter, values in (
            (self.events, ("sent", "dropped", "failed", "too_large")),
            (self.closed, ("memory",)),
            (self.dropped, ("strict", "departed", "upstream", "stop", "memory")),
            (self.bad_frames, ("internal",)),
            (self.upstream_failures, ("timeout", "refused", "lost")),
            (self.corrections, ("refunded", "charged")),
            (self.refused_logins, ("mechanism", "name", "delegation_token")),
        ):
            for value in values:
                counter.labels(value)

    def _count_local(self) -> None:
        """What is decided at once, and not by the job."""
        self.unacknowledged = Counter(
            "weir_unacknowledged_answers",
            "Requests answered before Kafka had their events",
            registry=self.registry,
        )
        self.same_name = self._counter("same_name", "Signs of life of other processes with our name")

    def _count_dispatch(self) -> None:
        """What limits of dispatch do to Fetch requests (docs/metrics.md)."""
        self.held_fetches, self.cut_fetches, self.ambiguous_fetches, self.large_fetches = (
            Counter(f"weir_dispatch_{name}_fetches", text, registry=self.registry)
            for name, text in (
                ("held", "Fetch requests kept, since all of their topics had to wait"),
                ("cut", "Fetch responses that lost records, since their limits were reached"),
                ("ambiguous", "Topics of Fetch requests that may be of several groups, one of them limited"),
                ("large", "Fetch requests of too many partitions to be told apart: nothing counts them"),
            )
        )

    def _count_refusals(self) -> None:
        """What attackers run into (docs/security.md), and who does not know better."""
        self.refused_logins = self._counter(
            "refused_logins", "Logins kept from the broker, since their user cannot be read", "reason"
        )
        self.forbidden_creations = self._counter(
            "forbidden_creations", "Topics that a Metadata request would have created"
        )
        self.refused_topics = self._counter(
            "refused_topics", "Requests' mentions of topics or transactional ids of Weir's, refused", "api"
        )
        self.refused_changes = self._counter(
            "refused_changes", "Changes of quotas, brokers, users and ACLs that were refused", "api"
        )

    def serve(self, host: str, port: int) -> tuple[str, int]:
        """Serve them at /metrics, from a thread; returns where, since port 0 takes any free one.

        Raises:
            WeirError: the port is taken, or the address not ours.
        """
        return host, urlsplit(serve_metrics(self.registry, host, port)).port or 0

    def decided(self, subject: str, tokens: float | None, rate: float | None, throttle_time_ms: int) -> None:
        """Show a subject's balance after a decision."""
        self._subjects.pop(subject, None)
        if len(self._subjects) >= self._subjects_max:
            oldest = next(iter(self._subjects))
            del self._subjects[oldest]
            for gauge in (self._tokens, self._rate, self._throttle):
                gauge.remove(oldest)
        self._subjects[subject] = None
        for gauge, value in ((self._tokens, tokens), (self._rate, rate), (self._throttle, throttle_time_ms)):
            gauge.labels(subject).set(float("nan") if value is None else value)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"weir_proxy_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"weir_proxy_{name}", text, ["subject"], registry=self.registry)
