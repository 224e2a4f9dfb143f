"""The law of adaptive concurrency as the rest of the program, and people, know it."""

from collections.abc import Mapping
from typing import Any, Final

from streaming.contract.broker_events import Latency, latency
from streaming.laws.concurrency.samples import SampleIntake
from streaming.laws.concurrency.table import DECISION, ConcurrencyTable
from streaming.laws.law import LawSpec, Said, WarmUp
from streaming.policy.policy_set import Section

_SAMPLE: Final[dict[str, Any]] = {"type": "latency", "partition": "p", "rtt_ns": 1, "inflight": 1}


def line(decision: Mapping[str, Any]) -> Said:
    """The limit and the algorithm that found it."""
    exact = decision["estimated_limit"]
    reasons = [str(decision["algorithm"])]
    if exact != decision["limit"]:
        reasons.append(f"estimate {exact:.2f}")
    return "limit", f"{decision['limit']} in flight", reasons


def total(totals: dict[str, Any], decision: Mapping[str, Any]) -> None:
    """Least, greatest and last limit."""
    limit = decision["limit"]
    totals["least_limit"] = min(totals.get("least_limit", limit), limit)
    totals["greatest_limit"] = max(totals.get("greatest_limit", limit), limit)
    totals["last_limit"] = limit


SPEC: Final = LawSpec(
    name="concurrency",
    number=3,
    table=ConcurrencyTable,
    intake=SampleIntake,
    readers={"latency": latency},
    events=(Latency,),
    routing_key=lambda event, timeline: str(event.partition),
    key_column="partition",
    sections=frozenset({Section.PARTITIONS, Section.MODE}),
    decision=DECISION,
    warm_up=WarmUp(
        policies={"backpressure.partitions.*": {"algorithm": "aimd"}},
        batches=[[_SAMPLE], [_SAMPLE, _SAMPLE | {"partition": "q"}]],
    ),
    line=line,
    total=total,
)
