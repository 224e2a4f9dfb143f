"""One batch of requests on its way through the law of mutations, from columns to written decisions."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers, bytes_in
from streaming.columns.compiled import lean
from streaming.columns.json_write import doubles_as_json, ends_of
from streaming.columns.outputs import DecisionColumns, escaped
from streaming.laws.mutation.admission_json import Labels, write
from streaming.laws.mutation.intake import Asked, RoutingKeys
from streaming.laws.mutation.law import PERMISSIVE, REFUND, REFUSED, STRICT, Events, Results, Terms
from streaming.laws.mutation.rates import Doubles
from streaming.laws.mutation.requests import ANSWERED, DECIDED, DRY, ID, LATE, REJECT_LATE, Requests
from streaming.laws.mutation.requests import REFUND as IS_REFUND
from streaming.laws.mutation.requests import STRICT as IS_STRICT
from streaming.policy.derived import stretches
from streaming.policy.timeline import PolicyTimeline

ADMISSION: Final = "admission"
NO_CLOCK = -(2**62)
"""For the time of a batch where there is none, in a replay: nothing is late by the clock."""


class Label(NamedTuple):
    """What decisions of one stretch say of their terms; see `write.Labels`."""

    sampled: Integers
    routing_key: Integers
    rate: Doubles
    version: Integers
    shadow: NDArray[np.bool_]


class Stretch(NamedTuple):
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
class Walked:
    """A batch and what has been said of it so far.

    Attributes:
        asked: what is asked.
        late: of each row: the proxy had answered without us (docs/contract.md 3.1).
        events: the law's columns; a row a record.
        results: what the law says; a row a record.
        labels: of each stretch that has been walked.
    """

    asked: Asked
    late: NDArray[np.bool_]
    events: Events
    results: Results
    labels: list[Label] = field(default_factory=list)

    @property
    def routing_keys(self) -> RoutingKeys:
        """The quota entities of the events."""
        return self.asked.routing_keys

    def move_on(self, seen: Integers) -> None:
        """Apply no event before the time (ms) that its subject has seen, given for each of `asked.order`."""
        order = self.asked.order
        self.events.at[order] = np.maximum(self.events.at[order], seen)

    def stretches(self, timeline: PolicyTimeline) -> Iterator[Stretch]:
        """The events by stretch of time, in order; their terms are numbered on the way."""
        order, of = self.asked.order, self.asked.routing_keys.of
        at = self.events.at[order]
        base = 0
        for rows, earliest in stretches(at, timeline):
            if len(rows) == len(at):
                # Most batches see no change of policy, and everybody has an event.
                present, spot = np.arange(len(self.routing_keys.names)), of
            else:
                present, spot = np.unique(of[rows], return_inverse=True)
            self.events.term[order[rows]] = base + spot
            yield Stretch(order=order[rows], routing_keys=present, base=base, at=earliest)
            base += len(present)


def begin(asked: Asked, processed_ts: int | None, *, as_decided: bool) -> Walked:
    """Columns for the law, before it has said anything.

    Args:
        asked: what is asked.
        processed_ts: wall time of the batch in ms, None in a replay, where the log says itself what was late.
        as_decided: what the proxies have decided stands; False: it is decided anew.
    """
    requests, count = asked.requests, len(asked.requests.flags)
    items = int(requests.used[1])
    late = np.zeros(count, dtype=np.bool_)
    decided = (requests.flags & DECIDED != 0) & as_decided
    events = Events(
        at=requests.at.copy(), of_ts=requests.of_ts, mode=np.empty(count, dtype=np.int64),
        decided=decided, dry=requests.flags & DRY != 0, first=requests.first, items=requests.items,
        mutations=requests.mutations[:items].astype(np.float64), term=np.empty(count, dtype=np.int64),
    )  # fmt: skip
    results = Results(
        outcome=requests.outcome.copy(), wait_ms=requests.wait_ms.copy(), level=np.empty(count),
        plain_rate=np.empty(count), rejected=requests.gone[:items].copy(),
        own_outcome=np.empty(count, dtype=np.int64), own_rejected=np.empty(items, dtype=np.bool_),
    )  # fmt: skip
    _judge(asked.order, requests, NO_CLOCK if processed_ts is None else processed_ts, events.mode, late)
    return Walked(asked=asked, late=late, events=events, results=results)


@lean
def _judge(
    order: Integers, requests: Requests, processed_ts: int, mode: Integers, late: NDArray[np.bool_]
) -> None:
    """How each event is taken: late ones cannot be rejected any more, or were."""
    for i in order:
        flags, waited = requests.flags[i], requests.deadline_ms[i]
        # Whoever has answered by itself has waited for nothing.
        asked = flags & DECIDED == 0
        late[i] = asked and (flags & LATE != 0 or (waited >= 0 and processed_ts - requests.ts[i] > waited))
        if flags & IS_REFUND:
            mode[i] = REFUND
        elif flags & ANSWERED or (late[i] and flags & REJECT_LATE):
            mode[i] = REFUSED
        elif late[i] or not flags & IS_STRICT:
            mode[i] = PERMISSIVE
        else:
            mode[i] = STRICT


def label(terms: Terms, stretch: Stretch, version: int, shadow: NDArray[np.bool_]) -> Label:
    """What decisions say of the terms of one stretch."""
    return Label(
        sampled=np.where(terms.row < 0, -1, (terms.samples > 0).astype(np.int64)),
        routing_key=stretch.routing_keys,
        rate=terms.rate,
        version=np.full(len(terms.row), version, dtype=np.int64),
        shadow=shadow,
    )


def admissions(walked: Walked) -> DecisionColumns:
    """Write what was decided: one decision a request, none a refund."""
    asked, names = walked.asked, walked.routing_keys.names
    order = asked.order[walked.events.mode[asked.order] != REFUND]
    parts = [np.concatenate(columns) for columns in zip(*walked.labels, strict=True)]
    sampled, routing_key, rate, version, shadow = parts
    limits = doubles_as_json(rate)
    limit_ends = np.zeros(len(rate) + 1, dtype=np.int64)
    ends_of(limits, limit_ends)
    subjects, subject_ends = bytes_in(escaped(names))
    labels = Labels(
        sampled=sampled, subjects=subjects, subject_ends=subject_ends, subject=routing_key, limits=limits,
        limit_ends=limit_ends, version=version, shadow=shadow,
    )  # fmt: skip
    text, ends = write(order, asked.requests, walked.late, walked.events, labels, walked.results)
    term = walked.events.term[order]
    return DecisionColumns(
        type=ADMISSION, text=text, ends=ends, id_length=asked.requests.length[order, ID],
        ts=asked.requests.ts[order], source=order,
        # The last name is the key of those whom nobody limits.
        keys=pa.concat_arrays([names, pa.array([""], type=pa.string())]),
        key=np.where(sampled[term] < 0, len(names), routing_key[term]),
    )  # fmt: skip
