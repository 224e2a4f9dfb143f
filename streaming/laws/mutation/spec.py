"""The law of partition mutations as the rest of the program, and people, know it."""

from collections.abc import Mapping
from typing import Any, Final

from streaming.columns.json_lines.arrow import LINES_MIN
from streaming.contract.events import REQUEST_READERS, Refund, Request
from streaming.laws.law import LawSpec, Said, WarmUp, count_up, few, keep_longest_throttle
from streaming.laws.mutation.intake import RequestIntake
from streaming.laws.mutation.table import FORM, MutationTable
from streaming.policy.policy_set import PolicySet, Section
from streaming.policy.timeline import PolicyTimeline

_COUNTED: Final = {"allow": "allowed", "throttle": "throttled", "reject": "rejected"}
_REQUEST: Final[dict[str, Any]] = {
    "type": "request", "subject": "user=u", "items": [{"name": "t", "mutations": 1}],
}  # fmt: skip
_SAMPLED: Final = {"controller_mutation_rate": 2, "algorithm": "sampled_rate"}
# A change between two requests, and time enough after them for the idle to leave; and what is read in bulk.
_WARM_UP: Final = WarmUp(
    policies={"quotas[user=u]": {"controller_mutation_rate": 1}},
    batches=[[
        _REQUEST | {"ts": 0},
        {"type": "policy", "ts": 1, "path": "quotas[user=u]", "value": {"controller_mutation_rate": 2}},
        {"type": "policy", "ts": 3, "path": "quotas[user=w]", "value": _SAMPLED},
        _REQUEST | {"ts": 4, "subject": "user=w"},
        _REQUEST | {"ts": 2},
        {"type": "request", "ts": 5, "items": []},
        _REQUEST | {"ts": 1_000_000, "subject": "user=v"},
    ], [_REQUEST | {"ts": 0}, _REQUEST | {"ts": 1_000_000}], [_REQUEST | {"ts": 0}] * LINES_MIN],
)  # fmt: skip


def routing_key(event: Request | Refund, timeline: PolicyTimeline | None) -> str:
    """The quota entity that applies; without one the user, so that such requests spread out.

    Args:
        event: what is asked or given back.
        timeline: resolves the entity at the event's time, whatever the event says; None: it is trusted.
    """
    if timeline is None:
        return event.subject or f"user={event.user}"
    quota = timeline.at(event.at).mutation_quota(event.user, event.client_id)
    return f"user={event.user}" if quota is None else quota.subject


def stamp(event: Request | Refund, policies: PolicySet) -> str | None:
    """The quota entity that these policies charge, empty if none; None: the event names one."""
    if event.subject is not None:
        return None
    quota = policies.mutation_quota(event.user, event.client_id)
    return "" if quota is None else quota.subject


def line(decision: Mapping[str, Any]) -> Said:
    """The outcome, what is left, and the wait or what was rejected."""
    reasons = []
    if decision.get("throttle_time_ms"):
        reasons.append(f"wait {decision['throttle_time_ms']} ms")
    if decision.get("rejected"):
        reasons.append("rejected " + ",".join(few([str(name) for name in decision["rejected"]])))
    return str(decision["outcome"]), _balance(decision), reasons


def _balance(decision: Mapping[str, Any]) -> str:
    limit = decision.get("limit")
    if limit is None:
        return ""
    if "tokens" in decision:
        return f"tokens {decision['tokens']:>8.1f} at {limit:g}/s"
    return f"rate {decision['rate']:>10.2f} of {limit:g}/s"


def total(totals: dict[str, Any], decision: Mapping[str, Any]) -> None:
    """Events by outcome, `mutations` admitted and charged (a dry run counts as an event with 0 of them),
    the longest throttle.
    """
    outcomes = {name: int(decision["outcome"] == outcome) for outcome, name in _COUNTED.items()}
    count_up(totals, **outcomes, mutations=decision["mutations"])
    keep_longest_throttle(totals, decision)


SPEC: Final = LawSpec(
    name="mutation",
    number=0,
    table=MutationTable,
    intake=RequestIntake,
    readers=REQUEST_READERS,
    events=(Request, Refund),
    on_requests=True,
    routing_key=routing_key,
    key_column="subject",
    stamp=stamp,
    sections=frozenset({Section.QUOTAS, Section.MODE}),
    versioned=True,
    decision=FORM,
    warm_up=_WARM_UP,
    line=line,
    total=total,
)
