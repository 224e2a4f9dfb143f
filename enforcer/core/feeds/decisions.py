"""Decisions as the proxy reads them from `weir.decisions` (docs/contract.md 3.1 to 3.5)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from confluent_kafka import Message

from enforcer.core.feeds.dispatches import Dispatched, dispatch_of
from enforcer.core.feeds.limits import LimitDecision, limit_of
from enforcer.core.feeds.rows import objects_of, packed
from enforcer.core.feeds.shares import Elsewhere, Share, elsewhere_in, share_of
from enforcer.core.feeds.tail import Tail
from enforcer.core.feeds.unusable import Unusable, unheard
from streaming.contract.backlog.decisions import BacklogDecision, backlog_decision
from streaming.contract.decisions import LATE_MS
from streaming.contract.errors import BadEvent
from streaming.contract.events import MAX_AHEAD_MS
from streaming.contract.fields import TS_MAX_MS, Fields, flag, integer, number, shown, text
from streaming.contract.names import namespace_of

_KINDS: Final = frozenset({"admission", "share", "dispatch", "limit", "backlog"})
_UNREAD: Final = {"backlog": frozenset({"evict"})}
"""What no enforcer needs of packed ones; the plan of one topic may name thousands of subscriptions."""
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


Timely = TypeVar("Timely", Share, LimitDecision)
Read = Decision | Share | Elsewhere | Dispatched | LimitDecision | BacklogDecision
"""What is read of the decisions."""


def decisions_in(
    message: Message,
    own: str | None = None,
    unusable: Unusable = unheard,
    *,
    now_ms: Callable[[int], int] | None = None,
) -> list[Read]:
    """Read one record, single or packed; what cannot be used is left out, and types that no proxy acts on.

    Never raises: the topic is written by the job, but anyone with access to the cluster could write to it.

    Args:
        message: the record.
        own: name of this enforcer: of packed shares of others nothing but the groups is read; None: all are
            read.
        unusable: told why something was left out.
        now_ms: the time of a record -> now, ms since the epoch. What is far ahead of it is left out: by it
            all that comes would be passed over as older, until then. None: any time will do.
    """
    key, said_ms = message.key(), message.timestamp()[1]
    latest_ms = TS_MAX_MS
    if now_ms is not None:
        # The time of a record may be that of whoever wrote it.
        latest_ms, said_ms = now_ms(said_ms) + MAX_AHEAD_MS, min(said_ms, now_ms(said_ms))
    found: list[Read] = []
    try:
        if own is not None and key and key != own.encode() and packed(message):
            return [elsewhere_in(message.value() or b"", said_ms)]
        for fields in objects_of(message, _KINDS, _UNREAD):
            try:
                decision = _decision(fields, said_ms, latest_ms)
            except BadEvent as bad:
                unusable(bad.reason)
                continue
            if decision is not None:
                found.append(decision)
    except BadEvent as bad:
        unusable(bad.reason)
    return found


def _decision(fields: Fields, said_ms: int, latest_ms: int) -> Read | None:
    kind = text(fields, "type", None)
    if kind == "share":
        return _in_time(share_of(fields), fields, said_ms, latest_ms)
    if kind == "dispatch":
        return dispatch_of(fields, latest_ms)
    if kind == "limit":
        return _in_time(limit_of(fields), fields, said_ms, latest_ms)
    if kind == "backlog":
        return _backlog(fields, latest_ms)
    if kind != "admission":
        return None
    decision = _admission(fields)
    if decision.at > latest_ms:
        raise BadEvent(f"applied at {decision.at}, which is too far ahead; {latest_ms} at most was expected")
    return decision


def _in_time(found: Timely, fields: Fields, said_ms: int, latest_ms: int) -> Timely:
    """A share or limit, whose receivers go by the one that comes last.

    Raises:
        BadEvent: it is of another time than that at which it was written.
    """
    if found.ts > latest_ms:
        raise BadEvent(f"of {found.ts}, which is too far ahead; {latest_ms} at most was expected")
    if said_ms - found.ts > max(found.ttl_ms, LATE_MS) and not flag(fields, "repeat", False):
        raise BadEvent(f"of {found.ts} and written at {said_ms}, when its life time was over")
    return found


def _backlog(fields: Fields, latest_ms: int) -> BacklogDecision:
    decision = backlog_decision(fields)
    namespace_of(decision.topic)
    if decision.ts > latest_ms:
        raise BadEvent(f"of {decision.ts}, which is too far ahead; {latest_ms} at most was expected")
    return decision


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
    deliver: Callable[[list[Read]], None],
    unusable: Unusable = unheard,
    *,
    own: str | None = None,
    back_ms: int = 0,
    now_ms: Callable[[int], int] | None = None,
) -> Tail[Read]:
    """Follow the decisions of all proxies.

    Others' decisions are wanted too: a subject that must wait must wait at every proxy. Shares that were
    decided earlier are `standing`.

    Args:
        properties: librdkafka properties of the connection.
        topic: of the decisions.
        deliver: gets them, in the loop.
        unusable: told of what cannot be used.
        own: name of this enforcer (decisions_in).
        back_ms: begin so long before the newest record, 0: with the next one.
        now_ms: see decisions_in.
    """

    def parse(message: Message) -> list[Read]:
        return decisions_in(message, own, unusable, now_ms=now_ms)

    return Tail(
        properties,
        topic,
        from_beginning=False,
        back_ms=back_ms,
        from_newest=True,
        parse=parse,
        deliver=deliver,
    )


Standing = Share | Elsewhere | BacklogDecision
"""What holds until something else is said, and is read back at the start."""


def standing(
    properties: Mapping[str, str],
    topic: str,
    deliver: Callable[[list[Standing]], None],
    back_ms: int,
    *,
    own: str,
    now_ms: Callable[[int], int],
) -> Tail[Standing]:
    """Read back the shares and backlogs that still stand (docs/contract.md 1), each with what is left of its
    life time.

    A reader apart from `decisions_tail`, so that old admissions, of which there may be very many, never keep
    a request waiting for its own.

    Args:
        properties: librdkafka properties of the connection.
        topic: of the decisions.
        deliver: gets them, of all brokers and topics, in the loop.
        back_ms: the longest life time.
        own: name of this enforcer (decisions_in).
        now_ms: see decisions_in; never before the record's own time.
    """

    def parse(message: Message) -> list[Standing]:
        age_ms = now_ms(message.timestamp()[1]) - message.timestamp()[1]
        return [
            replace(said, ttl_ms=said.ttl_ms - age_ms)
            for said in decisions_in(message, own, now_ms=now_ms)
            if isinstance(said, Share | Elsewhere | BacklogDecision) and age_ms < said.ttl_ms
        ]

    return Tail(
        properties,
        topic,
        from_beginning=False,
        back_ms=back_ms,
        from_newest=True,
        parse=parse,
        deliver=deliver,
    )
