"""Which policies concern which law: a shard is sent, and keeps, those only that it may ask for."""

from collections.abc import Iterator
from typing import Final

from streaming.contract.errors import BadEvent
from streaming.contract.events import PolicyChange
from streaming.laws.law import LawSpec
from streaming.laws.registry import LAWS
from streaming.policy.policy_set import Section, parse_path
from streaming.policy.timeline import PolicyTimeline

_NO_LIMITS: Final = frozenset({"resourcegroup"})
"""What a namespace may say and no law asks for: its group matters where its traffic is counted."""


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
