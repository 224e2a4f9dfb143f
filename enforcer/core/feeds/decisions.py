"""Decisions as the proxy reads them from `weir.decisions` (docs/contract.md 3.1 and 3.2)."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from confluent_kafka import Message

from enforcer.core.feeds.shares import Share, share_of
from enforcer.core.feeds.tail import Tail
from enforcer.core.feeds.unusable import Unusable, unheard
from streaming.contract.errors import BadEvent
from streaming.contract.events import load_object
from streaming.contract.fields import TS_MAX_MS, Fields, flag, integer, number, shown, text

LONGEST_THROTTLE_MS: Final = 2**31 - 1
"""What an answer of Kafka's protocol can say, 24.8 days; a longer wait is cut to it and asked about then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One admission decision.

    Attributes:
        id: the event that it is for.
        ts: when that was decided upon, ms since the epoch.
        proxy: who asked.
        subject: quota entity that was charged; empty if none.
        throttle_time_ms: how long the subject must wait, 0 if not.
        rejected: names of the items that were rejected.
        limit: mutations per second, None if nothing limits.
        tokens: balance afterwards (token_bucket), else None.
        rate: average of mutations per second afterwards, None if not given.
        shadow: decided, but not to be acted on.
        late: decided after the proxy's time limit.
    """

    id: str
    ts: int
    proxy: str
    subject: str
    throttle_time_ms: int
    rejected: frozenset[str]
    limit: float | None
    tokens: float | None
    rate: float | None
    shadow: bool
    late: bool


def parse_decision(value: bytes | None, unusable: Unusable = unheard) -> Decision | Share | None:
    """Read one record; None for types that no proxy acts on and for what is no decision at all.

    Never raises: the topic is written by the job, but anyone with access to the cluster could write to it.
    """
    try:
        fields = load_object(value or b"")
        kind = text(fields, "type", None)
        if kind == "share":
            return share_of(fields)
        return _admission(fields) if kind == "admission" else None
    except BadEvent as bad:
        unusable(bad.reason)
        return None


def _admission(fields: Fields) -> Decision:
    return Decision(
        id=text(fields, "id", None),
        ts=integer(fields, "ts", None, maximum=TS_MAX_MS),
        proxy=text(fields, "proxy", ""),
        subject=text(fields, "subject", None),
        throttle_time_ms=min(integer(fields, "throttle_time_ms", None), LONGEST_THROTTLE_MS),
        rejected=_names(fields.get("rejected")),
        limit=_number(fields, "limit"),
        tokens=_number(fields, "tokens"),
        rate=_number(fields, "rate"),
        shadow=flag(fields, "shadow", False),
        late=flag(fields, "late", False),
    )


def _names(rejected: Any) -> frozenset[str]:
    if type(rejected) is not list or not all(type(name) is str for name in rejected):
        raise BadEvent(f"rejected: {shown(rejected)}; a list of names was expected")
    return frozenset(rejected)


def _number(fields: Fields, key: str) -> float | None:
    """A finite number, of a debt negative; absent and null are none."""
    return None if fields.get(key) is None else number(fields, key, None, minimum=float("-inf"))


def decisions_tail(
    properties: Mapping[str, str],
    topic: str,
    deliver: Callable[[list[Decision | Share]], None],
    unusable: Unusable = unheard,
) -> Tail[Decision | Share]:
    """Follow the decisions of all proxies from now on.

    Others' decisions are wanted too: a subject that must wait must wait at every proxy. Shares that were
    decided earlier are `standing_shares`.
    """

    def parse(message: Message) -> Decision | Share | None:
        return parse_decision(message.value(), unusable)

    return Tail(properties, topic, from_beginning=False, parse=parse, deliver=deliver)


def standing_shares(
    properties: Mapping[str, str], topic: str, deliver: Callable[[list[Share]], None], back_ms: int
) -> Tail[Share]:
    """Read back the shares that still stand (docs/contract.md 1), each with what is left of its life time.

    A reader apart from `decisions_tail`, so that old admissions, of which there may be very many, never keep
    a request waiting for its own.

    Args:
        properties: librdkafka properties of the connection.
        topic: of the decisions.
        deliver: gets the shares of all brokers, in the loop.
        back_ms: the longest life time.
    """

    def parse(message: Message) -> Share | None:
        share = parse_decision(message.value())
        if not isinstance(share, Share):
            return None
        age_ms = max(0, time.time_ns() // 1_000_000 - message.timestamp()[1])
        return replace(share, ttl_ms=share.ttl_ms - age_ms) if age_ms < share.ttl_ms else None

    return Tail(properties, topic, from_beginning=False, back_ms=back_ms, parse=parse, deliver=deliver)
