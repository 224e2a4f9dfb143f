"""Decisions on deliveries as the admin API reads them from `weir.decisions` (docs/contract.md 3.3)."""

from dataclasses import dataclass
from typing import Final

from streaming.contract.errors import BadEvent
from streaming.contract.fields import TS_MAX_MS, Fields, applied_ts, choice, flag, integer, shown, text
from streaming.contract.names import namespace_of
from streaming.laws.dispatch.law import DIMENSIONS, LEVELS, NONE

CUTS: Final = tuple((level, dimension) for level in LEVELS for dimension in DIMENSIONS)
"""What may hold a subscription back."""
Counts = tuple[int, int]
"""Messages and bytes; NONE: not limited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchDecision:
    """What may still be delivered to a subscription at a broker.

    Attributes:
        broker: who delivers.
        topic: full name.
        subscription: its name.
        proxy: who reported the delivery, empty if it does not say.
        at: when this was so, ms since the epoch.
        available: what may still be delivered in that period, the least of all levels.
        throttle_ms: from `at` on, until something may be delivered in every limited dimension.
        limited_by: place in CUTS of what frees last; NONE: it is not throttled.
        acquired: by level what was delivered and is not paid off by periods; None: it does not say.
        repeated: said before.
    """

    broker: str
    topic: str
    subscription: str
    proxy: str
    at: int
    available: Counts
    throttle_ms: int
    limited_by: int
    acquired: tuple[Counts, ...] | None
    repeated: bool


def dispatch_of(fields: Fields) -> DispatchDecision:
    """A decision from its JSON object; raises BadEvent: it is none, or a number in it is out of range."""
    limited_by = _object(fields, "limited_by")
    acquired = _object(fields, "acquired")
    topic = text(fields, "topic", None)
    # Else no policy could be looked for, and whoever does would lose all that was read with it.
    namespace_of(topic)
    return DispatchDecision(
        broker=text(fields, "broker", None),
        topic=topic,
        subscription=text(fields, "subscription", None),
        proxy=text(fields, "proxy", ""),
        at=applied_ts(fields, integer(fields, "ts", None, maximum=TS_MAX_MS)),
        available=_counts(_object(fields, "available")),
        throttle_ms=integer(fields, "throttle_time_ms", None),
        limited_by=NONE if limited_by is None else CUTS.index(_counter(limited_by)),
        acquired=None if acquired is None else tuple(_counts(_object(acquired, name)) for name in LEVELS),
        repeated=flag(fields, "repeat", False),
    )


def _object(fields: Fields, key: str) -> Fields | None:
    value = fields.get(key)
    if value is not None and type(value) is not dict:
        raise BadEvent(f"{key}: {shown(value)}; an object was expected")
    return value


def _counter(fields: Fields) -> tuple[str, str]:
    return choice(fields, "level", "", LEVELS), choice(fields, "dimension", "", DIMENSIONS)


def _counts(fields: Fields | None) -> Counts:
    said = {name: count for name, count in (fields or {}).items() if count is not None}
    msgs, size = (integer(said, name, NONE) for name in DIMENSIONS)
    return msgs, size
