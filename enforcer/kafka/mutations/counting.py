"""What a request for partition mutations asks for, and what came of it (docs/protocol_notes.md 1.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from enforcer.kafka.mutations.costs import count_mutations
from enforcer.laws.mutation.request_events import Asked
from enforcer.wire.kafka.fields import NO_ID
from enforcer.wire.kafka.messages import TopicCounts
from enforcer.wire.kafka.mutations import MutationApi, MutationItem, MutationRequest, decode_answer

_COUNTED_FROM: Final = 5
"""The answer to CreateTopics tells how many partitions a topic has from this version on."""
Charged = Mapping[str, tuple[MutationItem, int]]
"""Name -> item and its mutations, of the items that cost something, in the request's order."""


def charged_items(request: MutationRequest, topics: TopicCounts, default_partitions: int) -> Charged:
    """The items that cost something, by name, by id where the name is not known."""
    named: dict[str, tuple[MutationItem, int]] = {}
    for cost in count_mutations(request, topics, default_partitions):
        if cost.charged and cost.mutations > 0:
            name = _name_of(cost.item, topics)
            # A topic may be called as another one's id is written; none may take another's place.
            while name in named:
                name += f"#{cost.item.position}"
            named[name] = (cost.item, cost.mutations)
    return named


def _name_of(item: MutationItem, topics: TopicCounts) -> str:
    if item.name is not None or item.topic_id is None:
        return item.name or ""
    return topics.names.get(item.topic_id, str(UUID(bytes=item.topic_id)))


def asked_of(request: MutationRequest, user: str, client_id: str, items: Charged) -> Asked:
    """What the event says about a request."""
    return Asked(
        user=user,
        client_id=client_id,
        api=request.api.event_name,
        api_version=request.version,
        strict=request.strict,
        validate_only=request.validate_only,
        items={name: mutations for name, (_, mutations) in items.items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What the broker did to one topic.

    Attributes:
        name: its name; None if neither request nor answer tells.
        topic_id: its id, None where the version has none.
        partitions: how many it has now; None: deleted, or not known.
        mutations: how many were made.
        foreseen: it was counted when the quota was asked.
    """

    name: str | None
    topic_id: bytes | None
    partitions: int | None
    mutations: int
    foreseen: bool


def changes_made(request: MutationRequest, items: Charged, response: bytes) -> dict[str, Change]:
    """What the broker carried out, by the name under which it was asked; what is missing was not done.

    Raises:
        BadFrame: the response ends too early or a length in it is impossible.
    """
    names = {item.position: name for name, (item, _) in items.items()}
    done = [part for part in decode_answer(request.api, request.version, response) if not part.error_code]
    by_name = {part.name: part for part in done}
    by_id = {part.topic_id: part for part in done}
    changes = {}
    for item in request.items:
        part = by_name.get(item.name) if item.topic_id is None else by_id.get(item.topic_id)
        if part is None:
            continue
        name = names.get(item.position)
        # Done though we took it for bound to fail: our view was stale, so charge what can be told.
        mutations = items[name][1] if name is not None else max(1, item.assignments)
        partitions = None
        if request.api is MutationApi.CREATE_TOPICS:
            # A creation with -1 took the cluster's default, which may not be what we guessed.
            told = part.num_partitions if request.version >= _COUNTED_FROM else item.partitions
            mutations = partitions = told if told > 0 else mutations
        elif request.api is MutationApi.CREATE_PARTITIONS:
            partitions = item.partitions
        changes[name or part.name or item.name or ""] = Change(
            name=part.name or item.name,
            topic_id=item.topic_id if part.topic_id == NO_ID else part.topic_id,
            partitions=partitions,
            mutations=mutations,
            foreseen=name is not None,
        )
    return changes
