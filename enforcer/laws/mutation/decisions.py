"""Admission decisions as an enforcer reads them (docs/contract.md 3.1)."""

from dataclasses import dataclass
from typing import Final

from enforcer.core.law import DecisionReader
from streaming.contract.fields import TS_MAX_MS, Fields, flag, integer, names, signed, text

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


def admission_of(fields: Fields) -> Decision:
    """An admission decision from its JSON object.

    Raises:
        BadEvent: it is none, or a field in it is out of range.
    """
    ts = integer(fields, "ts", None, maximum=TS_MAX_MS)
    return Decision(
        id=text(fields, "id", None),
        ts=ts,
        proxy=text(fields, "proxy", ""),
        subject=text(fields, "subject", None),
        throttle_time_ms=min(integer(fields, "throttle_time_ms", None), LONGEST_THROTTLE_MS),
        rejected=frozenset(names(fields, "rejected")),
        limit=signed(fields, "limit"),
        tokens=signed(fields, "tokens"),
        rate=signed(fields, "rate"),
        shadow=flag(fields, "shadow", False),
        late=flag(fields, "late", False),
        applied_ts=integer(fields, "applied_ts", ts, maximum=TS_MAX_MS),
        refunds=tuple(names(fields, "refunds")) if "refunds" in fields else (),
    )


READER: Final = DecisionReader(type="admission", parse=admission_of, at=lambda decision: decision.at)
