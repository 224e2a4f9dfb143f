"""What the proxy tells Prometheus; names and meanings are listed in docs/metrics.md."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from prometheus_client import CollectorRegistry

from streaming.kafka_io.topic_watch import TopicMetrics
from streaming.metrics import (
    MetricTable,
    Sample,
    counter,
    gauge,
    histogram,
    read_counter,
    read_gauge,
)

DELAY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
WAIT_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0)


@dataclass(slots=True)
class Traffic:
    """Plain numbers counted per frame, where a library counter with its lock would be too dear.

    `Metrics` says of each what it counts.
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
    """What is decided at once, in plain numbers, as `Metrics` says of each."""

    proxies: int = 1
    own_events: int = 0
    counts: DecisionAnomalies = field(default_factory=DecisionAnomalies)
    alone: bool = False


class Metrics(MetricTable):
    """All metrics of one proxy.

    Args:
        subjects_max: subjects with series of their own; the least recently decided one goes first.
        registry: see MetricTable.
    """

    prefix = "weir_proxy_"

    # Read off Traffic and Local.
    bytes = read_counter("Bytes of client frames", "direction")
    frames = read_counter("Requests read from clients", of="traffic.frames_in")
    emptied_fetches = read_counter("Fetch responses whose records were held back", of="traffic.emptied")
    connections = read_gauge("Open client connections", of="traffic.connections")
    departed_connections = read_gauge(
        "Connections whose client is gone, still at work", of="traffic.departed"
    )
    connections_max = read_gauge("Connections that are let in", of="traffic.connections_max")
    muted_connections = read_gauge("Connections not read because of a throttle", of="traffic.muted")
    held_frames = read_gauge("Requests kept behind one that waits", of="traffic.held")
    not_before_subjects = read_gauge("Subjects that must wait", of="traffic.subjects")
    pending_requests = read_gauge("Requests that wait for their decision", of="traffic.pending")
    policy_version = read_gauge("Version of the policies in force", of="traffic.policy_version")
    brokers = read_gauge("Brokers that have a port of their own", of="traffic.brokers")
    resident_bytes = read_gauge("Memory of the process", of="traffic.resident")
    proxies_alive = read_gauge("Proxies that decide, this one included", of="local.proxies")
    alone = read_gauge("1: the job has decided nothing since our start", of="local.alone")
    own_events = read_gauge("Events and items sent, whose decision was not read", of="local.own_events")
    local_uncommon = read_counter("Local decisions out of the ordinary", "what")

    # What becomes of requests.
    requests = counter("Requests for partition mutations", "api outcome")
    decision_wait_seconds = histogram("From sending a request event to its decision", WAIT_BUCKETS_S)
    late_decisions = counter("Decisions that came after the time limit")
    corrected_mutations = counter(
        "Partition mutations refunded or charged afterwards", "kind", "refunded charged"
    )
    shadow_decisions = counter("Decisions of shadow quotas, not acted on")
    subject_tokens = gauge("Balance after the last decision, mutations", "subject")
    subject_rate = gauge("Partition mutations per second, sampled", "subject")
    subject_throttle_ms = gauge("Throttle time of the last decision, ms", "subject")
    dropped_requests = counter(
        "Requests of departed clients that were not carried out",
        "reason", "strict departed upstream session stop memory",
    )  # fmt: skip
    throttled_frames = counter("Frames after which their connection waits, by whose limit", "by dimension")
    unacknowledged = counter(
        "Requests answered before Kafka had their events", name="weir_unacknowledged_answers"
    )

    # What goes to the job and comes from it.
    events = counter(
        "Events sent, dropped (buffer full) or failed", "result", "sent dropped failed too_large"
    )
    unreported_requests = counter("Dry runs and refusals beyond their rate")
    unusable_records = counter("Records of our own topics not used", "topic")
    same_name = counter("Signs of life of other processes with our name")

    # Connections.
    accepted_connections = counter("Client connections accepted")
    closed_connections = counter("Connections that the proxy ended", "reason", "memory")
    bad_frames = counter("Frames that the protocol does not allow", "reason", "internal")
    upstream_failures = counter("Failed broker connections", "reason", "timeout refused tls lost")
    tls_failures = counter("Clients whose TLS handshake failed, by reason", "reason")
    refused_connections = counter("Clients turned away before anything of theirs was read", "reason")
    loop_delay_seconds = histogram(
        "How late a timer of the event loop is, twenty times a second", DELAY_BUCKETS_S
    )

    # What attackers run into (docs/security.md), and who does not know better.
    refused_logins = counter(
        "Logins kept from the broker, since their user cannot be read or is another, or their password can",
        "reason", "mechanism name delegation_token plain_without_tls reauthentication",
    )  # fmt: skip
    failed_logins = counter(
        "Logins that the broker refused", "reason", "credentials token mechanism state reauthentication"
    )
    held_logins = counter("Logins that waited, since too many of their address had failed")
    forbidden_creations = counter("Topics that a Metadata request would have created")
    refused_topics = counter("Requests' mentions of topics or transactional ids of Weir's, refused", "api")
    refused_changes = counter("Changes of quotas, brokers, users and ACLs that were refused", "api")

    # What limits of dispatch do to Fetch requests.
    held_fetches = counter(
        "Fetch requests kept, since all of their topics had to wait", name="weir_dispatch_held_fetches"
    )
    cut_fetches = counter(
        "Fetch responses that lost records, since their limits were reached", name="weir_dispatch_cut_fetches"
    )
    redelivered = counter(
        "Messages of limited topics delivered to members of share groups that had been delivered before",
        name="weir_dispatch_redelivered_msgs",
    )
    ambiguous_fetches = counter(
        "Topics of Fetch requests that may be of several groups, one of them limited",
        name="weir_dispatch_ambiguous_fetches",
    )
    large_fetches = counter(
        "Fetch requests of too many partitions to be told apart: nothing counts them",
        name="weir_dispatch_large_fetches",
    )

    def __init__(self, subjects_max: int, registry: CollectorRegistry | None = None) -> None:
        self.traffic = Traffic()
        self.local = Local()
        super().__init__(registry)
        self.topics = TopicMetrics(self.registry, "proxy")
        self._subjects_max = subjects_max
        self._subjects: dict[str, None] = {}

    def read_samples(self) -> Iterator[Sample]:
        """See there."""
        yield from self.read_paths((), self)
        yield self.bytes, ["in"], self.traffic.bytes_in
        yield self.bytes, ["out"], self.traffic.bytes_out
        for what, count in asdict(self.local.counts).items():
            yield self.local_uncommon, [what], count

    def decided(self, subject: str, tokens: float | None, rate: float | None, throttle_time_ms: int) -> None:
        """Show a subject's balance after a decision."""
        gauges = self.subject_tokens, self.subject_rate, self.subject_throttle_ms
        self._subjects.pop(subject, None)
        if len(self._subjects) >= self._subjects_max:
            oldest = next(iter(self._subjects))
            del self._subjects[oldest]
            for shown in gauges:
                shown.remove(oldest)
        self._subjects[subject] = None
        for shown, value in zip(gauges, (tokens, rate, throttle_time_ms), strict=True):
            shown.labels(subject).set(float("nan") if value is None else value)
