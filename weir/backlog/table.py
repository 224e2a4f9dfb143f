"""Topics by how near they are to their backlog quotas: what stands in a row, their order, and the table."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from streaming.contract.backlog.decisions import BacklogDecision
from streaming.contract.names import partitioned_topic_of
from streaming.contract.printable import printable
from streaming.policy.policy_set import UNLIMITED, PolicySet
from streaming.policy.topics import BacklogKind, BacklogQuota, backlog_quota
from weir.backlog.decisions import BacklogView


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One topic.

    Attributes:
        found: what was decided last.
        size, age: the quotas in force now, which may be others than the decision knew.
    """

    found: BacklogView
    size: BacklogQuota
    age: BacklogQuota

    @classmethod
    def of(cls, found: BacklogView, policies: PolicySet) -> Self:
        """The row of a topic under policies."""
        topic = found.decision.topic
        quotas = (backlog_quota(policies, topic, kind) for kind in (BacklogKind.SIZE, BacklogKind.AGE))
        return cls(found=found, size=next(quotas), age=next(quotas))

    @property
    def limited(self) -> bool:
        """Whether it has a quota."""
        return self.size.limit != UNLIMITED or self.age.limit > 0

    @property
    def of_size(self) -> float | None:
        """How much of its quota of size is used, 1: all; None: it has none."""
        return None if self.size.limit == UNLIMITED else _used(self.found.decision.size, self.size.limit)

    @property
    def of_age(self) -> float | None:
        """The same of its quota of time; None also if the age is not known. 0 s limits nothing."""
        decision = self.found.decision
        return None if self.age.limit <= 0 or decision.age < 0 else _used(decision.age, self.age.limit)

    @property
    def proximity(self) -> float:
        """How near it is to a quota, 1: at the nearer one."""
        return max(self.of_size or 0.0, self.of_age or 0.0)

    @property
    def exceeded(self) -> bool:
        """Whether it is beyond one of them (docs/contract.md 3.5: greater, not equal)."""
        return self.proximity > 1


def _used(value: float, limit: int) -> float:
    if limit == 0:
        return math.inf if value > 0 else 0.0
    return value / limit


def ordered(rows: Iterable[Row]) -> list[Row]:
    """The nearest to its quota first, those without one last, the largest of them first; then by name."""

    def place(row: Row) -> tuple[bool, float, float, str]:
        decision = row.found.decision
        return not row.limited, -row.proximity, -decision.size, decision.topic

    return sorted(rows, key=place)


def is_of(topic: str, wanted: str) -> bool:
    """Whether this is the wanted topic, or a partition of it.

    >>> is_of("persistent://a/n/t-partition-3", "persistent://a/n/t")
    True
    """
    return topic == wanted or partitioned_topic_of(topic) == wanted


HEAD: Final = ("", "TOPIC", "SIZE", "", "AGE", "", "OLDEST", "POLICY", "WOULD EVICT", "LOOKED AT")
_RIGHT: Final = (3, 5)
"""Columns of numbers."""
_WIDTH_MAX: Final = 100
"""A longer name widens its own row alone."""
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_NONE: Final = "-"


def table(rows: Sequence[Row], now_ms: int, limit: int) -> list[str]:
    """The lines of the table, with so many rows at most; a last line says how many there are more."""
    cells = [HEAD, *(tuple(map(printable, _cells(row, now_ms))) for row in rows[:limit])]
    widths = [min(_WIDTH_MAX, max(map(len, column))) for column in zip(*cells, strict=True)]
    lines = []
    for line in cells:
        padded = (
            f"{cell:>{width}}" if number in _RIGHT else f"{cell:<{width}}"
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        lines.append("  ".join(padded).rstrip())
    more = len(rows) - limit
    return lines if more <= 0 else [*lines, f"... and {more} more; --limit shows them, --topic T one"]


def _cells(row: Row, now_ms: int) -> tuple[str, ...]:
    decision = row.found.decision
    size, age = human_bytes(decision.size), _NONE if decision.age < 0 else human_seconds(decision.age)
    looked = f"{human_seconds(max(0, now_ms - decision.ts) // 1000)} ago"
    return (
        "!" if row.exceeded else "",
        decision.topic,
        size if row.size.limit == UNLIMITED else f"{size} / {human_bytes(row.size.limit)}",
        _percent(row.of_size),
        age if row.age.limit <= 0 else f"{age} / {human_seconds(row.age.limit)}",
        _percent(row.of_age),
        _NONE if decision.oldest is None else decision.oldest,
        _policy(row),
        _evicted(decision),
        f"{looked}, stale" if row.found.stale(now_ms) else looked,
    )


def _percent(used: float | None) -> str:
    if used is None:
        return ""
    # Rounded down: 100 % is not said of what is below.
    return "over" if math.isinf(used) else f"{math.floor(used * 100)} %"


def _policy(row: Row) -> str:
    """What the policies say, and whether it is carried out; once where both quotas say the same."""
    said = [
        (name, f"{quota.policy} ({'carried out' if quota.actions else 'reported only'})")
        for name, quota, limits in (
            ("size", row.size, row.size.limit != UNLIMITED),
            ("time", row.age, row.age.limit > 0),
        )
        if limits
    ]
    if not said:
        return _NONE
    if len({words for _, words in said}) == 1:
        return said[0][1]
    return ", ".join(f"{name}: {words}" for name, words in said)


def _evicted(decision: BacklogDecision) -> str:
    """What the decision plans."""
    by_size = [line for line in decision.evict if line.entries is not None]
    by_time = [line for line in decision.evict if line.before_publish_time is not None]
    words = []
    if by_size:
        entries = sum(line.entries or 0 for line in by_size)
        words.append(f"{entries} entries of {_who([line.subscription for line in by_size])}")
    if by_time:
        words.append(f"what is too old of {_who([line.subscription for line in by_time])}")
    return ", ".join(words) or _NONE


def _who(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} subscriptions"


def human_bytes(count: float) -> str:
    """Bytes as people read them.

    >>> human_bytes(1023), human_bytes(103_900), human_bytes(2**30 - 1)
    ('1023 B', '101.5 KiB', '1.0 GiB')
    """
    if count < 1024:
        return f"{count:.0f} B"
    last = len(_UNITS)
    power = next((power for power in range(1, last) if round(count / 1024**power, 1) < 1024), last)
    return f"{count / 1024**power:.1f} {_UNITS[power - 1]}"


def human_seconds(seconds: int) -> str:
    """A length of time in its two greatest units.

    >>> human_seconds(7), human_seconds(200), human_seconds(7_500), human_seconds(100_000)
    ('7s', '3m20s', '2h5m', '1d3h')
    """
    for unit, name, part, part_name in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "m"),
        (_MINUTE, "m", 1, "s"),
    ):
        if seconds >= unit:
            rest = seconds % unit // part
            return f"{seconds // unit}{name}" + (f"{rest}{part_name}" if rest else "")
    return f"{seconds}s"
