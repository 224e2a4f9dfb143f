"""What to do with a request for partition mutations, and what to say of it: tables and pure functions."""

from collections.abc import Collection
from enum import Enum, auto
from math import ceil
from typing import Final, NamedTuple

from enforcer.laws.mutation.request import Decision
from streaming.policy.policy_set import MutationQuota as MutationQuota  # enforcers need no more of policies


class Action(Enum):
    """What can happen to a request."""

    FORWARD = auto()
    """Pass at once; the event is reported, nobody waits for its decision."""
    ASK = auto()
    """Send the event and wait for the decision: strict before forwarding, permissive before answering."""
    DECIDE = auto()
    """Decide it here, at once; its event goes out beside it."""
    REFUSE = auto()
    """Reject it at once; reported as answered by the not-before time."""
    HOLD = auto()
    """Keep it at the head of its connection until the not-before time has passed."""


class Verdict(NamedTuple):
    """What to do, and how long the subject must still wait: of REFUSE and HOLD at least 1 ms.

    Attributes:
        dry: that is not for its balance, but for its dry runs.
    """

    action: Action
    wait_ms: int = 0
    dry: bool = False

    @property
    def asks(self) -> bool:
        """Whether the job may be asked."""
        return self.action in _ASKS


_ASKS: Final = frozenset({Action.ASK, Action.DECIDE})
# Most requests get one of these, which need not be made anew.
_FORWARD: Final = Verdict(action=Action.FORWARD)
_ASK: Final = Verdict(action=Action.ASK)
_DECIDE: Final = Verdict(action=Action.DECIDE)


def judge(
    quota: MutationQuota | None,
    not_before_ms: float | None,
    now_ms: float,
    *,
    strict: bool,
    local: bool = False,
    probing: bool = False,
) -> Verdict:
    """Decide what happens to a request.

    Args:
        quota: the quota in force for its subject, None if there is none.
        not_before_ms: when the subject may ask again, as the ledger knows it, on the clock of `now_ms`.
        now_ms: now, on any steady clock.
        strict: its client understands a rejection; of others only the answer can be delayed (permissive).
        local: its quota is decided here.
        probing: it is the one request let through in a long mute, so that the client does not give up.
    """
    # A shadow quota is decided and charged, but nobody acts on it (docs/contract.md 1).
    if quota is None or quota.shadow:
        return _FORWARD
    if not_before_ms is None or not_before_ms <= now_ms:
        return _DECIDE if local else _ASK
    wait_ms = ceil(not_before_ms - now_ms)  # at least 1, since the difference is greater than 0
    if strict:
        # Decided here, each refusal is one of the law.
        return Verdict(Action.DECIDE if local else Action.REFUSE, wait_ms)
    if probing:
        return _DECIDE if local else _ASK
    # A permissive client knows no refusal: in a mute it is charged once more, elsewhere it waits.
    return Verdict(Action.HOLD, wait_ms)


def remaining_ms(decision: Decision, sent_ms: float | None, now_ms: float, brokers_ms: int) -> float:
    """How much of a decision's throttle time is left.

    The event's time is a broker's; where that clock and ours disagree, what has surely passed here is the
    least, and nothing the most, that can be taken off.

    Args:
        decision: it.
        sent_ms: when we sent the event, on the clock of `now_ms`; None if another proxy did.
        now_ms: now, on any steady clock.
        brokers_ms: the same on the brokers' clock, by which decisions are dated.
    """
    throttle_ms = float(decision.throttle_time_ms)
    by_brokers_ms = decision.ts + throttle_ms - brokers_ms
    if sent_ms is None:
        return max(0.0, min(throttle_ms, by_brokers_ms))
    return max(0.0, throttle_ms - (now_ms - sent_ms), min(throttle_ms, by_brokers_ms))


def explain(
    quota: MutationQuota | None, decision: Decision | None, wait_ms: float, event_id: str = ""
) -> str:
    """What a client is told of a rejection: which quota, how fast, where the balance is, when to retry, and
    which command tells more; an `event_id` that is empty stands in no log.
    """
    retry = f"retry after {ceil(wait_ms)} ms." + (f" Why: weir explain --id {event_id}" if event_id else "")
    if quota is None:
        return f"The quota on partition mutations is exceeded; {retry}"
    parts = [
        f"The quota on partition mutations of {quota.subject} ({quota.path}) is exceeded:",
        f"{quota.rate:g} per second, burst {quota.burst:g};",
    ]
    if decision is not None and decision.tokens is not None:
        parts.append(f"balance {decision.tokens:.1f};")
    elif decision is not None and decision.rate is not None:
        parts.append(f"present rate {decision.rate:.2f} per second;")
    return " ".join((*parts, retry))


def explain_dry(quota: MutationQuota, factor: float, wait_ms: int) -> str:
    """What a client is told whose dry run is one too many."""
    return (
        f"Dry runs of {quota.subject} are beyond {factor:g} times its quota on partition mutations;"
        f" retry after {wait_ms} ms."
    )


class Stage(Enum):
    """What a request has come to; it goes no step back, and is settled once."""

    COUNTING = auto()
    """What it would change is being looked up."""
    ASKED = auto()
    """Its decision is waited for."""
    SETTLED = auto()
    """It is known what it is told."""
    GONE = auto()
    """Nobody hears its answer."""


class Progress(Enum):
    """How far the cluster has carried it out."""

    NOTHING = auto()
    SENT = auto()
    ALL = auto()


class Reply(NamedTuple):
    """What its client is told beside what the cluster says.

    Attributes:
        rejected: items that were not carried out.
        left_ms: when it may be worth another try; 0: nothing is in the way.
        message: why, if there is a reason to wait.
    """

    rejected: Collection[str]
    left_ms: int
    message: str
