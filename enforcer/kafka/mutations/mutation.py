"""One request of Kafka's protocol for partition mutations: its admission's shell."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from enforcer.kafka.mutations.costs import ItemCost, RecentTopics, count_mutations
from enforcer.kafka.names import ASKED_AT_ONCE
from enforcer.kafka.part import Link, Slot
from enforcer.kafka.part import Request as Came
from enforcer.laws.mutation.admission import Admission
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from enforcer.laws.mutation.gate import Action, MutationQuota, Reply, Verdict
from enforcer.laws.mutation.request import Request
from enforcer.wire.kafka.definitions import NAMES
from enforcer.wire.kafka.fields import NO_ID
from enforcer.wire.kafka.frames import RequestHeader, client_id_field
from enforcer.wire.kafka.messages import NOTHING_KNOWN, TopicCounts, decode_topics, topics_request
from enforcer.wire.kafka.mutations import (
    MutationApi,
    MutationItem,
    MutationRequest,
    decode_answer,
    explain_throttle,
    is_legal_name,
    merge,
    refuse_all,
    without,
)
from enforcer.wire.kafka.outcomes import patch_throttle

Costs = Mapping[str, ItemCost]
"""What costs something, by name, by id where the name is not known; in the request's order."""
_COUNTED_FROM: Final = 5
"""The answer to CreateTopics tells how many partitions a topic has from this version on."""
_LATE: Final = "late_reject"
T = TypeVar("T")


class GatedLink:
    """The connection as a request for mutations sees it.

    Args:
        link: the connection.
        request: the gated request.
        finished: called before the client is answered.
    """

    def __init__(self, link: Link, request: Came, finished: Callable[[Slot], None]) -> None:
        self._link, self.call_later = link, link.call_later
        self._header = request.header
        self._client_id = client_id_field(request.frame)
        self._finished = finished
        self.slot = request.slot()
        link.reserve(self.slot)

    def look_up(
        self, names: Sequence[str], topic_ids: Sequence[bytes], done: Callable[[TopicCounts], None]
    ) -> None:
        """Ask for partition counts on the client's own connection, so no other login is needed.

        The answer never reaches the client. Names and ids take requests of their own, and many take several,
        so that no answer takes long to read. Names that no topic can have are not asked for.
        """
        correlation_id, client_id = self._header.correlation_id, self._client_id
        legal = [name for name in names if is_legal_name(name)]
        questions = [(topics_request(correlation_id, client_id, part, ()), False) for part in _parts(legal)]
        questions += [
            (topics_request(correlation_id, client_id, (), part), True) for part in _parts(topic_ids)
        ]
        found = NOTHING_KNOWN
        missing = len(questions)
        if not questions:
            # Not within this turn: the next in line would have its own in it, and so on, beyond the stack.
            self.call_later(0.0, partial(done, found))

        def take(ids: bool, response: bytes) -> None:
            nonlocal found, missing
            found = found.merged(decode_topics(response, ids))
            missing -= 1
            if not missing:
                done(found)

        for question, ids in questions:
            self._link.send(Slot(*self._header[:3], partial(take, ids)), question)

    def forward(self, frame: bytes, done: Callable[[bytes], None]) -> bool:
        """Send the request, or a part of it, to the broker."""
        return self._link.send(Slot(*self._header[:3], done), frame)

    def complete(self, response: bytes, mute_ms: float) -> None:
        """Answer the client in its turn, then mute the connection."""
        self.slot.response = response
        self._finished(self.slot)
        self._link.finish(self.slot, mute_ms)


class Mutation:
    """The shell of one request's admission.

    Attributes:
        admission: the machine; start it, and tell it if the client is gone.

    Args:
        link: the connection.
        coordinator: decides.
        recent: knows partition counts better than the broker.
        request: the request.
        header: of what came; that may be another API's request, which asks for this in passing.
        user: Kafka principal.
        quota: in force for them, None if none is.
        verdict: what to do with it.
    """

    too_large = (
        "{} topics in one request are too many to be decided under a quota on partition mutations; ask for"
        " fewer at a time."
    )

    def __init__(
        self, link: GatedLink, coordinator: QuotaCoordinator, recent: RecentTopics, request: MutationRequest,
        header: RequestHeader, *, user: str, quota: MutationQuota | None, verdict: Verdict,
    ) -> None:  # fmt: skip
        self.call_later = link.call_later
        self._link = link
        self._coordinator = coordinator
        self._recent = recent
        self._request = request
        self._at_once = verdict.action is Action.DECIDE and request.strict
        self._costs: Costs = {}
        self._response: bytes | None = None
        asked = Request(
            user=user, client_id=header.client_id or "", api=NAMES[header.api_key],
            api_version=header.api_version, strict=request.strict, dry_run=request.validate_only,
        )  # fmt: skip
        self.admission = Admission(coordinator, self, asked, quota, verdict)

    def look_up(self) -> None:
        """See admission.Shell.

        Creations say how many partitions they make. Of a dry run that is surely admitted the look-up would
        only tell which of its topics are there already, as the broker's own check does.
        """
        quota, request = self.admission.quota, self._request
        speaks = self._at_once and request.validate_only and request.api is MutationApi.CREATE_TOPICS
        if speaks and quota is not None and self._coordinator.local_decisions.surely_admits(quota.subject):
            self.admission.counted(self.stated())
            return
        names = [item.name for item in self._request.items if item.name is not None]
        unnamed = [item.topic_id for item in self._request.items if item.name is None]
        self._link.look_up(names, [topic_id for topic_id in unnamed if topic_id is not None], self._found)

    def stated(self) -> Mapping[str, int]:
        """See admission.Shell."""
        return self._count(NOTHING_KNOWN)

    def leaves(self, rejected: Collection[str]) -> bool:
        """See admission.Shell."""
        return len(rejected) < len(self._request.items)

    def carry_out(self, rejected: Collection[str]) -> bool:
        """See admission.Shell."""
        return self._link.forward(without(self._request, self._positions(rejected)), self._answered)

    def answer(self, told: Reply) -> Callable[[float], None]:
        """See admission.Shell."""
        request, response, left_ms = self._request, self._response, told.left_ms
        if response is None:
            response = refuse_all(request, left_ms, told.message)
        elif request.strict:
            response = merge(response, request, self._positions(told.rejected), told.message, left_ms)
        elif left_ms > 0:
            response = patch_throttle(request.api, request.version, response, left_ms)
            response = explain_throttle(request.api, request.version, response, told.message)
        return partial(self._link.complete, response)

    def note(self, outcome: str) -> None:
        """See admission.Shell."""
        counter = self._coordinator.metrics.requests.labels(self.admission.request.api, outcome)
        if self._at_once:
            # The request need not wait for it.
            self._coordinator.outgoing.later(counter.inc)
        else:
            counter.inc()

    def _found(self, topics: TopicCounts) -> None:
        self.admission.counted(self._count(self._recent.over(topics)))

    def _count(self, topics: TopicCounts) -> Mapping[str, int]:
        self._costs = costs_of(self._request, topics, self._recent.default_partitions)
        return {name: cost.mutations for name, cost in self._costs.items()}

    def _positions(self, names: Collection[str]) -> Collection[int]:
        return {self._costs[name].item.position for name in names}

    def _answered(self, response: bytes) -> None:
        """The broker has answered: note what it did, remember the topics it changed."""
        request, admission = self._request, self.admission
        if request.strict and request.validate_only:
            # Whatever the broker says of it, nothing was charged and nothing was done.
            admission.carried_out({})
        elif admission.outcome != _LATE:
            # First: what cannot be read ends the connection, and must not be there when the decision comes.
            admission.carried_out(*self._note_changes(response))
        self._response = response
        admission.finish()

    def _note_changes(self, response: bytes) -> tuple[dict[str, int], dict[str, int]]:
        """What the broker carried out, by the name under which it was asked, and what was unforeseen.

        Raises:
            BadFrame: the response ends too early or a length in it is impossible.
        """
        request = self._request
        names = {cost.item.position: name for name, cost in self._costs.items()}
        done = [part for part in decode_answer(request.api, request.version, response) if not part.error_code]
        by_name = {part.name: part for part in done}
        by_id = {part.topic_id: part for part in done}
        executed: dict[str, int] = {}
        unforeseen: dict[str, int] = {}
        for item in request.items:
            part = by_name.get(item.name) if item.topic_id is None else by_id.get(item.topic_id)
            if part is None:
                continue
            name = names.get(item.position)
            # Done though we took it for bound to fail: our view was stale, so charge what can be told.
            mutations = self._costs[name].mutations if name is not None else max(1, item.assignments)
            partitions = None
            if request.api is MutationApi.CREATE_TOPICS:
                # A creation with -1 took the cluster's default, which may not be what we guessed.
                told = part.num_partitions if request.version >= _COUNTED_FROM else item.partitions
                mutations = partitions = told if told > 0 else mutations
            elif request.api is MutationApi.CREATE_PARTITIONS:
                partitions = item.partitions
            if name is not None:
                executed[name] = mutations
            elif not request.validate_only:
                unforeseen[part.name or item.name or ""] = mutations
            if not request.validate_only:
                topic_id = item.topic_id if part.topic_id == NO_ID else part.topic_id
                self._recent.note(part.name or item.name, topic_id, partitions)
        return executed, unforeseen


def costs_of(request: MutationRequest, topics: TopicCounts, default_partitions: int) -> Costs:
    """What its items cost."""
    named: dict[str, ItemCost] = {}
    for cost in count_mutations(request, topics, default_partitions):
        if cost.charged and cost.mutations > 0:
            name = _name_of(cost.item, topics)
            # A topic may be called as another one's id is written; none may take another's place.
            while name in named:
                name += f"#{cost.item.position}"
            named[name] = cost
    return named


def _name_of(item: MutationItem, topics: TopicCounts) -> str:
    if item.name is not None or item.topic_id is None:
        return item.name or ""
    return topics.names.get(item.topic_id, str(UUID(bytes=item.topic_id)))


def _parts(asked: Sequence[T]) -> list[Sequence[T]]:
    return [asked[start : start + ASKED_AT_ONCE] for start in range(0, len(asked), ASKED_AT_ONCE)]
