"""Dead letters as written; admissions, shares and limits as read (docs/contract.md 1 and 3).

Every engine writes dead letters with this code: Java and Python print doubles differently, and the bytes must
not depend on who decided.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import orjson

from streaming.contract.errors import BadEvent
from streaming.contract.fields import TS_MAX_MS, Fields, flag, integer, names, number, shown, signed, text

DECISIONS: Final = "decisions"
DEADLETTER: Final = "deadletter"
CANDIDATE: Final = "candidate"
"""The field of a decision that was made by policies which are only tried: it names them, and nobody goes by
it. Such a decision stands in a record of its own, never in a packed one."""
LATE_MS: Final = 60_000
"""A share or a limit is not too late to be written for so long, however short its life time: a job that lags
behind rounds of a second is of more use than one that says nothing."""
LONGEST_THROTTLE_MS: Final = 2**31 - 1
"""What an answer of Kafka's protocol can say, 24.8 days; a longer wait is cut to it and asked about then."""
LIMIT_TTL_MS: Final = 60_000
"""How long a limit on requests in flight stands when nothing is heard."""
LIMIT_MAX: Final = 2**31 - 1
"""The original laws keep limits and counts in Java's int."""
RECORD_BYTES_MAX: Final = 1_000_000
"""Of key and value. Kafka's default message.max.bytes is 1,048,588; the rest is left to headers and the
batch's overhead."""


def dead_letter(
    *, reason: str, topic: str, partition: int, offset: int, ts: int | None, value: bytes,
    row: int | None = None,
) -> bytes:  # fmt: skip
    """The JSON of a record that could not be used (docs/contract.md 1).

    Args:
        reason: what was wrong and what was expected.
        topic: where it came from; the base name of a file in a replay.
        partition: its partition; 0 for a file.
        offset: its offset; the line number, from 1, for a file.
        ts: the record's timestamp in ms, None if it has none.
        value: its bytes, unchanged; of a row of a packed record its JSON object.
        row: number of that row, from 0; None: it is none.
    """
    return orjson.dumps(
        {
            "type": "dead_letter",
            "reason": reason,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            **({} if row is None else {"row": row}),
            "ts": ts,
            "value_base64": base64.b64encode(value).decode(),
        }
    )


class Admission(NamedTuple):
    """A decision on a request for partition mutations (docs/contract.md 3.1).

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
        mutations: that were charged.
        shadow: decided, but not to be acted on.
        late: decided after the proxy's time limit.
        applied_ts: when it was applied, if not at `ts`.
        refunds: ids of the refunds that are in `tokens` besides, and were not before.
        differs: it was decided at a proxy, and the law would have said otherwise.
    """

    id: str
    ts: int
    proxy: str
    subject: str
    throttle_time_ms: int
    rejected: frozenset[str]
    limit: float | None
    tokens: float | None
    rate: float | None = None
    mutations: int = 0
    shadow: bool = False
    late: bool = False
    applied_ts: int | None = None
    refunds: tuple[str, ...] = ()
    differs: bool = False

    @property
    def at(self) -> int:
        """When its balance was so, ms since the epoch."""
        return self.ts if self.applied_ts is None else self.applied_ts


def admission_of(fields: Fields) -> Admission:
    """An admission from its JSON object.

    Raises:
        BadEvent: it is none, or a field in it is out of range.
    """
    ts = integer(fields, "ts", None, maximum=TS_MAX_MS)
    return Admission(
        id=text(fields, "id", None),
        ts=ts,
        proxy=text(fields, "proxy", ""),
        subject=text(fields, "subject", None),
        throttle_time_ms=min(integer(fields, "throttle_time_ms", None), LONGEST_THROTTLE_MS),
        rejected=frozenset(names(fields, "rejected")),
        limit=signed(fields, "limit"),
        tokens=signed(fields, "tokens"),
        rate=signed(fields, "rate"),
        mutations=integer(fields, "mutations", 0),
        shadow=flag(fields, "shadow", False),
        late=flag(fields, "late", False),
        applied_ts=integer(fields, "applied_ts", ts, maximum=TS_MAX_MS),
        refunds=tuple(names(fields, "refunds")) if "refunds" in fields else (),
        differs="law" in fields,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One broker's share of a group.

    Attributes:
        group: its name.
        broker: whose share it is.
        ts: when it was decided, ms since the epoch; a repeated one keeps it.
        ttl_ms: how long it stands when nothing is heard.
        limits: dimension -> what the broker may use per second; None: it is no member any more.
        usage: dimension -> what it used per second.
    """

    group: str
    broker: str
    ts: int
    ttl_ms: int
    limits: Mapping[str, float] | None
    usage: Mapping[str, float]


def share_of(fields: Fields) -> Share:
    """A share from its JSON object.

    Raises:
        BadEvent: it is none, or a number in it is out of range.
    """
    return Share(
        group=text(fields, "group", None),
        broker=text(fields, "broker", None),
        ts=integer(fields, "ts", None, maximum=TS_MAX_MS),
        ttl_ms=integer(fields, "ttl_ms", None, maximum=TS_MAX_MS),
        limits=None if "limits" in fields and fields["limits"] is None else _rates(fields, "limits"),
        usage=_rates(fields, "usage") if "usage" in fields else {},
    )


def _rates(fields: Fields, key: str) -> dict[str, float]:
    rates = fields.get(key)
    if not isinstance(rates, Mapping):
        raise BadEvent(f"{key}: {shown(rates)}; an object of rates was expected")
    try:
        return {name: number(rates, name, None) for name in rates}
    except BadEvent as error:
        raise BadEvent(f"{key}.{error.reason}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitDecision:
    """The limit of one partition on requests in flight (docs/contract.md 3.4).

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
        ttl_ms=integer(fields, "ttl_ms", LIMIT_TTL_MS, maximum=TS_MAX_MS),
    )
