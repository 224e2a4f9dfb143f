"""One request of Kafka's protocol for partition mutations: its admission's shell, and what its items cost.

They cost their partition mutations by Kafka's rules (docs/protocol_notes.md 1.3). A broker validates before
it charges, so what is bound to fail costs nothing, and goes to the broker without asking: that refuses it.
What cannot be seen from here (authorisation, create policies, configurations) is charged, and refunded after
the broker's answer.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import UUID

from cachetools import TTLCache

from enforcer.kafka.part import Link, Slot
from enforcer.kafka.part import Request as Came
from enforcer.laws.mutation.admission import Admission
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from enforcer.laws.mutation.request import Action, MutationQuota, Reply, Request, Verdict
from enforcer.wire.kafka.codec import patch_throttle
from enforcer.wire.kafka.definitions import NAMES
from enforcer.wire.kafka.frames import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, NO_ID, client_id_field
from enforcer.wire.kafka.messages import (
    ASKED_AT_ONCE,
    NOTHING_KNOWN,
    RECENT_TOPIC_MS,
    TopicCounts,
    decode_topics,
    topics_request,
)
from enforcer.wire.kafka.mutations import (
    MutationItem,
    MutationRequest,
    decode_answer,
    explain_throttle,
    is_legal_name,
    merge,
    refuse_all,
    without,
)

DEFAULT_PARTITIONS: Final = 1
"""Of a topic created with -1, until num.partitions is read from the cluster: Kafka's own default."""
RECENT_TOPICS_MAX: Final = 10_000
"""Topics whose partitions are known by our own answers; the one used longest ago goes first."""
Costs = Mapping[str, tuple[int, int]]
"""Place and mutations of what costs something, by name, or id if that is unknown; in the request's order."""
# A topic that the client may not describe, or whose lookup failed: at least one partition is changed if the
# broker does it at all, and the refund makes up for it if it does not.
_UNKNOWN_COUNT_MUTATIONS: Final = 1
_COUNTED_FROM: Final = 5
"""The answer to CreateTopics tells how many partitions a topic has from this version on."""
_LATE: Final = "late_reject"


class RecentTopics:
    """Partition counts that the brokers do not tell yet: as the last answers left them, for a short time.

    A KRaft broker learns of a change some ms after the controller has answered it. A client that creates and
    at once deletes would be told by the metadata that there was nothing to count.

    Attributes:
        default_partitions: the cluster's num.partitions, as far as it is known.
    """

    def __init__(self, steady_ms: Callable[[], float]) -> None:
        self.default_partitions = DEFAULT_PARTITIONS
        self._counts: TTLCache[str | bytes, int | None] = TTLCache(
            RECENT_TOPICS_MAX, RECENT_TOPIC_MS, steady_ms
        )

    def note(self, name: str | None, topic_id: bytes | None, count: int | None) -> None:
        """A topic has this many partitions now; None: it is gone. By name, by id or both."""
        for key in (name, topic_id):
            if key is not None:
                self._counts[key] = count

    def over(self, topics: TopicCounts) -> TopicCounts:
        """What a lookup said, corrected by what is known better."""
        newer = self._counts
        return replace(
            topics,
            by_name={name: newer.get(name, count) for name, count in topics.by_name.items()},
            by_id={key: newer.get(key, count) for key, count in topics.by_id.items()},
        )


class GatedLink:
    """The connection as a request for mutations sees it.

    Attributes:
        user: whose request it is.
        header: of what came; that may be another API's request, which asks for this in passing.
        slot: the place of its answer.
        kept: bytes that are kept for it, about.

    Args:
        finished: called before the client is answered.
    """

    def __init__(self, link: Link, request: Came, finished: Callable[["GatedLink"], None]) -> None:
        self._link, self.call_later = link, link.call_later
        self.user, self.header = request.user, request.header
        self._client_id = client_id_field(request.frame)
        self._finished = finished
        self.kept = 0
        self.slot = request.slot()
        link.reserve(self.slot)

    def look_up(self, topics: Sequence[str | bytes], done: Callable[[TopicCounts], None]) -> None:
        """Ask for partition counts, by name or id, on the client's own connection: no other login is needed.

        The answer never reaches the client. Names and ids take requests of their own, and many take several,
        so that no answer takes long to read. Names that no topic can have are not asked for.
        """
        names = [one for one in topics if isinstance(one, str) and is_legal_name(one)]
        parts = [(part, False) for part in _parts(names)]
        parts += [(part, True) for part in _parts([one for one in topics if isinstance(one, bytes)])]
        found = NOTHING_KNOWN
        missing = len(parts)
        if not parts:
            # Not within this turn: the next in line would have its own in it, and so on, beyond the stack.
            self.call_later(0.0, partial(done, found))

        def take(ids: bool, response: bytes) -> None:
            nonlocal found, missing
            found = found.merged(decode_topics(response, ids))
            missing -= 1
            if not missing:
                done(found)

        for part, ids in parts:
            question = topics_request(self.header.correlation_id, self._client_id, part)
            self._link.send(Slot(*self.header[:3], partial(take, ids)), question)

    def forward(self, frame: bytes, done: Callable[[bytes], None]) -> bool:
        """Send the request, or a part of it, to the broker."""
        return self._link.send(Slot(*self.header[:3], done), frame)

    def complete(self, response: bytes, mute_ms: float) -> None:
        """Answer the client in its turn, then mute the connection."""
        self.slot.response = response
        self._finished(self)
        self._link.finish(mute_ms)

    def leave(self) -> bool:
        """Nobody hears the answer: do nothing more. Returns whether it has not gone on."""
        return True


class Mutation:
    """The shell of one request's admission.

    Attributes:
        admission: the machine; start it, and tell it if the client is gone.
    """

    too_large = (
        "{} topics in one request are too many to be decided under a quota on partition mutations; ask for"
        " fewer at a time."
    )

    def __init__(
        self, link: GatedLink, coordinator: QuotaCoordinator, recent: RecentTopics, request: MutationRequest,
        quota: MutationQuota | None, verdict: Verdict,
    ) -> None:  # fmt: skip
        self.call_later = link.call_later
        self._link = link
        self._coordinator = coordinator
        self._recent = recent
        self._request = request
        self._at_once = verdict.action is Action.DECIDE and request.strict
        self._costs: Costs = {}
        self._response: bytes | None = None
        header = link.header
        asked = Request(
            user=link.user, client_id=header.client_id or "", api=NAMES[header.api_key],
            api_version=header.api_version, strict=request.strict, dry_run=request.validate_only,
        )  # fmt: skip
        self.admission = Admission(coordinator, self, asked, quota, verdict)

    def look_up(self) -> None:
        """See admission.Shell.

        Creations say how many partitions they make. Of a dry run that is surely admitted the look-up would
        only tell which of its topics are there already, as the broker's own check does.
        """
        quota, request = self.admission.quota, self._request
        speaks = self._at_once and request.validate_only and request.api == CREATE_TOPICS
        if speaks and quota is not None and self._coordinator.local_decisions.surely_admits(quota.subject):
            self.admission.counted(self.stated())
            return
        topics = [item.topic_id if item.name is None else item.name for item in request.items]
        self._link.look_up([topic for topic in topics if topic is not None], self._found)

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
        return {name: mutations for name, (_, mutations) in self._costs.items()}

    def _positions(self, names: Collection[str]) -> Collection[int]:
        return {self._costs[name][0] for name in names}

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
        names = {position: name for name, (position, _) in self._costs.items()}
        done = [part for part in decode_answer(request.api, request.version, response) if not part.error_code]
        answered = {key: part for part in done for key in (part.name, part.topic_id)}
        executed: dict[str, int] = {}
        unforeseen: dict[str, int] = {}
        for item in request.items:
            part = answered.get(item.name if item.topic_id is None else item.topic_id)
            if part is None:
                continue
            name = names.get(item.position)
            # Done though we took it for bound to fail: our view was stale, so charge what can be told.
            mutations = self._costs[name][1] if name is not None else max(1, item.assignments)
            partitions = None
            if request.api == CREATE_TOPICS:
                # A creation with -1 took the cluster's default, which may not be what we guessed.
                told = part.num_partitions if request.version >= _COUNTED_FROM else item.partitions
                mutations = partitions = told if told > 0 else mutations
            elif request.api == CREATE_PARTITIONS:
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
    """What its items cost: partitions that each creates, adds or deletes.

    Args:
        topics: what is known of the topics that the request names.
        default_partitions: the cluster's `num.partitions`.
    """
    identities = [_identity(item, topics) for item in request.items]
    seen, count = Counter(identities), _COUNTERS[request.api]
    named: dict[str, tuple[int, int]] = {}
    for item, topic in zip(request.items, identities, strict=True):
        mutations = count(item, topics, default_partitions)
        if mutations > 0 and seen[topic] == 1:
            name = str(UUID(bytes=topic)) if isinstance(topic, bytes) else topic or ""
            # A topic may be called as another one's id is written; none may take another's place.
            while name in named:
                name += f"#{item.position}"
            named[name] = item.position, mutations
    return named


def _identity(item: MutationItem, topics: TopicCounts) -> str | bytes | None:
    """A topic's name, also for one named by id if the name is known: both in one request are duplicates."""
    if item.name is not None or item.topic_id is None:
        return item.name
    return topics.names.get(item.topic_id, item.topic_id)


def _created(item: MutationItem, topics: TopicCounts, default_partitions: int) -> int:
    name, factor = item.name or "", item.replication_factor
    if not is_legal_name(name) or topics.by_name.get(name) is not None:
        return 0
    if item.assignments > 0:
        return item.assignments if item.partitions == factor == -1 else 0
    too_many_replicas = 0 < topics.broker_count < factor
    if factor == 0 or factor < -1 or too_many_replicas:
        return 0
    return default_partitions if item.partitions == -1 else item.partitions


def _deleted(item: MutationItem, topics: TopicCounts, default_partitions: int) -> int:
    if item.topic_id is not None:
        named = item.name is not None
        return 0 if named else topics.by_id.get(item.topic_id, _UNKNOWN_COUNT_MUTATIONS) or 0
    name = item.name or ""
    return (topics.by_name.get(name, _UNKNOWN_COUNT_MUTATIONS) or 0) if is_legal_name(name) else 0


def _added(item: MutationItem, topics: TopicCounts, default_partitions: int) -> int:
    name = item.name or ""
    if not is_legal_name(name):
        return 0
    if name not in topics.by_name:
        return _UNKNOWN_COUNT_MUTATIONS
    current = topics.by_name[name]
    added = 0 if current is None else item.partitions - current
    # Manual assignments must list exactly the partitions that are added.
    return added if item.assignments in (-1, added) else 0


_COUNTERS: Final = {
    CREATE_TOPICS: _created,
    DELETE_TOPICS: _deleted,
    CREATE_PARTITIONS: _added,
}


def _parts(asked: Sequence[Any]) -> list[Sequence[Any]]:
    return [asked[start : start + ASKED_AT_ONCE] for start in range(0, len(asked), ASKED_AT_ONCE)]
