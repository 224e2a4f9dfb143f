"""Dispatch decisions as the proxy reads them (docs/contract.md 3.3): the counters behind them."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from enforcer.core.law import DecisionReader
from streaming.contract.errors import BadEvent
from streaming.contract.fields import TS_MAX_MS, Fields, integer, shown, text
from streaming.contract.names import namespace_of

_LEVELS: Final = ("broker", "topic", "subscription")


class CounterStatement(NamedTuple):
    """What a decision says of a broker's counters.

    Attributes:
        id: of the delivery that it is for.
        at: its applied time, ms since the epoch: `applied_ts`, else `ts`.
        proxy: who delivered; empty if it is not said.
        broker: upstream broker.
        topic: full name.
        subscription: its name, empty for consumers without a group.
        acquired: messages and bytes of the broker, the topic and the subscription; None: does not limit.
    """

    id: str
    at: int
    proxy: str
    broker: str
    topic: str
    subscription: str
    acquired: tuple[tuple[int, int] | None, ...]


def dispatch_of(fields: Fields) -> CounterStatement | None:
    """A dispatch decision from its JSON object; None: it does not tell its counters.

    Raises:
        BadEvent: it is none, or a field in it is out of range.
    """
    counters = fields.get("acquired")
    if counters is None:
        return None
    if not isinstance(counters, Mapping):
        raise BadEvent(f"acquired: {shown(counters)}; an object of counters by level was expected")
    ts = integer(fields, "ts", None, maximum=TS_MAX_MS)
    topic = text(fields, "topic", None)
    namespace_of(topic)
    return CounterStatement(
        id=text(fields, "id", None),
        at=integer(fields, "applied_ts", ts, maximum=TS_MAX_MS),
        proxy=text(fields, "proxy", ""),
        broker=text(fields, "broker", None),
        topic=topic,
        subscription=text(fields, "subscription", None),
        acquired=tuple(_counters(level, counters.get(level)) for level in _LEVELS),
    )


def _counters(level: str, said: object) -> tuple[int, int] | None:
    if said is None:
        return None
    if not isinstance(said, Mapping):
        raise BadEvent(f"acquired.{level}: {shown(said)}; an object of counts was expected")
    try:
        # In a packed record a dimension that does not limit is a null.
        counts = {name: count for name, count in said.items() if count is not None}
        return integer(counts, "msgs", 0), integer(counts, "bytes", 0)
    except BadEvent as error:
        raise BadEvent(f"acquired.{level}.{error.reason}") from error


READER: Final = DecisionReader(type="dispatch", parse=dispatch_of, at=lambda said: said.at)
