"""Local decisions asked step by step, in ms after T0."""

from typing import Any

from law_kit import quota
from mutation_kit import SUBJECT, own, quota_of, statement

from enforcer.laws.mutation.local_decisions import LocalDecisions
from enforcer.laws.mutation.request import Answer
from streaming.policy.timeline import PolicyTimeline

T0 = 1_795_166_700_000
INITIAL = {"quotas[user=<default>]": quota(2, 22)}


def ask(
    local: LocalDecisions, name: str, at_ms: int, *counts: int, strict: bool = True, dry: bool = False,
    subject: str = SUBJECT,
) -> Answer | None:  # fmt: skip
    """A request `at_ms` after T0, one item a number of mutations."""
    items = {f"t{number}": count for number, count in enumerate(counts)}
    asked = own(name, T0 + at_ms, items, strict=strict, dry=dry)
    return local.decide(quota_of(PolicyTimeline(INITIAL), T0, subject), *asked)


def told(answer: Answer | None) -> tuple[Any, ...]:
    """What a client is told."""
    assert answer is not None
    return answer.outcome, answer.rejected, answer.throttle_time_ms, answer.tokens


def state(local: LocalDecisions, name: str, at_ms: int, tokens: float | None, *refunds: str) -> None:
    """Read an admission."""
    local.stated(statement(SUBJECT, name, T0 + at_ms, tokens, refunds))
