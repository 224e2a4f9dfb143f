"""What stands in the way of a topic's producers: which quota of its backlog, and what is done about it."""

from dataclasses import dataclass
from typing import Final

from streaming.policy.policy_set import UNLIMITED, PolicySet
from streaming.policy.topics import BacklogKind, backlog_quota

HOLD: Final = "producer_request_hold"
EXCEPTION: Final = "producer_exception"
_WORDS: Final = {
    "size": ("backlog", BacklogKind.SIZE.value, "bytes"),
    "time": ("oldest unread message", BacklogKind.AGE.value, "s"),
}
_NEAR: Final = 0.5
"""Part of a limit from which on a backlog is kept in mind, for a limit that is lowered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The quota for which a topic takes nothing of its producers.

    Attributes:
        topic: full name.
        quota_type: `size` or `time`.
        policy: HOLD or EXCEPTION.
        limit: bytes or seconds.
        used: of it, by the newest decision.
        decision: id of the decision by which it began.
    """

    topic: str
    quota_type: str
    policy: str
    limit: int
    used: float
    decision: str

    @property
    def holds(self) -> bool:
        """Whether requests wait; if not, they are refused at once."""
        return self.policy == HOLD

    @property
    def kind(self) -> tuple[str, str]:
        """What tells it from another block of the same topic."""
        return self.quota_type, self.policy

    @property
    def message(self) -> str:
        """What a producer is told."""
        what, quota, unit = _WORDS[self.quota_type]
        return (
            f"Cannot produce to {self.topic}: its {what} of {self.used:,.0f} {unit} exceeds the quota {quota}"
            f" of {self.limit:,} {unit} ({self.policy})"
        )


def block_of(
    policies: PolicySet, topic: str, size: float, age: int, decision: str
) -> tuple[Block | None, bool]:
    """What some policies make of a topic's backlog.

    Args:
        topic: full name.
        size: of its backlog, bytes.
        age: of the oldest message, seconds; -1: not known, or no backlog.
        decision: id of the decision that says so.

    Returns:
        The block, of two the one that refuses; and whether the backlog is at least near such a quota.

    Raises:
        BadEvent: that is no topic's name.
    """
    found: Block | None = None
    near = False
    for kind in BacklogKind:
        quota = backlog_quota(policies, topic, kind)
        if not quota.actions or quota.policy not in (HOLD, EXCEPTION) or quota.limit == UNLIMITED:
            # It is not carried out by blocking producers.
            continue
        used = size if kind is BacklogKind.SIZE else age
        near = near or used > quota.limit * _NEAR
        # As the law has it: an age limit of 0 is none.
        exceeded = used > quota.limit and (kind is BacklogKind.SIZE or quota.limit > 0)
        if exceeded and (found is None or (found.holds and quota.policy == EXCEPTION)):
            found = Block(
                topic=topic,
                quota_type=kind.quota_type,
                policy=quota.policy,
                limit=quota.limit,
                used=used,
                decision=decision,
            )
    return found, near


def acts(policies: PolicySet) -> bool:
    """Whether any quota is there that may block producers."""
    return any(
        quota.get("actions", False) and quota.get("policy") in (HOLD, EXCEPTION)
        for entry in policies.entries.values()
        for quota in entry.get("backlogQuotaMap", {}).values()
    )
