"""Where an event belongs: its law, and the home whose events must be seen in order (design.md section 3)."""

import zlib
from dataclasses import dataclass

from streaming.contract.errors import BadEvent
from streaming.contract.events import PolicyChange, Refund, Request, parse
from streaming.contract.policy_timeline import PolicyTimeline
from streaming.laws import LAW_OF_TYPE, LAWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where one record goes.

    Attributes:
        law: the law that decides it.
        home: what must stay together and in order: the quota entity.
        subject: the quota entity, None if the record names none.
        broadcast: goes to every shard of every law: a policy.
    """

    law: str
    home: str
    subject: str | None = None
    broadcast: bool = False


def subject_at(event: Request | Refund, timeline: PolicyTimeline) -> str:
    """The quota entity that applies to an event at its time; empty: not limited (facts/kip599.md 1.6)."""
    quota = timeline.at(event.at).mutation_quota(event.user, event.client_id)
    return "" if quota is None else quota.subject


def route(value: bytes, timeline: PolicyTimeline, default_id: str) -> Route:
    """Replay's stateless step: resolve a record against the policies of its time, whatever it says itself.

    A record that cannot be used is routed too, by its id: its shard writes the dead letter.
    """
    try:
        event = parse(value, default_id=default_id, default_ts=None)
    except BadEvent:
        return Route(law=next(iter(LAWS)), home=default_id)
    if isinstance(event, PolicyChange):
        return Route(law="", home="", broadcast=True)
    subject = subject_at(event, timeline)
    law = LAW_OF_TYPE["refund" if isinstance(event, Refund) else "request"]
    return Route(law=law, home=home_of(subject, event.user), subject=subject)


def home_of(subject: str, user: str) -> str:
    """The home of a request: its quota entity; without one its user, so that such requests spread out."""
    return subject or f"user={user}"


def shard_of(home: str, shards: int) -> int:
    """Number of the shard that keeps `home`; CRC-32, which Spark has as a built-in too."""
    return zlib.crc32(home.encode()) % shards
