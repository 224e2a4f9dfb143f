"""One request for partition mutations on its way through the proxy.

Three ways where the job decides: a strict request waits for its decision before it is forwarded; a permissive
one is forwarded at once and its answer waits; one that no quota limits waits for nothing. What is decided
here is in `at_once`. Each is a small state machine driven by calls; the connection that owns it does all the
reading and writing.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import ceil
from typing import Protocol

from enforcer.core.feeds.decisions import Decision
from enforcer.core.settings import OnLate
from enforcer.kafka.mutations.counting import Charged, asked_of, changes_made, charged_items
from enforcer.kafka.mutations.recent_topics import RecentTopics
from enforcer.laws.mutation.coordinator import QuotaCoordinator, Uncharged
from enforcer.laws.mutation.free_questions import FreeQuestions
from enforcer.laws.mutation.gate import MutationQuota, explain
from enforcer.laws.mutation.ledger import Answered, Ask
from enforcer.laws.mutation.request_events import Asked
from enforcer.wire.kafka.messages import NOTHING_KNOWN, TopicCounts
from enforcer.wire.kafka.mutations import MutationRequest, merge, refuse_all, subset


class Link(Protocol):
    """What an admission needs of its connection."""

    def look_up(
        self, names: Sequence[str], topic_ids: Sequence[bytes], done: Callable[[TopicCounts], None]
    ) -> None:
        """Ask the broker for partition counts, in the order of the other requests."""
        ...

    def forward(self, frame: bytes, done: Callable[[bytes], None]) -> bool:
        """Send a request to the broker; `done` gets the response. False if that is no longer possible."""
        ...

    def complete(self, response: bytes, mute_ms: float) -> None:
        """Answer the client in its turn, then mute the connection."""
        ...

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a delay."""
        ...


class Admission(ABC):
    """What the three ways have in common.

    Args:
        link: the connection.
        coordinator: decides.
        recent: knows partition counts better than the broker.
        free: bounds what is not charged.
        request: the request.
        user: Kafka principal.
        client_id: Kafka client id.
        quota: in force for them, None if none is.
        wait_ms: how long its subject must still wait, if it must.
        dry: not for its balance, but for its dry runs.
    """

    _forwarded = False
    _looked = False

    def __init__(
        self,
        link: Link,
        coordinator: QuotaCoordinator,
        recent: RecentTopics,
        free: FreeQuestions,
        request: MutationRequest,
        *,
        user: str,
        client_id: str,
        quota: MutationQuota | None,
        wait_ms: float = 0,
        dry: bool = False,
    ) -> None:
        self.link = link
        self.coordinator = coordinator
        self.recent = recent
        self.free = free
        self.request = request
        self.user = user
        self.client_id = client_id
        self.quota = quota
        self.dry = dry
        self.until_ms = coordinator.clock.steady_ms() + wait_ms
        self.ask: Ask | None = None
        self.items: Charged = {}

    def start(self) -> None:
        """Begin: ask the broker for the partition counts that the mutations are counted with."""
        names = [item.name for item in self.request.items if item.name is not None]
        unnamed = [item.topic_id for item in self.request.items if item.name is None]
        ids = [topic_id for topic_id in unnamed if topic_id is not None]
        self.link.look_up(names, ids, self._looked_up)

    @property
    def admitted(self) -> bool:
        """Whether it is carried out whatever the client does."""
        return True

    @property
    def waits_for_decision(self) -> bool:
        """Whether all but its decision is known, so that it can be answered without the broker."""
        return False

    @abstractmethod
    def gone(self) -> None:
        """The broker's part is over, or not waited for: no answer of it will come any more."""

    def _charge_stated(self) -> None:
        """Charge what was forwarded by what it says itself, if the broker cannot be asked any more."""
        if not self._forwarded or self._looked:
            return
        self.items = charged_items(self.request, NOTHING_KNOWN, self.recent.default_partitions)
        if self.items:
            self.ask = self.coordinator.report(self._asked(), self.quota)

    def _looked_up(self, topics: TopicCounts) -> None:
        self._looked = True
        self.items = charged_items(self.request, self.recent.over(topics), self.recent.default_partitions)
        self._counted()

    @abstractmethod
    def _counted(self) -> None:
        """The items and their mutations are known."""

    def _asked(self) -> Asked:
        return asked_of(self.request, self.user, self.client_id, self.items)

    def _mutations(self) -> int:
        """Of all items together."""
        return sum(mutations for _, mutations in self.items.values())

    def _note_executed(self, response: bytes) -> None:
        """Take in what the broker did: close the books on the question, remember the topics it changed."""
        changes = changes_made(self.request, self.items, response)
        if self.ask is not None:
            self.ask.executed = {name: change.mutations for name, change in changes.items()}
            self.coordinator.settle(self.ask)
        if self.request.validate_only:
            return
        for change in changes.values():
            self.recent.note(change.name, change.topic_id, change.partitions)
        unforeseen = {name: change.mutations for name, change in changes.items() if not change.foreseen}
        if unforeseen:
            self.coordinator.report(replace(self._asked(), strict=False, items=unforeseen), self.quota)

    def _count_outcome(self, outcome: str) -> None:
        self.coordinator.metrics.requests.labels(self.request.api.event_name, outcome).inc()


class Passing(Admission):
    """No quota limits it (or only a shadow one): forwarded at once, reported, never delayed."""

    def start(self) -> None:
        # The lookup goes first on the same connection, so it sees what a deletion is about to delete.
        super().start()
        self._forwarded = self.link.forward(self.request.frame, self._answered)

    def gone(self) -> None:
        self._charge_stated()

    def _counted(self) -> None:
        self._count_outcome("shadow" if self.quota is not None else "unlimited")
        if self.items and not self._unreported():
            self.ask = self.coordinator.report(self._asked(), self.quota)

    def _unreported(self) -> bool:
        """Whether it is a dry run of which nobody need know, or one more than may be asked about."""
        if not self.request.validate_only:
            return False
        if self.quota is None:
            return True
        if not self.free.dry_runs.take(self.quota, self._mutations()):
            return False
        self.coordinator.metrics.unreported.inc()
        return True

    def _answered(self, response: bytes) -> None:
        self._note_executed(response)
        self.link.complete(response, 0)


class Deciding(Admission):
    """A request with a decision to wait for, for a limited time."""

    decision: Decision | None = None
    _timer: asyncio.TimerHandle | None = None
    _asks = True
    _in_turn = False

    def start(self) -> None:
        if self._asks and self.quota is not None:
            self.coordinator.questions.begin(self.quota.subject)
            self._in_turn = True
        super().start()

    def gone(self) -> None:
        self._stop_timer()
        self._end_turn()

    def _looked_up(self, topics: TopicCounts) -> None:
        super()._looked_up(topics)
        if self._timer is None:
            self._end_turn()

    def _end_turn(self) -> None:
        """No question is open any more: others of the subject may ask."""
        if self._in_turn and self.quota is not None:
            self._in_turn = False
            self.coordinator.questions.end(self.quota.subject)

    def _put_question(self) -> bool:
        """Send the event and start the time limit; False if nobody will decide.

        Raises:
            Uncharged: nobody ever could.
        """
        self.ask = self.coordinator.ask(self._asked(), self.quota, self._on_decision, self._on_refused)
        if self.ask is None:
            return False
        if self.request.validate_only and self.quota is not None:
            self.free.dry_runs.charge(self.quota, self._mutations())
        self._timer = self.link.call_later(self.coordinator.settings.decision_timeout_ms, self._on_timeout)
        return True

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_decision(self, decision: Decision) -> None:
        self._stop_timer()
        self.decision = decision
        self._decided()
        self._end_turn()

    def _on_timeout(self) -> None:
        self._timer = None
        self._late()
        self._end_turn()

    def _on_refused(self) -> None:
        self._stop_timer()
        self.ask = None
        self._uncharged()
        self._end_turn()

    @abstractmethod
    def _uncharged(self) -> None:
        """The question cannot be put, now or ever."""

    @abstractmethod
    def _decided(self) -> None:
        """The decision has come in time."""

    @abstractmethod
    def _late(self) -> None:
        """The decision did not come in time, or cannot come."""

    def _left_ms(self) -> int:
        """What is left of the decision's throttle time, in whole ms."""
        if self.decision is None or self.ask is None or self.decision.throttle_time_ms <= 0:
            return 0
        return ceil(self.coordinator.remaining_ms(self.decision, self.ask.sent_ms))

    def _complete(self, response: bytes, left_ms: int) -> None:
        """Answer the client."""
        self.link.complete(response, self._mute_ms(left_ms))

    def _mute_ms(self, left_ms: int) -> int:
        """The connection that was told to wait is not read for so long."""
        return left_ms


class Strict(Deciding):
    """Decided first; only what was admitted reaches the broker."""

    _dropped = False

    @property
    def admitted(self) -> bool:
        """Only then does the broker have it."""
        return self._forwarded

    def gone(self) -> None:
        super().gone()
        self._dropped = True
        if self.ask is None or self._forwarded:
            return
        # Nothing was done: whatever is, or will be, charged is given back.
        self.ask.executed = {}
        if self.ask.answered is Answered.WAITING:
            self.coordinator.give_up(self.ask, Answered.REJECTED)
        else:
            self.coordinator.settle(self.ask)

    def _counted(self) -> None:
        if self._dropped:
            return
        if not self.items:
            # All of it is bound to fail, each with its own error: that is the broker's to say.
            self._carry_out(())
            return
        try:
            if not self._put_question():
                self._late()
        except Uncharged:
            self._uncharged()

    def _uncharged(self) -> None:
        self._count_outcome("too_large")
        wait_ms = self.coordinator.settings.decision_timeout_ms
        message = (
            f"{len(self.items)} topics in one request are too many to be decided under a quota on partition"
            " mutations; ask for fewer at a time."
        )
        self._complete(refuse_all(self.request, wait_ms, message), wait_ms)

    def _decided(self) -> None:
        assert self.decision is not None
        rejected = self.decision.rejected.intersection(self.items)
        self._count_outcome("reject" if rejected else "allow")
        self._carry_out([self.items[name][0].position for name in rejected])

    def _late(self) -> None:
        reject = self._rejects_late()
        self._count_outcome("late_reject" if reject else "late_allow")
        if self.ask is not None:
            if reject:
                self.ask.executed = {}
            self.coordinator.give_up(self.ask, Answered.REJECTED if reject else Answered.ALLOWED)
        self._carry_out([item.position for item, _ in self.items.values()] if reject else ())

    def _rejects_late(self) -> bool:
        """Whether it is refused if its decision does not come in time."""
        return self.coordinator.settings.on_late_decision is OnLate.REJECT

    def _carry_out(self, rejected: Collection[int]) -> None:
        keep = [item.position for item in self.request.items if item.position not in rejected]
        if keep or not rejected:
            self._forwarded = self.link.forward(
                subset(self.request, keep), lambda response: self._answered(response, rejected)
            )
            return
        left_ms, message = self._verdict(rejected)
        self._complete(refuse_all(self.request, left_ms, message), left_ms)

    def _answered(self, response: bytes, rejected: Collection[int]) -> None:
        if self.ask is None or self.ask.answered is not Answered.REJECTED:
            self._note_executed(response)
        left_ms, message = self._verdict(rejected)
        merged = merge(response, self.request, rejected, message, left_ms)
        self._complete(merged, left_ms)

    def _verdict(self, rejected: Collection[int]) -> tuple[int, str]:
        """Throttle time and message for the rejected items."""
        if not rejected:
            return 0, ""
        # Without a decision the time limit itself is the only hint when it may be worth a retry.
        left_ms = max(1, self._left_ms()) if self.decision else self.coordinator.settings.decision_timeout_ms
        return left_ms, explain(self.quota, self.decision, left_ms)
