"""Where an event belongs: its law, and the routing key whose events must be seen in order."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from streaming.contract.broker_events import Backlog, Latency
from streaming.contract.errors import BadEvent
from streaming.contract.events import LawEvent, PolicyChange, Refund, Request, parse
from streaming.contract.usage_events import DispatchUsage, GroupUsage, Tick, split_group_usage
from streaming.laws.policy_routing import REPORTING_LAW, concerned
from streaming.laws.registry import LAW_OF_EVENT, LAWS, TICKED_LAWS
from streaming.policy.timeline import PolicyTimeline

LawShards = tuple[str, Sequence[int]]
"""A law, and numbers of its shards."""


class Origin(IntEnum):
    """Who else gets a record."""

    EVENT = 0
    """Nobody: it belongs to one routing key."""
    BROADCAST = 1
    """Every shard that it concerns: a policy or a tick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One shard that gets a record.

    Attributes:
        law: the law that decides it.
        shard: number of the shard.
        origin: whether other shards get it too.
        value: the record's bytes, or the part of it that belongs there.
    """

    law: str
    shard: int
    origin: Origin
    value: bytes


def subject_at(event: Request | Refund, timeline: PolicyTimeline) -> str:
    """The quota entity that applies to an event at its time; empty: not limited (facts/kip599.md 1.6)."""
    quota = timeline.at(event.at).mutation_quota(event.user, event.client_id)
    return "" if quota is None else quota.subject


def routes(
    value: bytes, *, default_id: str, default_ts: int | None, shards: int, timeline: PolicyTimeline | None
) -> list[Route]:
    """Every shard that must see a record; a report of many groups is cut up by shard.

    A record that cannot be used has a place too, by its id: the step there writes the dead letter.

    Args:
        value: the record's bytes.
        default_id: its id if it names none.
        default_ts: its timestamp; None for a line of a file.
        shards: shards per law.
        timeline: resolves requests to their quota entity, whatever they say; None: they are trusted.
    """
    try:
        event = parse(value, default_id=default_id, default_ts=default_ts)
        if isinstance(event, PolicyChange):
            return _broadcast(_shards_of(event, shards), value)
        if isinstance(event, Tick):
            return _broadcast(_everywhere(TICKED_LAWS, shards), value)
        if isinstance(event, GroupUsage):
            parts = split_group_usage(value, lambda group: shard_of(group, shards))
        else:
            parts = [(shard_of(_routing_key(event, timeline), shards), value)]
    except BadEvent:
        return [
            Route(law=REPORTING_LAW, shard=shard_of(default_id, shards), origin=Origin.EVENT, value=value)
        ]
    law = LAW_OF_EVENT[type(event)]
    return [Route(law=law, shard=shard, origin=Origin.EVENT, value=part) for shard, part in parts]


def policy_shards(value: bytes, *, default_ts: int | None, shards: int) -> Iterator[LawShards]:
    """The shards that must see a record of `weir.policies`; arguments as of `routes`.

    What is no policy, or cannot be used, goes to those that see all, one of which writes the dead letter.
    """
    try:
        event = parse(value, default_id="", default_ts=default_ts)
    except BadEvent:
        event = None
    if isinstance(event, PolicyChange):
        return _shards_of(event, shards)
    return _everywhere(tuple(LAWS) if isinstance(event, Tick) else (REPORTING_LAW,), shards)


def routing_key_of(subject: str, user: str) -> str:
    """The routing key of a request: its quota entity; without one its user, so that they spread out."""
    return subject or f"user={user}"


def shard_of(routing_key: str, shards: int) -> int:
    """Number of the shard that keeps `routing key`; CRC-32, which Spark has as a built-in too."""
    return zlib.crc32(routing_key.encode()) % shards


def _routing_key(event: LawEvent, timeline: PolicyTimeline | None) -> str:
    if isinstance(event, Request | Refund):
        subject = event.subject or "" if timeline is None else subject_at(event, timeline)
        return routing_key_of(subject, event.user)
    if isinstance(event, DispatchUsage):
        return event.broker
    if isinstance(event, Latency):
        return event.partition
    assert isinstance(event, Backlog)
    return event.topic


def _shards_of(change: PolicyChange, shards: int) -> Iterator[LawShards]:
    for law, routing_key in concerned(change):
        yield law, range(shards) if routing_key is None else (shard_of(routing_key, shards),)


def _everywhere(laws: tuple[str, ...], shards: int) -> Iterator[LawShards]:
    for law in laws:
        yield law, range(shards)


def _broadcast(found: Iterator[LawShards], value: bytes) -> list[Route]:
    return [
        Route(law=law, shard=shard, origin=Origin.BROADCAST, value=value)
        for law, own in found
        for shard in own
    ]
