"""Topics by how near they are to their backlog quotas: what stands in a row, and the order of rows."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from streaming.contract.names import partitioned_topic_of
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
