"""Concurrency limits as an enforcer reads them (docs/contract.md 3.4)."""

from dataclasses import dataclass
from typing import Final

from enforcer.core.law import DecisionReader
from streaming.contract.fields import TS_MAX_MS, Fields, integer, number, text

TTL_MS: Final = 60_000
"""How long a limit stands when nothing is heard."""
LIMIT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitDecision:
    """The limit of one partition.

    Attributes:
        partition: its name.
        ts: when it was decided, ms since the epoch; a repeated one keeps it.
        algorithm: the law that it was decided by.
        limit: requests in flight at all enforcers together.
        estimate: the same before it was cut to an integer.
        ttl_ms: how long it stands when nothing is heard.
    """

    partition: str
    ts: int
    algorithm: str
    limit: int
    estimate: float
    ttl_ms: int


def limit_of(fields: Fields) -> LimitDecision:
    """A limit from its JSON object.

    Raises:
        BadEvent: it is none, or a number in it is out of range.
    """
    limit = integer(fields, "limit", None, maximum=LIMIT_MAX)
    return LimitDecision(
        partition=text(fields, "partition", None),
        ts=integer(fields, "ts", None, maximum=TS_MAX_MS),
        algorithm=text(fields, "algorithm", None),
        limit=limit,
        estimate=number(fields, "estimated_limit", float(limit)),
        ttl_ms=integer(fields, "ttl_ms", TTL_MS, maximum=TS_MAX_MS),
    )


READER: Final = DecisionReader(type="limit", parse=limit_of, timely=True)
