"""What a request says that was decided where it was asked (docs/contract.md 3.1, "Where it is decided")."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streaming.contract.errors import BadEvent
from streaming.contract.fields import Fields, choice, flag, integer, number, shown
from streaming.contract.fields import names as listed_names

OUTCOMES = ("allow", "reject", "throttle")
_LEAST = -1.7976931348623157e308


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAnswer:
    """What the client was told.

    Attributes:
        outcome: one of OUTCOMES.
        rejected: of each item of the request, whether it was rejected.
        throttle_time_ms: 0 with allow.
    """

    outcome: str
    rejected: tuple[bool, ...]
    throttle_time_ms: int


def decided_of(fields: Fields, names: Sequence[str]) -> ClientAnswer | None:
    """Read `decided` of a request; None: it says nothing of the kind.

    It must fit its request: the job charges what it says, and nobody could have been told what no law says.

    Args:
        fields: of the request.
        names: of its items, in order.

    Raises:
        BadEvent: with the reason for the dead letter.
    """
    if "decided" not in fields:
        return None
    said = fields["decided"]
    if type(said) is not dict:
        raise BadEvent(f"decided: {shown(said)}; an object was expected")
    try:
        outcome = choice(said, "outcome", "", OUTCOMES)
        wait_ms = integer(said, "throttle_time_ms", None)
        # For readers of the log: the job has its own balance.
        number(said, "tokens", 0.0, minimum=_LEAST)
        rejected = _rejected(said, names)
    except BadEvent as error:
        raise BadEvent(f"decided.{error.reason}") from error
    _check_fit(fields, outcome, wait_ms, rejected)
    return ClientAnswer(outcome=outcome, rejected=rejected, throttle_time_ms=wait_ms)


def _rejected(said: dict[str, Any], names: Sequence[str]) -> tuple[bool, ...]:
    """Which items were rejected. Of several with one name those that stand last: what passes comes first."""
    listed = listed_names(said, "rejected")
    left = Counter[str](listed)
    gone: list[bool] = []
    for name in reversed(names):
        gone.append(left[name] > 0)
        left[name] -= gone[-1]
    strange = [name for name in listed if left[name] > 0]
    if strange:
        raise BadEvent(f"rejected: {shown(strange[0])}; names of the request's items were expected")
    return tuple(reversed(gone))


def _check_fit(fields: Fields, outcome: str, wait_ms: int, rejected: Sequence[bool]) -> None:
    strict, dry = flag(fields, "strict", True), flag(fields, "validate_only", False)
    if "answered" in fields or flag(fields, "late", False):
        raise BadEvent("decided: beside answered or late; what was decided at once is neither")
    if outcome == "throttle" if strict else outcome == "reject":
        expected = "allow or reject" if strict else "allow or throttle"
        raise BadEvent(f"decided.outcome: {outcome}; {expected} was expected of this request (strict)")
    if any(rejected) != (outcome == "reject"):
        raise BadEvent(
            f"decided.rejected: {sum(rejected)} names beside the outcome {outcome}; names exactly with reject"
            " were expected"
        )
    if dry and any(rejected) and not all(rejected):
        raise BadEvent("decided.rejected: some items of a dry run; all or none were expected")
    if (wait_ms > 0) != (outcome != "allow"):
        raise BadEvent(
            f"decided.throttle_time_ms: {wait_ms} beside the outcome {outcome}; 0 exactly with allow was"
            " expected"
        )
