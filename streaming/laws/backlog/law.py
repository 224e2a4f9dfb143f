"""The law of backlogs: how much a topic holds back, for whom, and what must go (docs/contract.md 3.5).

Source: PIP-323, "Backlog" and "Backlog Quota"; docs/protocol_notes.md 4.6.

A topic's log is a row of ledgers, the last one open. The **oldest** subscription is the durable one with a
backlog and the smallest mark-delete position. The **size** of the backlog is the sum of the sizes of all
ledgers from the one that holds its oldest unacknowledged entry on (PIP-323's estimate), or with
`preciseBacklogSize` less what is acknowledged of that ledger, at its average entry size. The **age** is that
of the oldest unacknowledged message: from its publish time with `preciseTimeBasedBacklogQuotaCheck`, else
from the time its ledger was closed, unknown (-1) while that one is open.

Under `consumer_backlog_eviction` the plan names, for each subscription, the last entry to acknowledge: all
that are behind the first place at which the size is within the limit. That is what acknowledging ledger by
ledger (entry by entry, if precise), always for the oldest subscription, comes to.

Worked: ledger 1 of 100 entries and 103,600 bytes, closed 100 s ago, the open ledger 2 of 3
entries and 300 bytes; `slow` has acknowledged nothing. Size 103,900, age 100 s; under a limit of 100,000
bytes ledger 1 goes; with precise sizes 4 entries are enough, 103,900 - 4 x 1,036 = 99,756:

>>> ledgers = (Ledger(id=1, entries=100, size=103_600, close_time=1_795_166_600_000),
...            Ledger(id=2, entries=3, size=300, close_time=None))
>>> slow = Subscription(name="slow", ledger=1, entry=-1, durable=True, oldest_publish_time=1_795_166_500_000)
>>> for precise in (False, True):
...     log = Log(ledgers, precise=precise)
...     log.size(log.place(slow)), log.plan([slow], 100_000)[0]["entries"]
(103900.0, 100)
(103900.0, 4)

Where Pulsar differs (docs/protocol_notes.md 4.6) and we follow PIP-323 and our contract: it evicts down to
90 % of the limit and by a share of the entries that may round to nothing above the limit, ours is the least
that holds; it takes a size equal to the limit as exceeded and 0 as always, ours must be greater; it skips the
check of the time once the size is exceeded, ours always checks both, since PIP-323 counts evictions of each
kind; its size without the precise flag is already an estimate by entries.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from streaming.contract.broker_events import Backlog, Ledger, Subscription
from streaming.policy.policy_set import PolicySet, Section
from streaming.policy.topics import BacklogKind, backlog_quota

EVICTION: Final = "consumer_backlog_eviction"
UNKNOWN_AGE: Final = -1
Place = tuple[int, int]
"""(number of the ledger in the report, entries of it that are acknowledged)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A backlog quota: its limit (bytes, or seconds; -1: none) and what to do beyond it."""

    limit: int
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What applies to one topic.

    Attributes:
        size, age: the quotas of the two types.
        precise_size: acknowledged entries of the oldest ledger are taken off.
        precise_age: by publish time instead of the ledger's.
    """

    size: Quota
    age: Quota
    precise_size: bool
    precise_age: bool


def rules_for(policies: PolicySet, topic: str) -> Rules:
    """The rules for a topic: of each type the topic's quota, else the namespace's, else the broker's."""
    broker = policies.entries.get(Section.BROKER, {})
    return Rules(
        size=_quota(policies, topic, BacklogKind.SIZE),
        age=_quota(policies, topic, BacklogKind.AGE),
        precise_size=broker.get("preciseBacklogSize", False),
        precise_age=broker.get("preciseTimeBasedBacklogQuotaCheck", False),
    )


def _quota(policies: PolicySet, topic: str, kind: BacklogKind) -> Quota:
    found = backlog_quota(policies, topic, kind)
    return Quota(limit=found.limit, policy=found.policy)


class Log:
    """A topic's ledgers, and places in them.

    Args:
        ledgers: oldest first.
        precise: whether sizes count entries or whole ledgers.
    """

    __slots__ = ("_before", "_filled", "_ids", "_precise", "_rest", "end", "ledgers")

    def __init__(self, ledgers: Sequence[Ledger], *, precise: bool) -> None:
        self.ledgers = ledgers
        self.end = len(ledgers)
        self._precise = precise
        self._ids = [ledger.id for ledger in ledgers]
        self._before = list(accumulate((ledger.entries for ledger in ledgers), initial=0))
        sizes = accumulate((ledger.size for ledger in reversed(ledgers)), initial=0)
        self._rest = list(sizes)[::-1]  # bytes from each ledger on; nothing at the end
        numbers = range(self.end)[::-1]
        filled = accumulate(numbers, lambda after, n: n if ledgers[n].entries else after, initial=self.end)
        self._filled = list(filled)[::-1]  # from each ledger on, the first that holds an entry

    def place(self, subscription: Subscription) -> Place:
        """Where the oldest unacknowledged entry of a subscription is; number `end`: there is none."""
        number = bisect_left(self._ids, subscription.ledger)
        # A ledger that is not listed was trimmed, or removed while empty: those before it are read, and
        # nothing of those after it.
        if number < self.end and self._ids[number] == subscription.ledger:
            if subscription.entry + 1 < self.ledgers[number].entries:
                return number, subscription.entry + 1
            number += 1
        return self._filled[number], 0

    def size(self, place: Place) -> float:
        """Bytes of backlog of a subscription at `place`."""
        number, acknowledged = place
        if not self._precise or not acknowledged:
            return float(self._rest[number])
        ledger = self.ledgers[number]
        return (self._rest[number] * ledger.entries - acknowledged * ledger.size) / ledger.entries

    def exceeds(self, place: Place, limit: int) -> bool:
        """Whether that is more than `limit` bytes, in whole numbers."""
        number, acknowledged = place
        if not self._precise or not acknowledged:
            return self._rest[number] > limit
        ledger = self.ledgers[number]
        return (self._rest[number] - limit) * ledger.entries > acknowledged * ledger.size

    def first_within(self, limit: int) -> Place:
        """The first place at which the backlog is at most `limit` bytes (0 or more)."""
        number = next(number for number, rest in enumerate(self._rest) if rest <= limit)
        if not self._precise or number == 0:
            return number, 0
        before = self.ledgers[number - 1]
        surplus = self._rest[number - 1] - limit
        entries = -(-surplus * before.entries // before.size)
        return (number, 0) if entries >= before.entries else (number - 1, entries)

    def plan(self, subscriptions: Iterable[Subscription], limit: int) -> list[dict[str, Any]]:
        """What to acknowledge for a backlog of at most `limit` bytes: a line a subscription, by name."""
        target = self.first_within(limit)
        number, entries = target
        while number and not entries:  # the last entry before the target, in a ledger that has any
            number, entries = number - 1, self.ledgers[number - 1].entries
        lines = []
        for subscription in sorted(subscriptions, key=lambda each: each.name):
            place = self.place(subscription)
            if subscription.durable and place[0] < self.end and place < target:
                lines.append(
                    {
                        "subscription": subscription.name,
                        "ledger": self.ledgers[number].id,
                        "entry": entries - 1,
                        "entries": self._before[target[0]] + target[1] - self._before[place[0]] - place[1],
                    }
                )
        return lines


def judge(event: Backlog, rules: Rules) -> dict[str, Any]:
    """What a report says under `rules`: a decision (docs/contract.md 3.5) without type, id, ts, topic."""
    log = Log(event.ledgers, precise=rules.precise_size)
    behind = [each for each in event.subscriptions if each.durable and log.place(each)[0] < log.end]
    oldest = min(behind, key=lambda each: (each.ledger, each.entry, each.name), default=None)
    place = (log.end, 0) if oldest is None else log.place(oldest)
    age = UNKNOWN_AGE if oldest is None else _age_seconds(event, oldest, log.ledgers[place[0]], rules)
    exceeded = []
    if rules.size.limit >= 0 and log.exceeds(place, rules.size.limit):
        exceeded.append((BacklogKind.SIZE, rules.size))
    if 0 < rules.age.limit < age:
        exceeded.append((BacklogKind.AGE, rules.age))
    evict: list[dict[str, Any]] = []
    for kind, quota in exceeded:
        if quota.policy == EVICTION:
            evict += (
                log.plan(behind, quota.limit) if kind is BacklogKind.SIZE else _expire(event, quota.limit)
            )
    return {
        "backlogSize": log.size(place),
        "backlogQuotaLimitSize": rules.size.limit,
        "backlogQuotaLimitTime": rules.age.limit,
        "oldestBacklogMessageAgeSeconds": age,
        "oldestBacklogMessageSubscriptionName": None if oldest is None else oldest.name,
        "exceeded": [kind.value for kind, _ in exceeded],
        "actions": [{"quota_type": kind.quota_type, "policy": quota.policy} for kind, quota in exceeded],
        "evict": evict,
    }


def _age_seconds(event: Backlog, oldest: Subscription, ledger: Ledger, rules: Rules) -> int:
    """Age of the oldest unacknowledged message, floored; negative if the clocks disagree."""
    since = oldest.oldest_publish_time if rules.precise_age else ledger.close_time
    return UNKNOWN_AGE if since is None else (event.ts - since) // 1000


def _expire(event: Backlog, limit_seconds: int) -> list[dict[str, Any]]:
    """A line for every durable subscription whose oldest message, as sent, is older than the limit."""
    before = event.ts - limit_seconds * 1000
    return [
        {"subscription": each.name, "before_publish_time": before}
        for each in sorted(event.subscriptions, key=lambda each: each.name)
        if each.durable and each.oldest_publish_time is not None and each.oldest_publish_time < before
    ]
