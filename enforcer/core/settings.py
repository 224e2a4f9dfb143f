"""Every setting of the Kafka proxy (section `proxy:` of weir.yaml), declared once and frozen."""

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator

from enforcer.core.security.doors import GateSettings
from enforcer.core.security.tls import UpstreamTlsSettings
from streaming.contract.topics import bare_host
from streaming.policy.policy_set import Decide
from streaming.policy.settings import setting
from streaming.policy.validation import expected


class OnLate(StrEnum):
    """What a strict request gets when its decision does not come in time."""

    ALLOW = "allow"
    REJECT = "reject"


class AutoCreation(StrEnum):
    """What happens to `allow_auto_topic_creation` while a mutation quota applies to the client."""

    FORBID = "forbid"
    PASS = "pass"


class DelegationTokens(StrEnum):
    """What happens to logins by delegation token, whose owner a proxy does not see."""

    REFUSE = "refuse"
    BY_ID = "by_id"


class ExpiredShare(StrEnum):
    """What a proxy goes on with when its share of a group was not repeated within its life time."""

    KEEP = "keep"
    SAFE_FRACTION = "safe_fraction"
    OPEN = "open"
    CLOSED = "closed"


class AmbiguousFetch(StrEnum):
    """What becomes of a Fetch that may be of several consumer groups, while their offsets do not tell."""

    STRICTEST = "strictest"
    PASS = "pass"


class BacklogStale(StrEnum):
    """What becomes of a block of producers when what is known of the backlog is too old."""

    OPEN = "open"
    KEEP = "keep"


class Alter(StrEnum):
    """Who may make changes of some sort through the proxy."""

    DENY = "deny"
    ADMINS = "admins"
    ALLOW = "allow"


class ProxySettings(GateSettings):
    """Settings of one proxy process; units end the names."""

    id: str = setting(
        "", "name of this proxy in events, of no other one; empty: made from the host name and the port"
    )
    upstream_tls: UpstreamTlsSettings | None = setting(
        None, "TLS to Kafka's brokers; absent: plain text; {}: the system's CAs"
    )
    advertise: Annotated[str, AfterValidator(bare_host), expected("a host without a port")] = setting(
        "", "host that clients are told to connect to; empty: the listen host"
    )
    broker_port_base: int = setting(
        -1, "port of broker 0, others follow by id; -1: listen port + 1; 0: any free ports", minimum=-1
    )
    decide: Decide = setting(
        Decide.LOCAL,
        "where requests are decided whose quota does not say it: local, at once, by what is known of the"
        " subject, or strict: the job is asked, and the request waits",
    )
    decision_timeout_ms: int = setting(2_000, "how long a request waits for its decision, ms", minimum=1)
    on_late_decision: OnLate = setting(
        OnLate.ALLOW,
        "a strict request whose decision is late: allow (charged when decided) or reject (error 89)",
    )
    auto_topic_creation: AutoCreation = setting(
        AutoCreation.FORBID,
        "Metadata requests of clients with a mutation quota: forbid or pass auto-creation of topics",
    )
    oauth_claim: str = setting("sub", "claim of an OAUTHBEARER token that names the user, as on the brokers")
    delegation_tokens: DelegationTokens = setting(
        DelegationTokens.REFUSE,
        "logins by delegation token: refuse (error 58), or by_id: they pass, each token a user of its own",
    )
    sasl_plain_without_tls: bool = setting(
        False, "let clients without TLS log in by PLAIN, their passwords readable on the network"
    )
    failed_login_delay_ms: int = setting(
        200,
        "a failed login is answered no sooner than so long after it came, ms; to be above the brokers'"
        " connection.failed.authentication.delay.ms, so that all take the same time",
        minimum=0,
        maximum=10_000,
    )
    failed_logins_per_minute: int = setting(
        60,
        "failed logins of one address (IPv6: of one /64); beyond it its logins wait for their turn at this"
        " rate, and connections that would wait over 10 s end; 0: no bound",
        minimum=0,
    )
    protect_topics: bool = setting(
        True, "refuse and hide topics and transactional ids under kafka.topic_prefix, in every API"
    )
    alter_client_quotas: Alter = setting(
        Alter.DENY,
        "changes of the cluster's client quotas through the proxy: deny (error 31), admins or allow;"
        " collect.quotas_from_kafka would take them over",
    )
    alter_cluster: Alter = setting(
        Alter.DENY,
        "the same for settings of brokers, users (SCRAM), and ACLs of Weir's topics: deny, admins or allow",
    )
    admins: list[str] = setting([], "principals that `admins` stands for, such as [alice]")
    max_frame_bytes: int = setting(
        104_857_600, "largest request or response, bytes; a larger one ends its connection", minimum=1_024
    )
    max_items: int = setting(
        2_000,
        "topics of one request that creates, grows or deletes them; with more it is refused (error 44)",
        minimum=1,
    )
    memory_mb: int = setting(
        512,
        "memory of the process, MiB; connections may hold half of it, then the greediest is ended",
        minimum=64,
    )
    stop_timeout_ms: int = setting(5_000, "limit for answering what is under way at a stop, ms", minimum=0)
    connections_max: int = setting(10_000, "client connections; further ones are closed at once", minimum=1)
    subjects_max: int = setting(
        10_000,
        "subjects that are known; as many groups are metered, and as many quota subjects; a tenth of it has"
        " metrics of its own, and five times as many brokers, topics and subscriptions are counted under"
        " dispatch rates: while all are in use, further ones are not limited",
        minimum=1,
    )
    dry_run_factor: float = setting(
        1_000,
        "topics in dry runs (validate_only): so many times the quota's rate and burst; beyond it error 89",
        minimum=0.001,
    )
    namespace_pattern: str = setting(
        "tenant.namespace.topic",
        "how topic names are made up; a topic with another name belongs to no namespace and no group",
    )
    expired_share: ExpiredShare = setting(
        ExpiredShare.SAFE_FRACTION,
        "after a share's life time: keep it, safe_fraction of it, open (no limit) or closed (nothing passes)",
    )
    safe_fraction: float = setting(
        0.5, "part of the last share used with safe_fraction", minimum=0, maximum=1
    )
    debt_max_s: int = setting(
        60,
        "debt of a group or byte rate that is waited off, as so many s of its limit; more is forgiven",
        minimum=1,
    )
    ambiguous_fetch: AmbiguousFetch = setting(
        AmbiguousFetch.STRICTEST,
        "a Fetch that may be of several groups, until their offsets tell: it counts for each that has a limit"
        " and waits for the strictest, or pass: for none",
    )
    dispatch_hold_ms: int = setting(
        1_000,
        "a Fetch whose topics must all wait is kept at most so long, then answered without records, ms; to be"
        " well below the clients' request.timeout.ms",
        minimum=0,
        maximum=10_000,
    )
    inflight_wait_ms: int = setting(
        10_000, "how long a request waits for a slot before it fails, ms", minimum=1
    )
    backlog_hold_ms: int = setting(
        25_000,
        "a Produce is held at most so long by producer_request_hold, then it fails (error 7), ms; to be below"
        " the clients' request.timeout.ms, whose timeout in the request counts too",
        minimum=0,
    )
    backlog_stale: BacklogStale = setting(
        BacklogStale.OPEN,
        "producers that were blocked by a decision that is too old by now: open (they go on) or keep",
    )
    start_timeout_ms: int = setting(
        10_000,
        "how long to wait for the policies at the start, before clients are let in, ms; a Kafka proxy waits a"
        " minute more, unless this is 0",
        minimum=0,
    )

    @property
    def metric_subjects(self) -> int:
        """Subjects with metrics of their own."""
        return max(1, self.subjects_max // 10)

    @property
    def dispatch_rows(self) -> int:
        """Brokers, topics and subscriptions whose deliveries are counted: at least one of each."""
        return 5 * self.subjects_max
