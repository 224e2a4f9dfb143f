"""Carries out what was decided on backlogs (docs/contract.md 3.5): once, logged before and after.

A plan is of one report and is tried once; a repeated decision changes nothing, and what failed comes again
with the next check as a new plan. Only the newest decision of a topic counts, and only if its report was made
by this run: after a restart everything is looked at anew.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from streaming.collect.backlog.cluster import (
    BacklogCluster,
    Eviction,
    NotKnown,
    Order,
)
from streaming.collect.backlog.metrics import BacklogMetrics
from streaming.collect.backlog.sent import Sent
from streaming.collect.backlog.settings import BacklogSettings
from streaming.collect.backlog.unsettled import Unsettled, decision_of
from streaming.contract.backlog.actions import BEGUN, DONE, FAILED, BacklogAction
from streaming.contract.backlog.decisions import BacklogDecision, Planned
from streaming.contract.broker_events import Backlog
from streaming.contract.errors import WeirError
from streaming.contract.printable import printable
from streaming.laws.backlog.law import EVICTION
from streaming.policy.policy_set import PolicySet
from streaming.policy.topics import BacklogKind, BacklogQuota, backlog_quota

logger = logging.getLogger("weir.collect")

NOTHING, DECIDED_ONLY, WITHDRAWN, PUT_OFF = "nothing", "decided_only", "withdrawn", "put_off"
"""What becomes of a line of a plan beside DONE and FAILED: there was nothing left to do, the policy does not
want it carried out, the policy is another one by now, or its turn has not come."""
OUTCOMES: Final = (DONE, FAILED, NOTHING, DECIDED_ONLY, WITHDRAWN, PUT_OFF)
_KINDS: Final = {"size": BacklogKind.SIZE, "time": BacklogKind.AGE}
_UNSAID_MAX: Final = 1_000
SAID_MAX: Final = 20
"""Failures after one check that the log tells one by one."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """A decision with something to evict, and the report that it is on."""

    decision: BacklogDecision
    report: Backlog


class Actions:
    """Of one run of a collector; all in its loop.

    Args:
        cluster: that is acted on.
        name: of this run.
        sent: its reports.
        unsettled: of earlier runs: topics that must wait.
        policies: those in force now.
        log: writes an action, and raises WeirError where it is not written.
        settings: of backlogs.
        metrics: told what becomes of all.
    """

    def __init__(
        self,
        cluster: BacklogCluster,
        name: str,
        sent: Sent,
        unsettled: Unsettled,
        policies: Callable[[], PolicySet],
        log: Callable[[BacklogAction], Awaitable[None]],
        settings: BacklogSettings,
        metrics: BacklogMetrics,
    ) -> None:
        self._cluster, self._name, self._sent, self._unsettled = cluster, name, sent, unsettled
        self._policies, self._log, self._settings, self._metrics = policies, log, settings, metrics
        self._newest: dict[str, int] = {}
        self._waiting: dict[str, _Plan] = {}
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._left = settings.orders_max
        # Ends of actions that Kafka did not take; said again after each check.
        self._unsaid: deque[BacklogAction] = deque(maxlen=_UNSAID_MAX)
        self._failures = self._put_off = 0

    def checked(self, topics: set[str]) -> None:
        """A check has found these topics: what may be begun counts anew."""
        self._left = self._settings.orders_max
        if self._failures > SAID_MAX:
            logger.warning("%d more evictions failed since the last check", self._failures - SAID_MAX)
        if self._put_off:
            logger.warning("%d evictions were put off to this check (backlog.orders_max)", self._put_off)
        self._failures = self._put_off = 0
        self._newest = {topic: round for topic, round in self._newest.items() if topic in topics}

    async def catch_up(self) -> None:
        """Say how actions ended that could not be said then."""
        while self._unsaid:
            action = self._unsaid.popleft()
            if not await self._end(action):
                return

    def take(self, decision: BacklogDecision) -> None:
        """A decision was read, of whomever's report."""
        place = self._sent.place(decision.id)
        if place is None or self._newest.get(decision.topic, 0) >= place[0]:
            return
        report = self._sent.report(*place)
        if report is None or report.topic != decision.topic:
            self._metrics.dropped.labels("late").inc()
            return
        self._newest[decision.topic] = place[0]
        self._metrics.decided(decision)
        # A newer one without a plan takes back what waits.
        self._waiting.pop(decision.topic, None)
        if decision.evict:
            self._waiting[decision.topic] = _Plan(decision, report)
            self._begin()

    async def idle(self) -> None:
        """Until nothing waits or is under way."""
        while self._busy:
            await asyncio.wait(self._busy.values())

    async def close(self) -> None:
        """Begin nothing more, and wait for what is under way as long as is set; then leave it as it is."""
        self._waiting.clear()
        self._left = 0
        tasks = list(self._busy.values())
        if tasks:
            await asyncio.wait(tasks, timeout=self._settings.stop_timeout_ms / 1000)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self) -> None:
        """Take on what waits, as far as there is room."""
        while len(self._busy) < self._settings.topics_at_once:
            topic = next((one for one in self._waiting if one not in self._busy), None)
            if topic is None:
                return
            self._busy[topic] = asyncio.create_task(self._carry_out(self._waiting.pop(topic)))
            self._busy[topic].add_done_callback(partial(self._ended, topic))

    def _ended(self, topic: str, _task: asyncio.Task[None]) -> None:
        del self._busy[topic]
        self._begin()

    async def _carry_out(self, plan: _Plan) -> None:
        for planned in plan.decision.evict:
            try:
                outcome = await self._line(plan, planned)
            except Exception:
                # A defect must not end the collector: the others' backlogs grow on.
                logger.exception("%s: eviction from %s", printable(plan.decision.topic),
                                 printable(planned.subscription))  # fmt: skip
                outcome = FAILED
            self._metrics.outcomes.labels(planned.quota_type, outcome).inc()

    async def _line(self, plan: _Plan, planned: Planned) -> str:
        """One line of a plan; what becomes of it."""
        quota, outcome = self._asked_for(plan.decision, planned)
        if outcome:
            return outcome
        if not self._left or self._unsettled.holds(plan.decision.topic):
            self._put_off += 1
            return PUT_OFF
        self._left -= 1
        begun = BacklogAction(
            id=f"{plan.decision.id}/{planned.quota_type}/{planned.subscription}",
            ts=_wall_ms(),
            topic=plan.decision.topic,
            quota_type=planned.quota_type,
            policy=quota.policy,
            limit=quota.limit,
            actor=self._name,
            step=BEGUN,
            subscription=planned.subscription,
        )
        order = Order(report=plan.report, planned=planned, may_delete=quota.allow_delete_records)
        try:
            eviction = await self._limited(self._cluster.prepare(order))
        except (WeirError, TimeoutError) as error:
            return await self._failed(begun, error)
        if eviction is None:
            return NOTHING
        begun = replace(
            begun,
            ts=_wall_ms(),
            how=eviction.how,
            since=eviction.since,
            upto=eviction.upto,
            messages=eviction.messages,
            bytes=eviction.bytes,
        )
        return await self._evict(begun, eviction)

    def _asked_for(self, decision: BacklogDecision, planned: Planned) -> tuple[BacklogQuota, str]:
        """The quota in force now, and why nothing is to be done by it; empty: it is to be carried out."""
        quota = backlog_quota(self._policies(), decision.topic, _KINDS[planned.quota_type])
        limit = decision.limit_time if planned.quota_type == "time" else decision.limit_size
        if quota.policy != EVICTION or quota.limit != limit:
            return quota, WITHDRAWN
        return quota, "" if quota.actions else DECIDED_ONLY

    async def _evict(self, begun: BacklogAction, eviction: Eviction) -> str:
        try:
            await self._log(begun)
        except WeirError as error:
            # It may stand there all the same.
            return await self._failed(begun, error)
        try:
            await self._limited(self._cluster.carry_out(eviction))
        except (NotKnown, TimeoutError) as error:
            if not await self._passed(eviction):
                return await self._failed(begun, error)
        except WeirError as error:
            return await self._failed(begun, error)
        self._metrics.evicted(begun.topic, begun.quota_type, decision_of(begun), begun.messages, begun.bytes)
        await self._end(replace(begun, ts=_wall_ms(), step=DONE))
        return DONE

    async def _passed(self, eviction: Eviction) -> bool:
        """Whether what is not known to be done was done."""
        asked = self._cluster.passed(eviction.topic, [(eviction.subscription, eviction.upto)])
        try:
            return (await self._limited(asked))[0] is True
        except (WeirError, TimeoutError):
            return False

    async def _failed(self, action: BacklogAction, error: Exception) -> str:
        reason = str(error) or f"no answer within {self._settings.order_timeout_ms} ms"
        self._failures += 1
        if self._failures <= SAID_MAX:
            logger.warning(
                "%s: nothing was evicted from %s: %s; the next check tries again", printable(action.topic),
                printable(action.subscription), printable(reason),
            )  # fmt: skip
        await self._end(replace(action, ts=_wall_ms(), step=FAILED, reason=reason))
        return FAILED

    async def _end(self, action: BacklogAction) -> bool:
        """Say how an action ended, later if it cannot be said now; whether it could."""
        try:
            await self._log(action)
        except WeirError as error:
            self._unsaid.append(action)
            logger.warning("%s: %s is said after the next check: %s", printable(action.id), action.step,
                           printable(str(error)))  # fmt: skip
            return False
        return True

    async def _limited(self, asked: Coroutine[Any, Any, Any]) -> Any:
        """What is asked of the cluster, within the limit."""
        async with asyncio.timeout(self._settings.order_timeout_ms / 1000):
            return await asked


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
