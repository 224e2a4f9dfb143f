"""The law of adaptive concurrency as the rest of the program knows it."""

from typing import Any, Final

from streaming.contract.broker_events import Latencies, Latency, latency
from streaming.laws.concurrency import show
from streaming.laws.concurrency.samples import SampleIntake
from streaming.laws.concurrency.table import DECISION, ConcurrencyTable
from streaming.laws.law import LawSpec, WarmUp
from streaming.policy.policy_set import Section
from streaming.policy.timeline import PolicyTimeline

_SAMPLE: Final[dict[str, Any]] = {"type": "latency", "partition": "p", "rtt_ns": 1, "inflight": 1}


def routing_key(event: Latency | Latencies, timeline: PolicyTimeline | None) -> str:
    """The partition that it is about."""
    return event.partition


SPEC: Final = LawSpec(
    name="concurrency",
    number=3,
    table=ConcurrencyTable,
    intake=SampleIntake,
    readers={"latency": latency},
    events=(Latency, Latencies),
    ticked=True,
    routing_key=routing_key,
    key_column="partition",
    sections=frozenset({Section.PARTITIONS}),
    decision=DECISION,
    warm_up=WarmUp(
        policies={"backpressure.partitions.*": {"algorithm": "aimd"}},
        batches=[[_SAMPLE], [_SAMPLE, _SAMPLE | {"partition": "q"}]],
    ),
    line=show.line,
    total=show.total,
)
