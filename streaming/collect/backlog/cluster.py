"""What a collector of backlogs wants of a cluster, whichever kind it is: to be read, and to be relieved.

Positions are those of docs/contract.md 3.5: (ledger, entry) of the last entry that is acknowledged. Acting
moves a subscription to a position, never by a number of messages, so that doing it twice changes nothing.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from streaming.collect.backlog.metrics import BacklogMetrics
from streaming.contract.backlog.actions import BacklogAction, Position
from streaming.contract.backlog.decisions import EvictionPlan
from streaming.contract.broker_events import Backlog, Ledger, Subscription
from streaming.contract.errors import WeirError
from streaming.policy.policy_set import PolicySet

ORDER_MS: Final = 15_000
"""Limit of each step of an eviction; what was begun or left without an answer so long ago is settled."""
_LOST: Final = ("subscription", "how", "since", "upto", "messages", "bytes")


def now_ms() -> int:
    """Our clock, ms since the epoch."""
    return time.time_ns() // 1_000_000


def unnamed_report(
    topic: str, ts: int, ledgers: Iterable[Ledger], subscriptions: Iterable[Subscription]
) -> Backlog:
    """What is known of a topic that was read at `ts`, by our clock; whoever sends it gives it an id."""
    held, readers = tuple(ledgers), tuple(subscriptions)
    return Backlog(id="", ts=ts, at=ts, broker="", topic=topic, ledgers=held, subscriptions=readers)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundQuestion:
    """What a round needs to know, by the policies.

    Attributes:
        precise_age: publish times are needed: of each topic's oldest subscription.
        expires: full name of a topic -> whether those of all its subscriptions are, since its quota of time
            evicts.
        interval_s: from one look to the next.
    """

    precise_age: bool
    expires: Callable[[str], bool]
    interval_s: int = 0


@dataclass(slots=True, kw_only=True)
class RoundResult:
    """What a round has found.

    Attributes:
        reports: a topic each, see unnamed_report.
        unread: topics that are there and could not be read in this round.
        failures: why, a line each for the log; topics that have gone meanwhile are none.
        publish_times_missed: publish times that were wanted and not read in this round.
    """

    reports: list[Backlog] = field(default_factory=list)
    unread: int = 0
    failures: list[str] = field(default_factory=list)
    publish_times_missed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """How a line of a plan is carried out, known before it is.

    Attributes:
        topic: full name.
        subscription: its name.
        how: see BacklogAction.
        since, upto: its position now, and afterwards.
        messages, bytes: what that skips; bytes may be estimated.
        also: what others lose by the same act and the same plan, each for itself; of these it is empty.
    """

    topic: str
    subscription: str
    how: str
    since: Position
    upto: Position
    messages: int
    bytes: int
    also: tuple["Eviction", ...] = ()

    def lost(self) -> dict[str, Any]:
        """What an action says of it, by the same names."""
        return {name: getattr(self, name) for name in _LOST}


class CannotEvict(WeirError):
    """It cannot be carried out now and nothing was done; the next check tries again."""


class NotKnown(WeirError):
    """It is not known whether it was carried out: where the subscription stands tells."""


class BacklogCluster(Protocol):
    """A cluster that holds backlogs; it is looked at before anything else is asked of it."""

    async def look(self, wants: RoundQuestion) -> RoundResult:
        """Read all topics.

        Raises:
            WeirError: nothing could be read.
        """
        ...

    async def prepare(self, report: Backlog, planned: EvictionPlan, *, may_delete: bool) -> Eviction | None:
        """What a plan comes to, as things are now; None: there is nothing left to do.

        Args:
            report: that it was made of, as it was sent.
            planned: what a subscription must lose.
            may_delete: whether records may be deleted where the position cannot be moved.

        Raises:
            WeirError: why it cannot be carried out.
        """
        ...

    async def carry_out(self, eviction: Eviction) -> None:
        """Do it, and see that it was done.

        Raises:
            CannotEvict: it was refused, nothing was done.
            WeirError: it may have been done.
        """
        ...

    async def passed(self, topic: str, subscriptions: Sequence[tuple[str, Position]]) -> list[bool | None]:
        """Whether each of these subscriptions of a topic has come to a position, or further; None: not known.

        Raises:
            WeirError: nothing could be read.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorRun:
    """What one run of a collector works with.

    Attributes:
        name: of this run: of its reports and actions.
        policies: those in force now.
        log: writes an action; raises WeirError where it was not.
    """

    cluster: BacklogCluster
    name: str
    policies: Callable[[], PolicySet]
    log: Callable[[BacklogAction], Awaitable[None]]
    metrics: BacklogMetrics
