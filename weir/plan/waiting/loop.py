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

The same log gives the same result: what is sent at one time goes in the order of the log. It comes some at a
time, and what would be sent later than what is known of it waits for what follows, HELD_MAX of a kind at
most: beyond, requests that came last are given up, and deliveries are made.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from streaming.columns.byte_strings import Integers
from streaming.columns.outputs import DecisionRows
from streaming.laws.law import Batch, LawSpec
from streaming.policy.timeline import PolicyTimeline
from weir.plan.verdicts import Judge, Limits, Verdicts, as_rows
from weir.plan.waiting.deliveries import DeliveriesThatWait
from weir.plan.waiting.queues import NOBODY, Waiting
from weir.plan.waiting.requests import RequestsThatWait
from weir.plan.waiting.rounds import ReportsThatWait

PASSES: Final = 3


def that_wait(law: LawSpec, timeline: PolicyTimeline) -> Waiting:
    """Those of a law, under policies that go on while the log does."""
    if law.name == "mutation":
        return RequestsThatWait(timeline)
    if law.name == "dispatch":
        return DeliveriesThatWait(timeline)
    if law.name == "shares":
        return ReportsThatWait(law, timeline)
    return SamplesThatWait(law) if law.name == "concurrency" else Waiting()


class SamplesThatWait(Waiting):
    """No more in flight than the limit, which learns from that: one pass behind the other.

    Args:
        law: the law of concurrency.
    """

    def __init__(self, law: LawSpec) -> None:
        self._tables = [law.table.from_columns({}) for _ in range(PASSES)]
        self._limits, self._judge = [Limits() for _ in range(PASSES)], Judge(law)

    def step(
        self, batch: Batch | None, decided: DecisionRows | None, recorded: Verdicts | None, upto: int
    ) -> tuple[Verdicts | None, Integers]:
        """See `queues.Waiting`."""
        if batch is None or decided is None:
            return None, NOBODY
        samples = batch.events
        for table, limits in zip(self._tables, self._limits, strict=True):
            inflight = np.minimum(samples.inflight, limits.before(samples, decided))
            decided = as_rows(table.fold(replace(batch, events=replace(samples, inflight=inflight))))
        return self._judge.verdicts(samples, decided), NOBODY
