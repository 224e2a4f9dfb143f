"""What subjects asked for by a log, law by law, as columns: a row each time.

Demand is what was asked, not what was let through:

- What was refused counts once. An item that the same client asks for again after it was refused is a try
  again, and no more demand.
- What was throttled was let through, and counts as it is. A broker that held a group's traffic back for part
  of a period counts as if it had gone on at its pace, up to STRETCH_MAX times what it sent.
- Dry runs count nothing; refunds are taken off.
- Deliveries, samples and backlogs count as reported.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers
from streaming.columns.outputs import DecisionRows
from streaming.contract.errors import BadEvent
from streaming.contract.names import GROUP_PREFIXES, QUOTA_GROUP_PREFIX, parse_subject, subject_of
from streaming.contract.usage_events import DIMENSIONS
from streaming.laws.concurrency.samples import Samples
from streaming.laws.dispatch.deliveries import Deliveries
from streaming.laws.dispatch.law import SEEN_BYTES, SEEN_MSGS
from streaming.laws.law import Batch
from streaming.laws.mutation.intake import OrderedRequests
from streaming.laws.mutation.requests import DRY, REFUND, encoded
from streaming.laws.row_fields import places
from streaming.laws.shares.intake import ReportBatch, Reports
from weir.plan.delays import grouped

Doubles = NDArray[np.float64]
HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000
STRETCH_MAX: Final = 2.0
MUTATIONS, MSGS, BYTES, SIZE, AGE, INFLIGHT, ROUND_TRIP = (
    "partition mutations", "messages", "bytes", "bytes behind", "seconds behind", "in flight", "round trip",
)  # fmt: skip
"""What is asked for, in words; of groups these are DIMENSIONS."""


class Kind(StrEnum):
    """What limits are for."""

    USER = "user"
    GROUP = "group"
    SUBSCRIPTION = "subscription"
    TOPIC = "topic"
    PARTITION = "partition"
    BACKLOG = "backlog"


class Demand(NamedTuple):
    """What was asked of one measure, by each subject in order of time.

    Attributes:
        names: of the subjects; no two alike.
        whose: number of each row's subject.
        part: number of the counter that a row is for: of dispatch one for each broker and subject.
        at: ms since the epoch.
        amount: how much.
    """

    names: list[str]
    whose: Integers
    part: Integers
    at: Integers
    amount: Doubles

    def only(self, rows: NDArray[np.bool_] | Integers) -> "Demand":
        """Some of the rows, by flags or in this order."""
        return self._replace(**{name: getattr(self, name)[rows] for name in self._fields[1:]})


def asked_of(law: str, batch: Batch, decided: DecisionRows) -> Iterator[tuple[Kind, str, Demand]]:
    """What a law was asked for, by kind and measure.

    Args:
        law: its name.
        batch: what it was asked.
        decided: what it said under the policies of the log.
    """
    if law == "mutation":
        yield Kind.USER, MUTATIONS, _mutations(batch.events, decided)
    elif law == "shares":
        yield from _used(batch.events)
    elif law == "dispatch":
        yield from _delivered(batch.events)
    elif law == "concurrency":
        samples: Samples = batch.events
        names = samples.names.to_pylist()
        for measure, column in ((INFLIGHT, samples.inflight), (ROUND_TRIP, samples.rtt)):
            yield Kind.PARTITION, measure, _plain(names, samples.partition, samples.at, column)
    else:
        names, topic = decided.keys.to_pylist(), decided.key
        assert topic is not None, "reports name their topics"
        for measure, said in ((SIZE, "backlogSize"), (AGE, "oldestBacklogMessageAgeSeconds")):
            yield Kind.BACKLOG, measure, _plain(names, topic, decided.ts, decided.rows[said].to_numpy())


def _plain(names: list[str], whose: Integers, at: Integers, amount: NDArray[np.generic]) -> Demand:
    order = np.argsort(at, kind="stable")
    whose = whose[order].astype(np.int64)
    return Demand(names, whose, whose, at[order], amount[order].astype(np.float64))


def _mutations(asked: OrderedRequests, decided: DecisionRows) -> Demand:
    """By user: what a client calls itself is its own choice."""
    requests, order = asked.requests, asked.order
    users = encoded(requests.user)
    items = requests.items[order]
    place, item = np.repeat(np.arange(len(order)), items), places(requests.first[order], items)
    row = order[place]
    flags = requests.flags[row]
    refund = flags & REFUND != 0
    amount = np.where(flags & DRY != 0, 0.0, requests.mutations[item].astype(np.float64))
    amount[refund] *= -1.0
    whose = users.indices.to_numpy().astype(np.int64)[row]
    client = encoded(requests.client_id).indices.to_numpy().astype(np.int64)[row]
    real = np.flatnonzero(~refund & (amount > 0.0))
    name, gone = _refused(requests.names.take(pa.array(item)), place, requests.flags[order], decided)
    amount[real[_tried_again((whose[real], client[real], name[real]), gone[real])]] = 0.0
    return Demand(users.dictionary.to_pylist(), whose, whose, requests.at[row], amount)


def _refused(
    names: pa.Array, place: Integers, flags: Integers, decided: DecisionRows
) -> tuple[Integers, NDArray[np.bool_]]:
    """A number for the name of each item, and whether its request was refused it, not in shadow."""
    rejected = decided.rows["rejected"]
    # A decision a request, and none a refund, in the same order.
    answered = np.flatnonzero(flags & REFUND == 0)
    lengths = np.diff(rejected.offsets.to_numpy())
    enforced = np.repeat(~decided.rows["shadow"].to_numpy(zero_copy_only=False), lengths)
    known = pa.concat_arrays([names.cast(pa.large_string()), rejected.flatten().cast(pa.large_string())])
    number = known.dictionary_encode().indices.to_numpy().astype(np.int64)
    own, theirs = number[: len(names)], number[len(names) :]
    most = int(number.max(initial=0)) + 1
    gone = (np.repeat(answered, lengths) * most + theirs)[enforced]
    return own, np.isin(place * most + own, gone)


def _tried_again(keys: tuple[Integers, ...], gone: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether the same was asked before each, and refused."""
    order = np.lexsort(keys)
    again = np.zeros(len(gone), dtype=np.bool_)
    same = np.ones(max(0, len(order) - 1), dtype=np.bool_)
    for key in keys:
        same &= key[order][1:] == key[order][:-1]
    again[order[1:]] = same & gone[order[:-1]]
    return again


def _used(asked: ReportBatch) -> Iterator[tuple[Kind, str, Demand]]:
    """By group and dimension, how much all brokers together used a second; of quotas, by user."""
    reports = asked.reports
    if not len(reports.at):
        return
    names, group = _by_user(reports.groups.to_pylist())
    whose = group[reports.group]
    window_ms = int(min(HOUR_MS, max(MINUTE_MS, int(reports.period_ms.max()))))
    for dimension, measure in enumerate(DIMENSIONS):
        rate = _rate(reports, dimension)
        there = (whose >= 0) & (rate > 0.0)
        keys = (whose[there], reports.at[there] // window_ms, reports.broker[there], reports.group[there])
        own, rates = grouped(keys, rate[there], np.add)
        _, count = grouped(keys, np.ones(int(there.sum())), np.add)
        # A broker that reported twice used as much as the mean says.
        together, total = grouped(own[:2], rates / count, np.add)
        yield Kind.GROUP, measure, _plain(names, together[0], together[1] * window_ms, total)


def _rate(reports: Reports, dimension: int) -> Doubles:
    """How much each report says was used a second, had nothing been held back."""
    period_ms = reports.period_ms.astype(np.float64)
    held_ms = np.clip(reports.throttled_ms[:, dimension], 0.0, period_ms * (1.0 - 1.0 / STRETCH_MAX))
    rates: Doubles = reports.counts[:, dimension] * (1000.0 / (period_ms - held_ms))
    return rates


def _by_user(groups: Sequence[str]) -> tuple[list[str], Integers]:
    """Subjects and plain groups, and which of them each group is of; -1: of none that limits are set for."""
    names: dict[str, int] = {}
    owners = map(_owner, groups)
    numbers = [-1 if owner is None else names.setdefault(owner, len(names)) for owner in owners]
    return list(names), np.array(numbers, dtype=np.int64)


def _owner(group: str) -> str | None:
    if not group.startswith(QUOTA_GROUP_PREFIX):
        # Deliveries and samples are reported besides, and their limits come from there.
        return None if group.startswith(GROUP_PREFIXES) else group
    try:
        user, client_id = parse_subject(group.removeprefix(QUOTA_GROUP_PREFIX))
    except BadEvent:
        return None
    if user is None and client_id is None:
        return None
    return QUOTA_GROUP_PREFIX + (subject_of(user, None) if user is not None else subject_of(None, client_id))


def _delivered(given: Deliveries) -> Iterator[tuple[Kind, str, Demand]]:
    """By TOPIC/SUBSCRIPTION, and by topic where consumers without a subscription read."""
    keys = np.array(given.keys.to_pylist(), dtype=object)[given.places[:, -1]]
    names, number = np.unique(keys, return_inverse=True)
    alone = np.array([name.endswith("/") for name in names.tolist()], dtype=np.bool_)[number.ravel()]
    topics = given.rows["topic"]
    topic = topics.indices.to_numpy().astype(np.int64)
    of_topics = np.isin(topic, topic[alone])
    order = np.argsort(given.at, kind="stable")
    for kind, own, level, called, which in (
        (Kind.SUBSCRIPTION, number.ravel(), -1, names.tolist(), ~alone),
        (Kind.TOPIC, topic, -2, topics.dictionary.to_pylist(), of_topics),
    ):
        for measure, column in ((MSGS, SEEN_MSGS), (BYTES, SEEN_BYTES)):
            rows = order[which[order]]
            if len(rows):
                amount = given.delivered[rows, column].astype(np.float64)
                part = given.places[rows, level]
                yield kind, measure, Demand(called, own[rows], part, given.at[rows], amount)
