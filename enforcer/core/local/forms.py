"""What goes into a `book.Book` and what comes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Own(NamedTuple):
    """A request of one of our clients.

    Attributes:
        id: of its event.
        ts: now, ms on the brokers' clock.
        strict: it can be rejected.
        dry: validate_only.
        items: name -> mutations, in the request's order.
    """

    id: str
    ts: int
    strict: bool
    dry: bool
    items: Mapping[str, int]


class Answer(NamedTuple):
    """What a client is told at once.

    Attributes:
        outcome: allow, reject or throttle.
        rejected: names of the items that were rejected, in order.
        throttle_time_ms: how long its subject must wait.
        tokens: balance afterwards.
        ts: time that the event must carry, ms.
        between: refused though the law would have admitted it: nobody answers our questions.
    """

    outcome: str
    rejected: tuple[str, ...]
    throttle_time_ms: int
    tokens: float
    ts: int
    between: bool

    def decided(self) -> dict[str, Any]:
        """The field `decided` of the event."""
        return {
            "outcome": self.outcome,
            "rejected": list(self.rejected),
            "throttle_time_ms": self.throttle_time_ms,
            "tokens": self.tokens,
        }


class Statement(NamedTuple):
    """An admission, as far as it concerns a balance.

    Attributes:
        subject: the quota entity.
        id: of the event that was decided.
        at: its applied time, ms: `applied_ts`, else `ts`.
        tokens: balance afterwards; None: no token bucket limits.
        refunds: ids of the refunds that it lists.
    """

    subject: str
    id: str
    at: int
    tokens: float | None
    refunds: Sequence[str] = ()


@dataclass(slots=True)
class Counts:
    """What went past the ordinary, since the start.

    Attributes:
        folded: events that had to leave a tail before their admission was read.
        passed_over: statements that do not hold such events.
        forgotten: subjects that had to be forgotten while they had something to say.
        lost: events of which nothing will ever be said.
        between: requests refused since nobody answers questions.
        unnamed: admissions whose ids could not be kept: read again, they would count as new.
    """

    folded: int = 0
    passed_over: int = 0
    forgotten: int = 0
    lost: int = 0
    between: int = 0
    unnamed: int = 0
