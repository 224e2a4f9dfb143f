"""A proxy that decides by itself, and what the tests of its book share."""

from collections.abc import Mapping
from typing import Any

from law_kit import Event

from enforcer.core.local.book import Book
from enforcer.core.local.forms import Own, Statement
from streaming.policy.timeline import PolicyTimeline

SUBJECT = "user=alice"


def quota_of(timeline: PolicyTimeline, ts: int, subject: str = SUBJECT) -> Any:
    """The quota in force."""
    return timeline.at(ts).mutation_quota_of_subject(subject)


def book_of(initial: Mapping[str, Any], subjects_max: int = 1_000, tail_max: int = 100_000) -> Book:
    """A book over policies that stay as they are."""
    return Book(PolicyTimeline(initial), subjects_max=subjects_max, tail_max=tail_max)


def statement_of(admission: Mapping[str, Any]) -> Statement:
    """An admission as the book takes it."""
    return Statement(
        subject=admission["subject"],
        id=admission["id"],
        at=admission.get("applied_ts", admission["ts"]),
        tokens=admission.get("tokens"),
        refunds=admission.get("refunds", ()),
    )


def own_of(event: Event) -> Own:
    """A request event as the book takes it."""
    return Own(
        id=event["id"],
        ts=event["ts"],
        strict=event.get("strict", True),
        dry=event.get("validate_only", False),
        items={item["name"]: item["mutations"] for item in event["items"]},
    )
