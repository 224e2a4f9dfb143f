"""A request for partition mutations: its decision, what to do with it and to say, and what became of it.

Forms, tables and pure functions (docs/contract.md 3.1).
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from math import ceil
from typing import Any, Final, NamedTuple

from cachetools import TTLCache

from enforcer.core import bounds
from streaming.contract.decisions import Admission
from streaming.contract.names import encode_name
from streaming.policy.policy_set import MutationQuota as MutationQuota  # enforcers need no more of policies

PROBE_API: Final = "Probe"
Decision = Admission
"""In this room there is no other."""
Aliases = Mapping[str, tuple[str, ...]]
"""Name as it was sent -> the names that it stands for; empty if all were sent as they are."""


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """One request, whatever protocol it came by.

    Attributes:
        user: principal.
        client_id: what the client calls itself.
        api: name of the API; "": none, it charges something afterwards.
        api_version: its version.
        strict: it can be rejected.
        dry_run: validate_only: never charged.
        items: name -> mutations asked for, in the request's order.
        id: of its event.
        subject: quota entity it is charged to; empty if none.
        shadow: decided under a shadow quota: its decision was not acted on.
        on_late_reject: the job does not charge it when it decides late.
        local: its quota is decided here; it may have been asked about all the same.
        sent_ms: when its event was sent, steady clock.
        sent: its items as its event names them.
        aliases: names in the event that stand for others.
        told: called once with its decision, or with None if Kafka will never take its event; None when
            nobody waits (any more).
        decision: the decision, once it has come.
        executed: name -> mutations that the cluster carried out, once known.
        settled: the balance was corrected, if it had to be.
    """

    user: str
    client_id: str
    api: str
    api_version: int
    strict: bool
    dry_run: bool = False
    items: Mapping[str, int] = field(default_factory=dict)
    id: str = ""
    subject: str = ""
    shadow: bool = False
    on_late_reject: bool = False
    local: bool = False
    sent_ms: float = 0.0
    sent: Mapping[str, int] = field(default_factory=dict)
    aliases: Aliases = field(default_factory=dict)
    told: Callable[[Decision | None], None] | None = None
    decision: Decision | None = None
    executed: Mapping[str, int] | None = None
    settled: bool = False

    @property
    def home(self) -> str:
        """The routing key of its events."""
        return self.subject or f"user={encode_name(self.user)}"

    @property
    def charged(self) -> Mapping[str, int]:
        """What the law charged for it; all of it, if it was not decided."""
        decision = self.decision
        if self.dry_run:
            return {}
        if not self.strict or decision is None:
            return self.items
        if decision.late:
            # The job knows our deadline: with `allow` it charges all, with `reject` nothing.
            return {} if self.on_late_reject else self.items
        return {name: count for name, count in self.items.items() if name not in decision.rejected}

    def as_done(self, items: Mapping[str, int]) -> "Request":
        """What charges its client for so much that was carried out, whatever the balance is."""
        return Request(
            user=self.user, client_id=self.client_id, api=self.api, api_version=self.api_version,
            strict=False, items=items,
        )  # fmt: skip

    def corrections(self) -> tuple[dict[str, int], dict[str, int]]:
        """Compare what was charged with what the cluster carried out; both must be known.

        Covers items that the cluster refused, default partition counts guessed wrong, and requests answered
        without their decision.

        Returns:
            Name -> mutations that were charged and not carried out, and the other way round.
        """
        refund: dict[str, int] = {}
        charge: dict[str, int] = {}
        if self.decision is None or self.executed is None or self.dry_run:
            return refund, charge
        charged = self.charged
        for name in self.items:
            excess = charged.get(name, 0) - self.executed.get(name, 0)
            if excess > 0:
                refund[name] = excess
            # In shadow a rejected item was carried out all the same; enforced it would not have been.
            elif excess < 0 and not (self.shadow and name not in charged):
                charge[name] = -excess
        return refund, charge


class Answer(NamedTuple):
    """What a client is told at once.

    Attributes:
        outcome: allow, reject or throttle.
        rejected: names of the items that were rejected, in order.
        throttle_time_ms: how long its subject must wait.
        tokens: balance afterwards.
        ts: time that the event must carry, ms.
    """

    outcome: str
    rejected: tuple[str, ...]
    throttle_time_ms: int
    tokens: float
    ts: int

    def decided(self) -> dict[str, Any]:
        """The field `decided` of the event."""
        return {
            "outcome": self.outcome,
            "rejected": list(self.rejected),
            "throttle_time_ms": self.throttle_time_ms,
            "tokens": self.tokens,
        }


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


class NotBefore:
    """Until when subjects must wait, and what that means for their requests.

    Args:
        subjects_max: bound on them; who waits longest already leaves.
        steady_ms: the clock of all their times.
    """

    def __init__(self, subjects_max: int, steady_ms: Callable[[], float]) -> None:
        self._subjects_max, self._steady_ms = subjects_max, steady_ms
        # The oldest leave when it is full; a plain dict would step over all that left before it.
        self._waits: OrderedDict[str, tuple[float, MutationQuota | None]] = OrderedDict()
        self._probed: TTLCache[str, None] = TTLCache(subjects_max, bounds.MUTE_SPLIT_MS, steady_ms)

    def __len__(self) -> int:
        return len(self._waits)

    def __contains__(self, subject: str) -> bool:
        """Whether a subject has a not-before time, passed or not."""
        return subject in self._waits

    def judge(self, quota: MutationQuota | None, *, strict: bool, local: bool, probing: bool) -> Verdict:
        """Decide what happens to a request.

        Args:
            quota: the quota in force for its subject, None if there is none.
            strict: its client understands a rejection; of others only the answer can be delayed (permissive).
            local: its quota is decided here.
            probing: it is the one request let through in a long mute, so that the client does not give up.
        """
        # A shadow quota is decided and charged, but nobody acts on it (docs/contract.md 1).
        if quota is None or quota.shadow:
            return _FORWARD
        asks, until_ms, now_ms = _DECIDE if local else _ASK, None, 0.0
        # Few subjects must wait; for the others the time does not matter, and asking for it does.
        if quota.subject in self._waits:
            now_ms = self._steady_ms()
            until_ms = self.until_ms(quota.subject, quota, now_ms)
        if until_ms is None:
            return asks
        wait_ms = ceil(until_ms - now_ms)  # at least 1, since the difference is greater than 0
        if strict:
            # Decided here, each refusal is one of the law. It must not take the turn of an old client.
            return Verdict(Action.DECIDE if local else Action.REFUSE, wait_ms)
        # A permissive client knows no refusal: in a mute it is charged once more, elsewhere it waits. One for
        # all its connections: a hundred muted ones would be a way to go on.
        if probing and quota.subject not in self._probed:
            self._probed[quota.subject] = None
            return asks
        return Verdict(Action.HOLD, wait_ms)

    def postpone(self, subject: str, until_ms: float, quota: MutationQuota | None) -> None:
        """Note that a subject must wait; the newest decision counts, even if it is the shorter one.

        Args:
            quota: the quota under which that was decided: under another one it says nothing.
        """
        self._waits.pop(subject, None)
        if len(self._waits) >= self._subjects_max:
            self._waits.popitem(last=False)
        self._waits[subject] = until_ms, quota

    def until_ms(self, subject: str, quota: MutationQuota | None, now_ms: float) -> float | None:
        """Until when a subject must wait; None if it need not. A changed quota drops the wait."""
        wait = self._waits.get(subject)
        if wait is None:
            return None
        # Most times it is the very same object; comparing every field costs more than the rest.
        if wait[0] <= now_ms or (wait[1] is not quota and wait[1] != quota):
            del self._waits[subject]
            return None
        return wait[0]

    def give_back(self, subject: str, mutations: int) -> None:
        """So much of what a subject was charged is given back: so much shorter is its wait, and no more.

        Else who cannot be refused would go on for ever by what fails.
        """
        until_ms, quota = self._waits.get(subject, (0.0, None))
        if quota is not None:
            self._waits[subject] = until_ms - mutations * 1000 / quota.rate, quota

    def drop(self, subject: str) -> None:
        """Forget a subject's wait: it was let through after all."""
        self._waits.pop(subject, None)

    def expire(self, now_ms: float) -> None:
        """Drop the waits that have passed."""
        for subject in [name for name, (until_ms, _) in self._waits.items() if until_ms <= now_ms]:
            del self._waits[subject]


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
