"""What clients want, what policies allow them, and how far that may be exceeded (docs/laws.md)."""

from collections.abc import Iterator, Sequence

from soak_clients import SIZE, Client, Holder, Laggard, Maker, Reader, Sender
from soak_history import Recorder
from soak_kafka import BROKERS
from soak_pulsar_clients import PulsarReader, PulsarSender
from soak_rig import AHEAD_MS, CHANGED, Rig
from soak_schedule import LIMITING, PROXIES
from stack_kit import new_topics

CUT_OFF_S = 15.0
"""A proxy that is cut off admits nothing after so long (docs/laws.md): L of the bounds."""
RATES = {"hurry": 0.5, "strict": 0.2, "changed": max(each["controller_mutation_rate"] for each in CHANGED)}
BURST_TIMES = 11
BYTES_S, DISPATCH_S = 9_000.0, 2
"""The second is less than half of what producers get through."""
JOINING, HEARD_S = 0.05, 2.0
"""What proxies without a share have of a limit; when all have heard of their shares, while all is well."""
WANTED_S = 20.0
NAMESPACE, KEPT, PULSAR_NAMESPACE = "acme/soak", "acme/kept", "acme/pulsar"
PULSAR_TOPIC = f"persistent://{PULSAR_NAMESPACE}/t"
PULSAR_BYTES_S, PULSAR_WANTED_S = 2_000.0, 10.0
"""Few, and more of these than of those: a Pulsar beside all else takes enough of a small machine."""
SLOTS, HOLDERS, HOLD_MS = 4, 5, 150
"""Requests in flight at a broker; what so many clients at each proxy want, who have it for so long."""
EXEMPT = ("heartbeat", "group", "sasl", "api_versions", "metadata", "admin")
"""All but what carries records, and Fetch."""
EMPTY = "soak-slots"
"""A topic of which all wait for records that never come."""
QUOTAS = {"hold": "producer_request_hold", "refuse": "producer_exception"}
KEPT_BYTES, KEPT_S, LAG_S = 40_000, 3.0, 150.0
"""A backlog's quota; records a second that each producer wants; how long the consumer stands still."""
CHECK_S = 15
NOTICED_S = 2.0 * CHECK_S
"""From one check to the next, and what reading, deciding and acting take."""


def topic(name: str, namespace: str = NAMESPACE) -> str:
    """Of the records that come by a proxy, or have a quota, in Kafka's form of the namespace."""
    return f"{namespace.replace('/', '.')}.{name}"


TOPICS = (*map(topic, PROXIES), *(topic(name, KEPT) for name in QUOTAS))
"""All that hold records."""


def limits(rig: Rig, told: Recorder) -> None:
    """Topics, policies, and what they may come to at most."""
    new_topics(rig.kafka.bootstrap, *TOPICS, EMPTY, replicas=BROKERS)
    precise = {"backlogQuotaCheckIntervalInSeconds": CHECK_S, "preciseBacklogSize": True}
    rig.policies.put("broker", {"resourceUsagePublishIntervalInSecs": 1, **precise})
    mutations(rig, told)
    rig.pulsar.make(PULSAR_TOPIC)
    records(rig, told, "soak", PROXIES)
    records(rig, told, "pulsar", ("pulsar-proxy",))
    fixed = {"algorithm": "fixed", "fixed": {"limit": SLOTS}, "exempt": list(EXEMPT)}
    rig.policies.put("backpressure.partitions.*", fixed)
    for broker in range(1, BROKERS + 1):
        told.note(
            "limit", law="concurrency", subject=f"broker-{broker}", rate=0, burst=SLOTS, bound=len(PROXIES)
        )
    for name, policy in QUOTAS.items():
        size = {"limitSize": KEPT_BYTES, "policy": policy, "actions": True}
        kept = topic(name, KEPT)
        own = {"backlogQuotaMap": {"destination_storage": size}}
        rig.policies.put(f"topics.persistent://{KEPT}/{name}", own)
        told.note("quota", topic=kept, group=f"lag-{name}", policy=name, bytes=KEPT_BYTES, bound_s=NOTICED_S)


def mutations(rig: Rig, told: Recorder) -> None:
    """Quotas of partition mutations."""
    # All that live have their part, whatever stands behind them.
    proxies = len(LIMITING)
    for name, rate in RATES.items():
        where = {"decide": "strict"} if name == "strict" else {}
        rig.policies.put(
            f"quotas[user=ANONYMOUS,client-id={name}]", {"controller_mutation_rate": rate, **where}
        )
        burst = BURST_TIMES * rate
        # What lets it through a second time is a clock that is ahead.
        skewed = rate * max(AHEAD_MS.values()) / 1000
        local = proxies + 1 + (proxies - 1) / proxies * (burst + rate * CUT_OFF_S) + rate * CUT_OFF_S + skewed
        told.note(
            "limit", law="mutation", subject=f"user=ANONYMOUS,client-id={name}", rate=rate, burst=burst,
            bound=1 + rate * CUT_OFF_S + skewed if where else local,
        )  # fmt: skip


def records(rig: Rig, told: Recorder, group: str, proxies: Sequence[str]) -> None:
    """A group of producers, and what each of their consumers may be sent, at these proxies."""
    bytes_s, namespace = (BYTES_S, NAMESPACE) if group == "soak" else (PULSAR_BYTES_S, PULSAR_NAMESPACE)
    topics = [topic(name) for name in proxies] if group == "soak" else [PULSAR_TOPIC]
    rig.policies.put(f"resourcegroups.{group}", {"publishRateInBytes": bytes_s})
    dispatch = {"dispatchThrottlingRateInMsg": DISPATCH_S}
    own = {"resourcegroup": group, "subscriptionDispatchRate": dispatch}
    rig.policies.put(f"namespaces.{namespace}", own)
    told.note(
        "limit", law="shares", subject=group, rate=bytes_s, burst=bytes_s / 2,
        bound=len(proxies) * (10 * SIZE + JOINING * bytes_s * 2) + bytes_s * HEARD_S, topics=topics,
    )  # fmt: skip
    for name in proxies:
        told.note(
            "limit", law="dispatch", subject=f"read-{name}", rate=DISPATCH_S, burst=DISPATCH_S,
            bound=len(proxies) * 10 + DISPATCH_S * CUT_OFF_S,
        )  # fmt: skip


def clients(rig: Rig, told: Recorder) -> Iterator[Client]:
    """Of all laws, at both proxies."""
    for name, at in rig.reached.items():
        yield Maker(told, f"hurry-{name}", "hurry", at, 0.3)
        yield Maker(told, f"strict-{name}", "strict", at, 2.0)
        yield Maker(told, f"changed-{name}", "changed", at, 0.7)
        yield Sender(told, f"send-{name}", at, topic(name), WANTED_S)
        yield Reader(told, f"read-{name}", at, topic(name))
        for number in range(HOLDERS):
            yield Holder(told, f"held{number}-{name}", at, EMPTY, HOLD_MS)
        for kept in QUOTAS:
            # When nobody reads any more they may be held for good.
            yield Sender(told, f"{kept}-{name}", at, topic(kept, KEPT), KEPT_S, 0.0)
    yield PulsarSender(told, "send-pulsar-proxy", rig.pulsar_at, PULSAR_TOPIC, PULSAR_WANTED_S)
    yield PulsarReader(told, "read-pulsar-proxy", rig.pulsar_at, PULSAR_TOPIC)
    for kept, at in zip(QUOTAS, rig.reached.values(), strict=True):
        yield Laggard(told, f"lag-{kept}", at, topic(kept, KEPT), LAG_S)
