"""What the proxy remembers of decisions: who must wait until when, and which requests are undecided.

No clock: times come as arguments, in ms of one steady clock. Every table has a bound; what falls out of one
costs accuracy (a question more, a correction less), never a wrong refusal.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from enforcer.core.feeds.decisions import Decision
from enforcer.laws.mutation.sizes import Aliases, in_own_names
from streaming.policy.policy_set import MutationQuota

LATE_RECORDS_MAX: Final = 10_000
"""Answered requests kept until their decision comes, to correct the balance; as many as may wait."""
LATE_RECORD_MS: Final = 600_000
"""How long they are kept: a job that was away so long tells each balance anew."""


class Answered(Enum):
    """How a request stands towards its client."""

    WAITING = auto()
    """Not answered yet."""
    DECIDED = auto()
    """By its decision."""
    ALLOWED = auto()
    """Let through without one: it came too late, or nobody waits (no quota, shadow)."""
    REJECTED = auto()
    """Refused without one: it came too late, or the client left before it was forwarded."""


@dataclass(slots=True, kw_only=True, eq=False)
class Ask:
    """One request event and what became of it.

    Attributes:
        id: the event's id.
        subject: quota entity it is charged to; empty if none.
        user: principal.
        client_id: what the client calls itself.
        strict: could be rejected.
        dry_run: validate_only: never charged.
        shadow: decided under a shadow quota: its decision was not acted on.
        on_late_reject: the job does not charge it when it decides late.
        local: its quota is decided here; it may have been asked about all the same.
        items: name -> mutations asked for.
        sent_ms: when the event was sent, steady clock.
        aliases: names in the event that stand for others; empty: all are as they are.
        on_decision: told once about the decision, None when it is not waited for (any more).
        on_refused: told once that the event was refused for good, so that there will be no decision.
        answered: how the client was answered.
        decision: the decision, once it has come.
        executed: name -> mutations that the cluster carried out, once known.
        settled: the balance was corrected, if it had to be.
    """

    id: str
    subject: str
    user: str
    client_id: str
    strict: bool
    dry_run: bool
    shadow: bool = False
    on_late_reject: bool = False
    local: bool = False
    items: Mapping[str, int]
    sent_ms: float
    aliases: Aliases = field(default_factory=dict)
    on_decision: Callable[[Decision], None] | None = None
    on_refused: Callable[[], None] | None = None
    answered: Answered = Answered.WAITING
    decision: Decision | None = None
    executed: Mapping[str, int] | None = None
    settled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """How far the balance is off, name -> mutations.

    Attributes:
        refund: charged, but not carried out by the cluster.
        charge: carried out, but not charged.
    """

    refund: Mapping[str, int] = field(default_factory=dict)
    charge: Mapping[str, int] = field(default_factory=dict)


def charged_items(ask: Ask, decision: Decision) -> dict[str, int]:
    """What the law charged for a request (docs/contract.md 3.1)."""
    if ask.dry_run:
        return {}
    if not ask.strict:
        return dict(ask.items)
    if decision.late:
        # The job knows our deadline: with `allow` it charges all, with `reject` nothing.
        return {} if ask.on_late_reject else dict(ask.items)
    return {name: count for name, count in ask.items.items() if name not in decision.rejected}


def charged_sum(ask: Ask) -> dict[str, int]:
    """What a request charges that was decided here, as one item, which fits a record of any size."""
    charged = ask.items if ask.decision is None else charged_items(ask, ask.decision)
    return {f"{len(charged)} items": sum(charged.values())}


def correct(ask: Ask) -> Correction:
    """Compare what was charged with what the cluster carried out; both must be known.

    Covers items that the cluster refused, default partition counts guessed wrong, and requests answered
    without their decision.
    """
    if ask.decision is None or ask.executed is None or ask.dry_run:
        return Correction()
    charged = charged_items(ask, ask.decision)
    refund, charge = {}, {}
    for name in ask.items:
        excess = charged.get(name, 0) - ask.executed.get(name, 0)
        if excess > 0:
            refund[name] = excess
        # In shadow a rejected item was carried out all the same; enforced it would not have been.
        elif excess < 0 and not (ask.shadow and name not in charged):
            charge[name] = -excess
    return Correction(refund=refund, charge=charge)


LATE_BYTES_MAX: Final = 64 * 2**20
"""What requests may take that were answered and are not decided, while the job is away: each may have
thousands of names."""
_ASK_BYTES: Final = 1_024
_ITEM_BYTES: Final = 400  # an entry in each of two tables, and the objects of its name but for the letters


def _bytes_of(ask: Ask) -> int:
    """About what a request takes."""
    return _ASK_BYTES + _ITEM_BYTES * len(ask.items) + 2 * sum(map(len, ask.items))


@dataclass(frozen=True, slots=True)
class _Wait:
    until_ms: float
    quota: MutationQuota | None


class Ledger:
    """The proxy's memory of decisions.

    Args:
        subjects_max: bound on subjects with a not-before time.
        pending_max: bound on requests that wait for their decision.
        late_max: bound on requests answered without it; all together are bound by LATE_BYTES_MAX too.
        late_keep_ms: how long the latter are kept.
    """

    def __init__(self, *, subjects_max: int, pending_max: int, late_max: int, late_keep_ms: float) -> None:
        self._subjects_max = subjects_max
        self._pending_max = pending_max
        self._late_max = late_max
        self._late_keep_ms = late_keep_ms
        # The oldest leave when a table is full; a plain dict would step over all that left before it.
        self._waits: OrderedDict[str, _Wait] = OrderedDict()
        self._asks: dict[str, Ask] = {}
        self._late: OrderedDict[str, Ask] = OrderedDict()
        self._late_bytes = 0

    @property
    def subjects(self) -> int:
        """Subjects with a not-before time."""
        return len(self._waits)

    @property
    def pending(self) -> int:
        """Requests that wait for their decision."""
        return len(self._asks)

    @property
    def late(self) -> int:
        """Requests answered, or never waiting, whose books are not closed."""
        return len(self._late)

    def postpone(self, subject: str, until_ms: float, quota: MutationQuota | None) -> None:
        """Note that a subject must wait; the newest decision counts, even if it is the shorter one.

        Args:
            quota: the quota under which that was decided: under another one it says nothing.
        """
        self._waits.pop(subject, None)
        if len(self._waits) >= self._subjects_max:
            self._waits.popitem(last=False)
        self._waits[subject] = _Wait(until_ms, quota)

    def __contains__(self, subject: str) -> bool:
        """Whether a subject has a not-before time, passed or not."""
        return subject in self._waits

    def not_before(self, subject: str, quota: MutationQuota | None, now_ms: float) -> float | None:
        """Until when a subject must wait; None if it need not. A changed quota drops the wait."""
        wait = self._waits.get(subject)
        if wait is None:
            return None
        # Most times it is the very same object; comparing every field costs more than the rest.
        if wait.until_ms <= now_ms or (wait.quota is not quota and wait.quota != quota):
            del self._waits[subject]
            return None
        return wait.until_ms

    def drop(self, subject: str) -> None:
        """Forget a subject's wait: its balance was corrected."""
        self._waits.pop(subject, None)

    def add(self, ask: Ask) -> bool:
        """Remember a request that waits for its decision; False if there are too many already."""
        if len(self._asks) >= self._pending_max:
            return False
        self._asks[ask.id] = ask
        return True

    def open_asks(self) -> list[Ask]:
        """The requests that wait for their decision, oldest first."""
        return list(self._asks.values())

    def forget(self, ask: Ask) -> None:
        """Forget a request whose event could not be sent."""
        self._asks.pop(ask.id, None)

    def refused(self, ask_id: str) -> Ask | None:
        """Forget a request whose event nobody will ever read; returns it if its decision is waited for."""
        self._take_late(ask_id)
        return self._asks.pop(ask_id, None)

    def watch(self, ask: Ask) -> bool:
        """Remember a request that does not wait, for the correction of its balance.

        Returns:
            False if the oldest such requests had to be forgotten for it.
        """
        self.forget(ask)
        self._take_late(ask.id)
        size, room = _bytes_of(ask), True
        while self._late and (len(self._late) >= self._late_max or self._late_bytes + size > LATE_BYTES_MAX):
            self._take_late(next(iter(self._late)))
            room = False
        self._late[ask.id] = ask
        self._late_bytes += size
        return room

    def decide(self, decision: Decision) -> Ask | None:
        """Take a decision: the request it is for, None if that is unknown, settled or a repetition."""
        ask = self._asks.pop(decision.id, None) or self._take_late(decision.id)
        if ask is not None:
            own = in_own_names(ask.aliases, decision.rejected) if ask.aliases else decision.rejected
            ask.decision = replace(decision, rejected=own)
        return ask

    def expire(self, now_ms: float) -> int:
        """Drop what time has made useless; returns how many requests stay without their decision."""
        for subject in [name for name, wait in self._waits.items() if wait.until_ms <= now_ms]:
            del self._waits[subject]
        old = [name for name, ask in self._late.items() if ask.sent_ms + self._late_keep_ms <= now_ms]
        for name in old:
            self._take_late(name)
        return len(old)

    def _take_late(self, ask_id: str) -> Ask | None:
        ask = self._late.pop(ask_id, None)
        if ask is not None:
            self._late_bytes -= _bytes_of(ask)
        return ask
