"""Where an event belongs: its law, and the routing key whose events must be seen in order.

And which policies concern which law: a shard is sent, and keeps, those only that it may ask for.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from streaming.contract.errors import BadEvent
from streaming.contract.events import MAX_AHEAD_MS, Alive, Event, PolicyChange, Tick
from streaming.laws.law import LawSpec
from streaming.laws.name_hashes import shard_of
from streaming.laws.registry import LAWS
from streaming.policy.policy_set import Section, parse_path
from streaming.policy.timeline import PolicyTimeline

LawShards = tuple[str, range]
"""A law, and numbers of its shards."""
_NO_LIMITS: Final = frozenset({"resourcegroup"})
"""What a namespace may say and no law asks for: its group matters where its traffic is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One shard that gets a record.

    Attributes:
        law: the law that decides it.
        shard: number of the shard.
        for_all: whether every shard that it concerns gets it, as a policy or a tick.
        value: the record's bytes, or the part of it that belongs there.
    """

    law: str
    shard: int
    for_all: bool
    value: bytes


def routes(
    value: bytes, *, default_id: str, default_ts: int | None, shards: int, timeline: PolicyTimeline | None,
    max_ahead_ms: int = MAX_AHEAD_MS,
) -> list[Route]:  # fmt: skip
    """Every shard that must see a record; a report of many groups is cut up by shard.

    A record that cannot be used has a place too, by its id: the step there writes the dead letter.

    Args:
        value: the record's bytes.
        default_id: its id if it names none.
        default_ts: its timestamp; None for a line of a file.
        shards: shards per law.
        timeline: resolves requests to their quota entity, whatever they say; None: they are trusted, and
            policies are not expected, which live have a topic of their own.
        max_ahead_ms: how far an event may lie after its record's timestamp; beyond, it cannot be used.
    """
    try:
        event = LAWS.parse(value, default_id=default_id, default_ts=default_ts, max_ahead_ms=max_ahead_ms)
        if isinstance(event, PolicyChange) and timeline is None:
            # Proxies and collectors do not go by it.
            raise BadEvent("type: a policy; on this topic none was expected")
        if isinstance(event, PolicyChange | Tick):
            return [
                Route(law=law, shard=shard, for_all=True, value=value)
                for law, own in _for_all(event, shards) for shard in own
            ]  # fmt: skip
        # Read by nobody but the proxies, it is only counted.
        law = LAWS.reporting if isinstance(event, Alive) else LAWS.by_event[type(event)]
        if isinstance(event, Alive):
            parts = [(shard_of(event.proxy, shards), value)]
        elif law.split is not None:
            parts = law.split(value, lambda key: shard_of(key, shards))
        else:
            parts = [(shard_of(law.routing_key(event, timeline), shards), value)]
    except BadEvent:
        law, parts = LAWS.reporting, [(shard_of(default_id, shards), value)]
    return [Route(law=law.name, shard=shard, for_all=False, value=part) for shard, part in parts]


def policy_shards(value: bytes, *, default_ts: int | None, shards: int) -> Iterator[LawShards]:
    """The shards that must see a record of `weir.policies`; arguments as of `routes`.

    What is no policy, or cannot be used, goes to those that see all, one of which writes the dead letter.
    """
    event = None
    with suppress(BadEvent):
        event = LAWS.parse(value, default_id="", default_ts=default_ts)
    return _for_all(event, shards)


def _for_all(event: Event | None, shards: int) -> Iterator[LawShards]:
    """The shards that must see a policy, a tick, or what is neither."""
    if isinstance(event, PolicyChange):
        for law, routing_key in concerned(event):
            own = 0 if routing_key is None else shard_of(routing_key, shards)
            yield law.name, range(shards) if routing_key is None else range(own, own + 1)
    else:
        for law in LAWS.by_name.values() if isinstance(event, Tick) else (LAWS.reporting,):
            yield law.name, range(shards)


def concerned(change: PolicyChange) -> Iterator[tuple[LawSpec, str | None]]:
    """The laws that a change is for, each with the routing key that it is for; None: any routing key."""
    try:
        entry = parse_path(change.path)
    except BadEvent:
        yield LAWS.reporting, None
        return
    for law in LAWS.by_name.values():
        if entry.section in law.sections:
            yield law, law.routing_key_of_policy(entry)
        elif law.versioned or law is LAWS.reporting:
            yield law, None


def take(change: PolicyChange, law: LawSpec, timeline: PolicyTimeline) -> None:
    """Bring a checked change into the timeline of a law."""
    section = parse_path(change.path).section
    if section in law.sections:
        value = change.value
        if section is Section.NAMESPACES and value is not None and value.keys() <= _NO_LIMITS:
            value = None
        timeline.apply(change.path, value, change.ts, change.version)
    elif law.versioned:
        timeline.count(change.ts, change.version)
