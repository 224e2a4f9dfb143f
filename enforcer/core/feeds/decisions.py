"""Decisions as the proxy reads them from `weir.decisions` (docs/contract.md 3.1 and 3.2)."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from confluent_kafka import Message

from enforcer.core.feeds.rows import objects_of, packed
from enforcer.core.feeds.shares import Share, share_of
from enforcer.core.feeds.tail import Tail
from enforcer.core.feeds.unusable import Unusable, unheard
from streaming.contract.errors import BadEvent
from streaming.contract.events import load_object
from streaming.contract.fields import TS_MAX_MS, Fields, flag, integer, number, shown, text

_KINDS: Final = frozenset({"admission", "share"})
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
        applied_ts: when it was applied, if not at `ts`.
        refunds: ids of the refunds that are in `tokens` besides, and were not before.
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
    applied_ts: int | None = None
    refunds: tuple[str, ...] = ()

    @property
    def at(self) -> int:
        """When its balance was so, ms since the epoch."""
        return self.ts if self.applied_ts is None else self.applied_ts


def parse_decision(value: bytes | None, unusable: Unusable = unheard) -> Decision | Share | None:
    """Read one record in JSON; None for types that no proxy acts on and for what is no decision at all.

    Never raises: the topic is written by the job, but anyone with access to the cluster could write to it.
    """
    try:
        return _decision(load_object(value or b""))
    except BadEvent as bad:
        unusable(bad.reason)
        return None


def decisions_in(
    message: Message, own: str | None = None, unusable: Unusable = unheard
) -> list[Decision | Share]:
    """Read one record, single or packed; what cannot be used is left out. Never raises.

    Args:
        message: the record.
        own: name of this enforcer: packed shares of others are passed over by their key; None: all are read.
        unusable: told why something was left out.
    """
    key = message.key()
    if own is not None and key and key != own.encode() and packed(message):
        return []
    found: list[Decision | Share] = []
    try:
        for fields in objects_of(message, _KINDS):
            try:
                decision = _decision(fields)
            except BadEvent as bad:
                unusable(bad.reason)
                continue
            if decision is not None:
                found.append(decision)
    except BadEvent as bad:
        unusable(bad.reason)
    return found


def _decision(fields: Fields) -> Decision | Share | None:
    kind = text(fields, "type", None)
    if kind == "share":
        return share_of(fields)
    return _admission(fields) if kind == "admission" else None


def _admission(fields: Fields) -> Decision:
    ts = integer(fields, "ts", None, maximum=TS_MAX_MS)
    return Decision(
        id=text(fields, "id", None),
        ts=ts,
        proxy=text(fields, "proxy", ""),
        subject=text(fields, "subject", None),
        throttle_time_ms=min(integer(fields, "throttle_time_ms", None), LONGEST_THROTTLE_MS),
        rejected=frozenset(_texts(fields, "rejected")),
        limit=_number(fields, "limit"),
        tokens=_number(fields, "tokens"),
        rate=_number(fields, "rate"),
        shadow=flag(fields, "shadow", False),
        late=flag(fields, "late", False),
        applied_ts=integer(fields, "applied_ts", ts, maximum=TS_MAX_MS),
        refunds=tuple(_texts(fields, "refunds")) if "refunds" in fields else (),
    )


def _texts(fields: Fields, key: str) -> list[str]:
    texts = fields.get(key)
    if type(texts) is not list or not all(type(one) is str for one in texts):
        raise BadEvent(f"{key}: {shown(texts)}; a list of names was expected")
    return texts


def _number(fields: Fields, key: str) -> float | None:
    """A finite number, of a debt negative; absent and null are none."""
    return None if fields.get(key) is None else number(fields, key, None, minimum=float("-inf"))


def decisions_tail(
    properties: Mapping[str, str],
    topic: str,
    deliver: Callable[[list[Decision | Share]], None],
    unusable: Unusable = unheard,
    *,
    own: str | None = None,
    back_ms: int = 0,
) -> Tail[Decision | Share]:
    """Follow the decisions of all proxies.

    Others' decisions are wanted too: a subject that must wait must wait at every proxy. Shares that were
    decided earlier are `standing_shares`.

    Args:
        properties: librdkafka properties of the connection.
        topic: of the decisions.
        deliver: gets them, in the loop.
        unusable: told of what cannot be used.
        own: name of this enforcer (decisions_in).
        back_ms: begin so long before the newest record, 0: with the next one.
    """

    def parse(message: Message) -> list[Decision | Share]:
        return decisions_in(message, own, unusable)

    return Tail(
        properties,
        topic,
        from_beginning=False,
        back_ms=back_ms,
        from_newest=True,
        parse=parse,
        deliver=deliver,
    )


def standing_shares(
    properties: Mapping[str, str],
    topic: str,
    deliver: Callable[[list[Share]], None],
    back_ms: int,
    own: str | None = None,
) -> Tail[Share]:
    """Read back the shares that still stand (docs/contract.md 1), each with what is left of its life time.

    A reader apart from `decisions_tail`, so that old admissions, of which there may be very many, never keep
    a request waiting for its own.

    Args:
        properties: librdkafka properties of the connection.
        topic: of the decisions.
        deliver: gets the shares of all brokers, in the loop.
        back_ms: the longest life time.
        own: name of this enforcer (decisions_in).
    """

    def parse(message: Message) -> list[Share]:
        age_ms = max(0, time.time_ns() // 1_000_000 - message.timestamp()[1])
        return [
            replace(share, ttl_ms=share.ttl_ms - age_ms)
            for share in decisions_in(message, own)
            if isinstance(share, Share) and age_ms < share.ttl_ms
        ]

    return Tail(properties, topic, from_beginning=False, back_ms=back_ms, parse=parse, deliver=deliver)
