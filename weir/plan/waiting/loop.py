"""Clients that wait as they are told and try again: what they would have sent (docs/plan.md).

A log holds what was sent. Under other limits clients would have been told to wait, and what they sent next
would have come later. So a log as it was recorded says too much of refusals and nothing of queues. Here:

- requests: a client is a user with a client-id. Told to wait, it sends nothing until then; what was refused
  it tries again, without the items that were admitted, TRIES times at most. What would be sent HELD_MAX_MS
  after its time or later is given up, and counts as refused.
- deliveries: a subscription at a broker gets nothing while one of its counters has nothing left.
- reports of groups: a broker uses no more than its share; the rest waits for its next report, and so on, and
  what would wait longer than HELD_MAX_MS is never sent.
- samples: no more is in flight than the limit allows; the rest waits for its part of a round trip. Limits
  learn from what is in flight, so this is done PASSES times.
- backlogs stay as recorded: no report tells what a producer would have sent later.

The same log gives the same result: what is sent at one time goes in the order of the log.
"""

from dataclasses import replace
from math import inf
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.columns.byte_strings import Integers
from streaming.columns.compiled import machine
from streaming.columns.outputs import DecisionRows
from streaming.laws.concurrency.samples import Samples
from streaming.laws.dispatch.deliveries import Deliveries
from streaming.laws.dispatch.law import SEEN_BYTES, SEEN_ENTRIES, SEEN_MSGS
from streaming.laws.dispatch.table import limits_of
from streaming.laws.law import Batch, LawSpec
from streaming.laws.mutation.batch import begin
from streaming.laws.mutation.intake import OrderedRequests
from streaming.laws.mutation.law import PLAIN_WINDOWS, REFUND, REFUSED, STRICT, State, Terms
from streaming.laws.mutation.limits import quotas_of
from streaming.laws.mutation.requests import Requests, encoded
from streaming.policy.dispatch_limits import NO_LIMIT
from streaming.policy.policy_set import Section
from streaming.state.row_names import row_names
from weir.plan.verdicts import Outcomes, Verdicts, as_rows, limits_before, verdicts_of
from weir.plan.waiting.queues import ask, deliver
from weir.plan.waiting.rounds import reports_that_wait

PASSES: Final = 3
_ask, _deliver = machine(ask), machine(deliver)


def that_wait(law: LawSpec, batch: Batch, decided: DecisionRows, recorded: Verdicts) -> Verdicts:
    """What a law would have said to clients that wait and try again.

    Args:
        law: the law.
        batch: what it was asked; its events are not changed.
        decided: what it said of the log as recorded.
        recorded: what that comes to.
    """
    if law.name == "mutation":
        return _requests_that_wait(batch, recorded)
    if law.name == "dispatch":
        return _deliveries_that_wait(batch, recorded)
    if law.name == "shares":
        return reports_that_wait(law, batch)
    if law.name == "concurrency":
        return _samples_that_wait(law, batch, decided)
    return recorded


def _requests_that_wait(batch: Batch, recorded: Verdicts) -> Verdicts:
    asked: OrderedRequests = batch.events
    requests, order = asked.requests, asked.order
    walked = begin(asked, None, as_decided=False)
    # Who has refused by itself would have asked the law.
    walked.events.mode[walked.events.mode == REFUSED] = STRICT
    parts: list[Terms] = []
    rings = 0
    own = row_names(asked.routing_keys.names)
    for stretch in walked.stretches(batch.timeline):
        quotas = quotas_of(batch.timeline.at(stretch.at))
        number = quotas.of(own.take(pa.array(stretch.routing_keys)))
        limited = (number >= 0) & ~quotas.shadow[number]
        samples = np.where(limited, quotas.samples[number], 0)
        parts.append(Terms(
            row=np.where(limited, stretch.routing_keys, -1), rate=quotas.rate[number],
            burst=quotas.burst[number], samples=samples, ring_first=rings + np.cumsum(samples) - samples,
        ))  # fmt: skip
        rings += int(samples.sum())
    terms = Terms(*map(np.concatenate, zip(*parts, strict=True)))
    rows = len(own)
    state = State(
        tokens=np.full(rows, inf), last=np.full(rows, int(walked.events.at.min())),
        plain=np.zeros((rows, PLAIN_WINDOWS)), rings=np.zeros(rings),
        spare=np.empty(int(terms.samples.max(initial=0))),
    )  # fmt: skip
    outcome, delay_ms = _free(len(order))
    client = _clients(requests)[order]
    _ask(order, client, walked.events, terms, state, walked.results, outcome, delay_ms)
    said = walked.events.mode[order] != REFUND
    return replace(recorded, outcome=outcome[said], delay_ms=delay_ms[said])


def _deliveries_that_wait(batch: Batch, recorded: Verdicts) -> Verdicts:
    given: Deliveries = batch.events
    names = pa.concat_arrays(given.names)
    begins = np.cumsum([0, *map(len, given.names[:-1])])
    first = int(given.at.min())
    changes = batch.timeline.changes(first, int(given.at.max()))
    rates, periods = list[Integers](), list[Integers]()
    units, charged = given.delivered[:, SEEN_MSGS].copy(), np.ones(len(given.at), dtype=np.bool_)
    for since in (first, *changes):
        policies = batch.timeline.at(since)
        limits, broker = limits_of(policies), policies.entries.get(Section.BROKER, {})
        number = limits.of(names)
        rate = limits.field("rate", number, NO_LIMIT.rate)
        rates.append(np.zeros_like(rate) if policies.tracks else rate)
        periods.append(limits.field("period_ms", number, NO_LIMIT.period_ms))
        later = given.at >= since
        by_entry = broker.get("dispatchThrottlingOnBatchMessageEnabled", False)
        units[later] = given.delivered[later, SEEN_ENTRIES if by_entry else SEEN_MSGS]
        all_charged = broker.get("dispatchThrottlingOnNonBacklogConsumerEnabled", True)
        charged[later] = given.backlog[later] | all_charged
    outcome, delay_ms = _free(len(given.at))
    _deliver(
        given.places[:, -1].copy(), given.at, units, given.delivered[:, SEEN_BYTES].copy(), charged,
        given.places + begins, np.array(changes, dtype=np.int64), np.stack(rates), np.stack(periods),
        len(names), outcome, delay_ms,
    )  # fmt: skip
    return replace(recorded, outcome=outcome, delay_ms=delay_ms)


def _samples_that_wait(law: LawSpec, batch: Batch, decided: DecisionRows) -> Verdicts:
    samples: Samples = batch.events
    for _ in range(PASSES):
        held = replace(samples, inflight=np.minimum(samples.inflight, limits_before(samples, decided)))
        decided = as_rows(law.table.from_columns({}).fold(replace(batch, events=held)))
    return verdicts_of(law, samples, decided)


def _free(count: int) -> tuple[Outcomes, Integers]:
    return np.zeros(count, dtype=np.int8), np.zeros(count, dtype=np.int64)


def _clients(requests: Requests) -> Integers:
    """A number for each pair of user and client-id."""
    user, client = (encoded(names) for names in (requests.user, requests.client_id))
    pairs = user.indices.to_numpy().astype(np.int64) * len(client.dictionary) + client.indices.to_numpy()
    _, number = np.unique(pairs, return_inverse=True)
    return number.ravel().astype(np.int64)
