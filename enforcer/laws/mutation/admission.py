"""One request for partition mutations, from its arrival to its answer, without I/O (docs/contract.md 3.1).

Whatever protocol it came by, a shell drives it and does what it says. What it has come to is a table: its
`Stage` as a charge, and beside it how far the cluster has carried it out. A request that can be refused is
carried out once it is decided; all others at once, and their answer waits for the decision.

Nothing that a client was told may be forgotten: the event of what is decided here goes to Kafka beside the
request, and the answer waits until Kafka has it, for a limited time.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from math import ceil
from typing import Final, Protocol

from enforcer.core.settings import OnLate
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from enforcer.laws.mutation.events import Uncharged
from enforcer.laws.mutation.request import (
    Action,
    Decision,
    MutationQuota,
    Progress,
    Reply,
    Request,
    Stage,
    Verdict,
    explain,
)

EVENT_ACK_MS: Final = 100
"""How long an answer that was decided at once waits until Kafka has its event; then it is counted."""
CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]
"""Calls a function after so many ms."""
_AT_ONCE: Final = frozenset({"not_before", "dry_run"})
"""Refusals without a decision."""


class Shell(Protocol):
    """Does what an admission says.

    Attributes:
        too_large: what a client is told of a request that no event can hold, with its number of items.
    """

    too_large: str

    def look_up(self) -> None:
        """Count what it would change: `counted` is told."""

    def stated(self) -> Mapping[str, int]:
        """What it would change by what it says itself: the cluster cannot be asked any more."""

    def leaves(self, rejected: Collection[str]) -> bool:
        """Whether anything is left to be carried out without these."""

    def carry_out(self, rejected: Collection[str]) -> bool:
        """Have it carried out but for these: `carried_out` is told. False: that is no longer possible."""

    def answer(self, told: Reply) -> Callable[[float], None]:
        """Make its answer; returns what gives it, and then makes its connection wait for so many ms."""

    def note(self, outcome: str) -> None:
        """Count how it ended (docs/metrics.md, `weir_proxy_requests_total`)."""

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a delay."""


class Admission:
    """The machine of one request.

    Attributes:
        request: it.
        stage: what it has come to.
        done: how far the cluster has carried it out.
        outcome: how it ended, in a word; "" while it did not.
        passes: it waits for no decision, as under a shadow quota.

    Args:
        request: see there; its items are not counted yet.
        whole: of a request of which an item is rejected nothing is carried out.
    """

    def __init__(
        self, coordinator: QuotaCoordinator, shell: Shell, request: Request, quota: MutationQuota | None,
        verdict: Verdict, *, whole: bool = False,
    ) -> None:  # fmt: skip
        self.request, self.quota = request, quota
        self.stage, self.done, self.outcome = Stage.COUNTING, Progress.NOTHING, ""
        self._coordinator = coordinator
        self._settings = coordinator.settings
        self._now_ms = coordinator.clock.steady_ms
        self._shell = shell
        self._verdict = verdict
        self._whole = whole
        self._here = verdict.action is Action.DECIDE
        self.passes = verdict.action is Action.FORWARD
        self._gated = request.strict and not self.passes
        self._wait_until_ms = self._now_ms() + verdict.wait_ms
        self._counted = self._in_turn = self._told_to_wait = self._unacknowledged = False
        self._excess_ms = self._acknowledge_until_ms = 0.0
        self._rejected: Collection[str] = ()
        self._give: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """It came: have it counted, and carried out if that waits for nothing."""
        # Until an old version is charged nobody knows that its subject must wait: it has its turn till then.
        if self._verdict.asks and not (self._here and self._gated):
            self._begin_turn()
        # The look-up goes first on the same connection, so it sees what a deletion is about to delete.
        self._shell.look_up()
        if not self._gated:
            self._carry_out()

    @property
    def admitted(self) -> bool:
        """Whether it is carried out whatever the client does."""
        return not self._gated or self.done is not Progress.NOTHING

    @property
    def waits_for_decision(self) -> bool:
        """Whether all but its decision is known, so that it can be answered without the cluster."""
        return not self._gated and self._counted and self.done is Progress.ALL

    def counted(self, items: Mapping[str, int]) -> None:
        """What it would change is known: name -> mutations, of what costs something."""
        if self.stage is Stage.GONE:
            return
        self._counted = True
        self.request.items = items
        if self.quota is None or self._verdict.action is Action.FORWARD:
            self._pass(self.quota)
        elif not items:
            # All of it is bound to fail, each with its own error: that is the cluster's to say.
            self._settle()
        elif not self._refuse(self.quota):
            self._decide(self.quota)
        if self.stage is not Stage.ASKED:
            self._end_turn()

    def late(self) -> None:
        """Its decision did not come in time, or cannot come."""
        asked = self.stage is Stage.ASKED
        if self._here:
            self._coordinator.local_decisions.unanswered(self.request.subject, self.request.id)
        # What lies between the parts of several is refused: too late, it is never charged.
        reject = self._gated and (self._here or self._settings.on_late_decision is OnLate.REJECT)
        if asked:
            if reject:
                self.request.executed = {}
            self._coordinator.give_up(self.request)
        if reject:
            self._settle("late_reject", self.request.items)
        else:
            if not asked:
                # What goes on without a question is told of as well, and charged later.
                self._coordinator.report(self.request, self.quota)
            self._settle("late_allow")

    def carried_out(self, executed: Mapping[str, int], unforeseen: Mapping[str, int] | None = None) -> None:
        """The cluster has answered.

        Args:
            executed: name -> mutations that were made; what is missing was not.
            unforeseen: the same of what seemed to cost nothing.
        """
        self.done = Progress.ALL
        self.request.executed = executed
        self._coordinator.settle(self.request)
        if unforeseen:
            self._coordinator.report(self.request.as_done(unforeseen), self.quota)

    def finish(self) -> None:
        """Answer the client, if all is known that it is told, once Kafka has what was decided here."""
        if self.stage is not Stage.SETTLED or (self.done is not Progress.ALL and not self._gated):
            return
        told = self._told()
        mute_ms = min(told.left_ms, ceil(self._excess_ms)) if self._told_to_wait else told.left_ms
        self._give = partial(self._shell.answer(told), mute_ms)
        left_ms = self._acknowledge_until_ms - self._now_ms()
        if not self._unacknowledged:
            self._go()
        elif left_ms <= 0:
            self.acknowledged(False)
        else:
            self._timer = self._shell.call_later(left_ms, partial(self.acknowledged, False))

    def acknowledged(self, stands: bool) -> None:
        """Kafka has the event of what was decided here; or it never will, or takes long."""
        if not self._unacknowledged:
            return
        self._unacknowledged = False
        if not stands:
            self._coordinator.metrics.unacknowledged.inc()
        self._go()

    def gone(self) -> None:
        """Its client is gone, or the cluster's part is over: no answer will come any more."""
        self._give = None
        if not self._here or self.stage is Stage.SETTLED:
            # A question's deadline tells all the same whether the job answers.
            self._stop_timer()
        self._end_turn()
        stage, self.stage = self.stage, Stage.GONE
        if self._gated:
            if self.done is not Progress.NOTHING:
                return
            # Nothing was done: whatever is, or will be, charged is given back.
            self.request.executed = {}
            self._coordinator.settle(self.request)
        elif stage is Stage.COUNTING and self.done is Progress.SENT:
            self.request.items = self._shell.stated()
            if self.request.items:
                self._coordinator.report(self.request, self.quota)
        if stage is Stage.ASKED:
            self._coordinator.give_up(self.request)

    # ---------------------------------------------------------------------------------------------------

    def _settle(self, outcome: str = "", rejected: Collection[str] = ()) -> None:
        """It is known what it is told; where it was before, or nobody hears it any more, nothing changes."""
        if self.stage in (Stage.SETTLED, Stage.GONE):
            return
        self.stage = Stage.SETTLED
        self._stop_timer()
        if outcome:
            self.outcome = outcome
            self._shell.note(outcome)
        self._rejected = rejected
        if not self._gated or outcome == "too_large" or (rejected and not self._shell.leaves(rejected)):
            self.finish()
        else:
            self._carry_out()
        self._end_turn()

    def _carry_out(self) -> None:
        if self._shell.carry_out(self._rejected):
            self.done = Progress.SENT

    def _pass(self, quota: MutationQuota | None) -> None:
        """Nothing limits it, or only a shadow quota: it is reported."""
        request = self.request
        if request.items and not self._unreported(quota):
            self._coordinator.report(request, quota)
        self._settle("unlimited" if quota is None else "shadow")

    def _unreported(self, quota: MutationQuota | None) -> bool:
        """Whether it is a dry run of which nobody need know, or one more than may be asked about."""
        request = self.request
        if not request.dry_run or quota is None:
            return request.dry_run
        if not self._coordinator.dry_runs.take(quota, sum(request.items.values())):
            return False
        self._coordinator.metrics.unreported_requests.inc()
        return True

    def _refuse(self, quota: MutationQuota) -> bool:
        """Refuse it if it need not, or may not, be asked about.

        Its subject must still wait, or makes too many dry runs: nobody is asked. Decided here, each refusal
        is one of the law, unless its subject goes on too often while it must wait. Its connection is muted
        only if it goes on beyond the rate of what costs nothing.
        """
        coordinator, dry = self._coordinator, self._verdict.dry
        if self._verdict.action is not Action.REFUSE:
            self._told_to_wait = not self.request.dry_run and self._wait_until_ms > self._now_ms()
            if not self._told_to_wait:
                return False
        self._told_to_wait = True
        if dry:
            self._excess_ms = coordinator.dry_runs.wait_ms(quota)
        else:
            self._excess_ms = coordinator.refusals.take(quota, len(self.request.items))
        if self._excess_ms:
            coordinator.metrics.unreported_requests.inc()
        elif self._here:
            return False
        elif not dry:
            coordinator.report_refused(self.request, quota)
        self._settle("dry_run" if dry else "not_before", self.request.items)
        return True

    def _decide(self, quota: MutationQuota) -> None:
        """Have it decided, here or by the job."""
        coordinator, request = self._coordinator, self.request
        if request.dry_run:
            coordinator.dry_runs.charge(quota, sum(request.items.values()))
        self._unacknowledged = self._here
        self._acknowledge_until_ms = self._now_ms() + EVENT_ACK_MS
        try:
            if self._here:
                put = coordinator.decide(request, quota, self._hear, self.acknowledged)
            else:
                put = coordinator.ask(request, quota, self._hear)
        except Uncharged:
            self._unacknowledged = False
            self._refuse_large()
            return
        if request.decision is not None:
            self._decided(request.decision)
            return
        self._unacknowledged = False
        if not put:
            self.late()
            return
        self.stage = Stage.ASKED
        self._begin_turn()
        self._timer = self._shell.call_later(self._settings.decision_timeout_ms, self.late)

    def _hear(self, decision: Decision | None) -> None:
        """The question has an answer; None: Kafka never takes it."""
        if decision is None:
            self._refuse_large()
        else:
            self._decided(decision)

    def _refuse_large(self) -> None:
        if self._gated:
            self._settle("too_large", self.request.items)
        else:
            # It is carried out, and only a topic with a smaller bound than Kafka's own refuses a sum.
            self._settle("late_allow")

    def _decided(self, decision: Decision) -> None:
        if not self._gated:
            self._settle("throttle" if decision.throttle_time_ms > 0 else "allow")
            return
        rejected: Collection[str] = decision.rejected.intersection(self.request.items)
        if rejected and self._whole:
            # Of several items some may have been charged; none is carried out.
            rejected = self.request.items
            self.request.executed = {}
            self._coordinator.settle(self.request)
        self._settle("reject" if rejected else "allow", rejected)

    def _told(self) -> Reply:
        decision, rejected, settings = self.request.decision, self._rejected, self._settings
        if self._gated and not rejected:
            return Reply((), 0, "")
        if self.outcome == "too_large":
            text = self._shell.too_large.format(len(self.request.items))
            return Reply(rejected, settings.decision_timeout_ms, text)
        if self.outcome in _AT_ONCE:
            left_ms = max(1, ceil(self._wait_until_ms - self._now_ms()))
            if self._verdict.dry and self.quota is not None:
                many = f"Dry runs of {self.quota.subject} are beyond {settings.dry_run_factor:g} times its"
                text = f"{many} quota on partition mutations; retry after {left_ms} ms."
                return Reply(rejected, left_ms, text)
            # Beyond what costs nothing no event tells of it.
            event_id = "" if self._excess_ms else self.request.id
            return Reply(rejected, left_ms, explain(self.quota, None, left_ms, event_id))
        if not self._gated and self.outcome not in ("throttle", "allow"):
            return Reply((), 0, "")
        # Without a decision the time limit itself is the only hint when it may be worth a retry.
        left_ms = settings.decision_timeout_ms
        if decision is not None:
            left_ms = ceil(self._coordinator.remaining_ms(decision, self.request.sent_ms))
        if self._gated:
            left_ms = max(1, left_ms)
        return Reply(rejected, left_ms, explain(self.quota, decision, left_ms, self.request.id))

    def _begin_turn(self) -> None:
        """A question of its subject is open: only so many may be."""
        if self.quota is not None and not self._in_turn:
            self._in_turn = True
            self._coordinator.questions.begin(self.quota.subject)

    def _end_turn(self) -> None:
        """It is open no more: others of the subject may ask."""
        if self.quota is not None and self._in_turn:
            self._in_turn = False
            self._coordinator.questions.end(self.quota.subject)

    def _go(self) -> None:
        self._stop_timer()
        give, self._give = self._give, None
        if give is not None:
            give()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
