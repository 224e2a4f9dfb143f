"""One batch of requests on its way through the law of mutations, up to what the law says."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from streaming.columns.byte_strings import Integers
from streaming.laws.mutation.intake import OrderedRequests
from streaming.laws.mutation.law import PERMISSIVE, REFUND, REFUSED, STRICT, Events, Flags, Results
from streaming.laws.mutation.rates import Doubles
from streaming.laws.mutation.requests import ANSWERED, DECIDED, DRY, LATE, REJECT_LATE, Requests
from streaming.laws.mutation.requests import REFUND as IS_REFUND
from streaming.laws.mutation.requests import STRICT as IS_STRICT
from streaming.policy.derived import stretches
from streaming.policy.timeline import PolicyTimeline


class Label(NamedTuple):
    """What decisions of one stretch say of the terms by which they were made.

    Attributes:
        sampled: 0 token bucket, 1 sampled rate, -1 not limited.
        routing_key: number of each term's routing key.
        rate: mutations per second.
        version: of the policies.
        shadow: decided, not enforced.
    """

    sampled: Integers
    routing_key: Integers
    rate: Doubles
    version: Integers
    shadow: Flags


class PolicySpan(NamedTuple):
    """Events between two changes of policy.

    Attributes:
        order: their rows, in order.
        routing_keys: numbers of the routing keys that they belong to, ascending.
        base: number of the first one's terms.
        at: time of the earliest, ms.
    """

    order: Integers
    routing_keys: Integers
    base: int
    at: int


@dataclass(slots=True, kw_only=True)
class MutationBatch:
    """A batch and what has been said of it so far.

    Attributes:
        asked: what is asked.
        late: of each row: the proxy had answered without us (docs/contract.md 3.1).
        events: the law's columns; a row an event.
        results: what the law says; a row an event.
        labels: of each stretch that has been walked.
        refunds: the ids that admissions list, by row; see statements.list_refunds.
    """

    asked: OrderedRequests
    late: Flags
    events: Events
    results: Results
    labels: list[Label] = field(default_factory=list)
    refunds: Mapping[int, list[str]] = field(default_factory=dict)

    @property
    def label(self) -> Label:
        """All labels as one: a row a term."""
        return Label(*(np.concatenate(columns) for columns in zip(*self.labels, strict=True)))

    def move_on(self, seen: Integers) -> None:
        """Apply no event before the time (ms) that its subject has seen, given for each of `asked.order`."""
        order = self.asked.order
        self.events.at[order] = np.maximum(self.events.at[order], seen)

    def stretches(self, timeline: PolicyTimeline) -> Iterator[PolicySpan]:
        """The events by stretch of time, in order; their terms are numbered on the way."""
        order, of = self.asked.order, self.asked.routing_keys.of
        at = self.events.at[order]
        base = 0
        for rows, earliest in stretches(at, timeline):
            if len(rows) == len(at):
                # Most batches see no change of policy, and everybody has an event.
                present, spot = np.arange(len(self.asked.routing_keys.names)), of
            else:
                present, spot = np.unique(of[rows], return_inverse=True)
            self.events.term[order[rows]] = base + spot
            yield PolicySpan(order=order[rows], routing_keys=present, base=base, at=earliest)
            base += len(present)


def begin(
    asked: OrderedRequests, processed_ts: int | None, *, as_decided: bool, anew: bool = False
) -> MutationBatch:
    """Columns for the law, before it has said anything.

    Args:
        asked: what is asked.
        processed_ts: when the batch began on the brokers' clock, ms; None in a replay, where the log says
            itself what was late.
        as_decided: what the proxies have decided stands; False: it is decided anew.
        anew: so is what they have refused by themselves.
    """
    requests, count = asked.requests, len(asked.requests.flags)
    late = _is_late(requests, processed_ts)
    # Copies of one kind each: compiled code is compiled anew for arrays that may not be written to.
    events = Events(
        at=requests.at.copy(), of_ts=requests.of_ts.copy(), mode=_modes(requests, late, anew),
        decided=(requests.flags & DECIDED != 0) & as_decided, dry=requests.flags & DRY != 0,
        first=requests.first.copy(), items=requests.items.copy(),
        mutations=requests.mutations.astype(np.float64), term=np.empty(count, dtype=np.int64),
    )  # fmt: skip
    results = Results(
        outcome=requests.outcome.copy(), wait_ms=requests.wait_ms.copy(), level=np.empty(count),
        plain_rate=np.empty(count), rejected=requests.gone.copy(),
        own_outcome=np.empty(count, dtype=np.int64),
        own_rejected=np.empty(len(requests.mutations), dtype=np.bool_),
    )  # fmt: skip
    return MutationBatch(asked=asked, late=late, events=events, results=results)


def _is_late(requests: Requests, processed_ts: int | None) -> Flags:
    """Whether the proxy had answered each event without us: the log says so, or the time of the batch."""
    late: Flags = requests.flags & LATE != 0
    if processed_ts is not None:
        waited = requests.deadline_ms
        late |= (waited >= 0) & (processed_ts - requests.ts > waited)
    # Whoever has answered by itself has waited for nothing.
    late &= requests.flags & DECIDED == 0
    return late


def _modes(requests: Requests, late: Flags, anew: bool) -> Integers:
    """How each event is taken: late ones cannot be rejected any more, or were; `anew`: see `begin`."""
    flags = requests.flags
    refused = (flags & ANSWERED != 0) | (late & (flags & REJECT_LATE != 0))
    mode = np.where(late | (flags & IS_STRICT == 0), PERMISSIVE, STRICT)
    mode[refused] = STRICT if anew else REFUSED
    mode[flags & IS_REFUND != 0] = REFUND
    return mode
