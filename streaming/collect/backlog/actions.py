"""Carries out what was decided on backlogs (docs/contract.md 3.5): once, logged before and after.

A plan is of one report and is tried once; a repeated decision changes nothing, and what failed comes again
with the next check as a new plan. Only the newest decision of a topic counts, and only if its report was made
by this run and the law says the same of that: after a restart everything is looked at anew.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from streaming.collect.backlog.cluster import ORDER_MS, CannotEvict, CollectorRun, Eviction, now_ms
from streaming.collect.backlog.open_orders import OpenOrders, decision_of
from streaming.collect.backlog.plans import Plan, ReportNames, plan_of
from streaming.contract.backlog.actions import BEGUN, DONE, FAILED, BacklogAction
from streaming.contract.backlog.decisions import BacklogDecision, EvictionPlan
from streaming.contract.errors import WeirError
from streaming.contract.printable import printable
from streaming.policy.topics import KIND_OF, BacklogQuota, backlog_quota

STOP_MS: Final = 2_000
"""How long evictions under way may last at the end; the next run settles what is left."""
TOPICS_AT_ONCE: Final = 8
"""Topics that are evicted from at a time; of one topic one subscription at a time."""
ORDERS_MAX: Final = 1_000
"""Evictions begun after one check; others wait for the next."""

logger = logging.getLogger("weir.collect")

NOTHING, DECIDED_ONLY, WITHDRAWN = "nothing", "decided_only", "withdrawn"
PUT_OFF, OVERTAKEN = "put_off", "overtaken"
"""What becomes of a line of a plan beside DONE and FAILED: there was nothing left to do, the policy does not
want it carried out, the policy is another one by now, its turn has not come, or a newer check was decided on
before it came."""
_HELD: Final = ""
"""It is not known yet what has become of it; Unsettled finds out, and counts it."""
UNSAID_MAX: Final = 1_000
"""Ends that Kafka did not take and that are kept to be said; beyond it the oldest are dropped and counted."""
SAID_MAX: Final = 20
"""Failures after one check that the log tells one by one."""


class Actions:
    """Of one run of a collector; all in its loop.

    Args:
        run: see there.
        sent: its reports.
        unsettled: of earlier runs: topics that must wait.
    """

    def __init__(self, run: CollectorRun, sent: ReportNames, unsettled: OpenOrders) -> None:
        self._run, self._sent, self._unsettled = run, sent, unsettled
        self._cluster, self._metrics, self._policies = run.cluster, run.metrics, run.policies
        self._newest: dict[str, int] = {}
        self._waiting: dict[str, Plan] = {}
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._left = ORDERS_MAX
        # Ends of actions that Kafka did not take; said again after each check.
        self._unsaid: deque[BacklogAction] = deque(maxlen=UNSAID_MAX)
        self._failures = self._put_off = self._unlike = 0

    def checked(self, topics: set[str]) -> None:
        """A check has found these topics: what may be begun counts anew."""
        self._left = ORDERS_MAX
        if self._failures > SAID_MAX:
            logger.warning("%d more evictions failed since the last check", self._failures - SAID_MAX)
        if self._put_off:
            logger.warning("%d evictions were put off to this check, %d a check", self._put_off, ORDERS_MAX)
        if self._unlike:
            logger.warning(
                "%d decisions since the last check evict other than the law says of our reports: they are not"
                " the job's, or its policies are not ours", self._unlike,
            )  # fmt: skip
        self._failures = self._put_off = self._unlike = 0
        # Of one that only could not be read, old decisions may still be said again.
        self._newest = {
            topic: round
            for topic, round in self._newest.items()
            if topic in topics or self._sent.keeps(round)
        }

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
            self._metrics.dropped_decisions.labels("late").inc()
            return
        plan = plan_of(decision, report, place[0], self._policies()) if decision.evict else None
        if decision.evict and plan is None:
            self._unlike += 1
            self._metrics.dropped_decisions.labels("unlike").inc()
            return
        self._newest[decision.topic] = place[0]
        self._metrics.decided(decision)
        # A newer one without a plan takes back what waits.
        overtaken = self._waiting.pop(decision.topic, None)
        for planned in overtaken.decision.evict if overtaken is not None else ():
            self._metrics.evictions.labels(planned.quota_type, OVERTAKEN).inc()
        if plan is not None:
            self._waiting[decision.topic] = plan
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
            await asyncio.wait(tasks, timeout=STOP_MS / 1000)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self) -> None:
        """Take on what waits, as far as there is room."""
        while len(self._busy) < TOPICS_AT_ONCE:
            topic = next((one for one in self._waiting if one not in self._busy), None)
            if topic is None:
                return
            self._busy[topic] = asyncio.create_task(self._carry_out(self._waiting.pop(topic)))
            self._busy[topic].add_done_callback(partial(self._ended, topic))

    def _ended(self, topic: str, _task: asyncio.Task[None]) -> None:
        del self._busy[topic]
        self._begin()

    async def _carry_out(self, plan: Plan) -> None:
        seen = set[tuple[str, str]]()
        for planned in plan.decision.evict:
            if (planned.quota_type, planned.subscription) in seen:
                # It went by the same act as another's.
                continue
            names = [planned.subscription]
            try:
                outcome, names = await self._line(plan, planned)
            except Exception:
                # A defect must not end the collector: the others' backlogs grow on.
                logger.exception("%s: eviction from %s", printable(plan.decision.topic),
                                 printable(planned.subscription))  # fmt: skip
                outcome = FAILED
            seen.update((planned.quota_type, name) for name in names)
            if outcome != _HELD:
                self._metrics.evictions.labels(planned.quota_type, outcome).inc(len(names))

    async def _line(self, plan: Plan, planned: EvictionPlan) -> tuple[str, list[str]]:
        """One line of a plan; what becomes of it, and of which subscriptions, itself the first."""
        alone = [planned.subscription]
        quota, outcome = self._asked_for(plan, planned)
        if outcome:
            return outcome, alone
        if not self._left or self._unsettled.holds(plan.decision.topic):
            self._put_off += 1
            return PUT_OFF, alone
        self._left -= 1
        begun = self._begun(plan, planned, quota)
        may_delete = quota.allow_delete_records
        prepared = self._cluster.prepare(plan.report, planned, may_delete=may_delete)
        try:
            eviction = await self._limited(prepared)
        except (WeirError, TimeoutError) as error:
            return await self._failed([begun], error), alone
        if eviction is None:
            return NOTHING, alone
        together: list[Eviction] = [eviction, *eviction.also]
        self._left = max(0, self._left - len(eviction.also))
        all_begun = [
            replace(begun, id=_id(plan, planned.quota_type, one.subscription), ts=now_ms(), **one.lost())
            for one in together
        ]
        return await self._evict(all_begun, eviction), [one.subscription for one in together]

    def _begun(self, plan: Plan, planned: EvictionPlan, quota: BacklogQuota) -> BacklogAction:
        return BacklogAction(
            id=_id(plan, planned.quota_type, planned.subscription),
            ts=now_ms(),
            topic=plan.decision.topic,
            quota_type=planned.quota_type,
            policy=quota.policy,
            limit=quota.limit,
            actor=self._run.name,
            step=BEGUN,
            subscription=planned.subscription,
        )

    def _asked_for(self, plan: Plan, planned: EvictionPlan) -> tuple[BacklogQuota, str]:
        """The quota in force now, and why nothing is to be done by it; empty: it is to be carried out."""
        policies, topic = self._policies(), plan.decision.topic
        quota = backlog_quota(policies, topic, KIND_OF[planned.quota_type])
        if self._newest.get(topic, 0) > plan.round or not self._sent.keeps(plan.round):
            return quota, OVERTAKEN
        if not plan.stands(planned, policies):
            return quota, WITHDRAWN
        return quota, "" if quota.actions else DECIDED_ONLY

    async def _evict(self, begun: Sequence[BacklogAction], eviction: Eviction) -> str:
        """Carry out what some subscriptions lose by one act; what becomes of it."""
        try:
            for action in begun:
                await self._run.log(action)
        except WeirError as error:
            # They may stand there all the same.
            return await self._failed(begun, error)
        unknown: Exception | None = None
        try:
            await self._limited(self._cluster.carry_out(eviction))
        except CannotEvict as error:
            return await self._failed(begun, error)
        except (WeirError, TimeoutError) as error:
            unknown = error
        except Exception as error:
            # Where a defect stops us, it may have been done.
            logger.exception("%s: eviction from %s", printable(eviction.topic),
                             printable(eviction.subscription))  # fmt: skip
            unknown = error
        if unknown is not None and not await self._passed(eviction):
            return await self._hold(begun, unknown)
        for action in begun:
            self._metrics.evicted(
                action.topic, action.quota_type, decision_of(action), action.messages, action.bytes
            )
            await self._end(replace(action, ts=now_ms(), step=DONE))
        return DONE

    async def _passed(self, eviction: Eviction) -> bool:
        """Whether what is not known to be done was done."""
        asked = self._cluster.passed(eviction.topic, [(eviction.subscription, eviction.upto)])
        try:
            return (await self._limited(asked))[0] is True
        except (WeirError, TimeoutError):
            return False
        except Exception:
            logger.exception(
                "%s: position of %s", printable(eviction.topic), printable(eviction.subscription)
            )
            return False

    async def _hold(self, begun: Sequence[BacklogAction], error: Exception) -> str:
        """What a request under way may still do is settled later, like what an earlier run has begun."""
        reason = self._reason(error)
        logger.warning(
            "%s: it is not known yet whether something was evicted from %s: %s; looked at again in %d ms",
            printable(begun[0].topic), printable(begun[0].subscription), printable(reason), ORDER_MS,
        )  # fmt: skip
        full = [one for one in begun if not self._unsettled.hold(replace(one, ts=now_ms(), reason=reason))]
        if full:
            self._metrics.evictions.labels(begun[0].quota_type, FAILED).inc(len(full))
            await self._failed(full, error)
        return _HELD

    def _reason(self, error: Exception) -> str:
        return str(error) or f"no answer within {ORDER_MS} ms"

    async def _failed(self, actions: Sequence[BacklogAction], error: Exception) -> str:
        reason = self._reason(error)
        for action in actions:
            self._failures += 1
            if self._failures <= SAID_MAX:
                logger.warning(
                    "%s: nothing was evicted from %s: %s; the next check tries again",
                    printable(action.topic), printable(action.subscription), printable(reason),
                )  # fmt: skip
            await self._end(replace(action, ts=now_ms(), step=FAILED, reason=reason))
        return FAILED

    async def _end(self, action: BacklogAction) -> bool:
        """Say how an action ended, later if it cannot be said now; whether it could."""
        try:
            await self._run.log(action)
        except WeirError as error:
            if len(self._unsaid) == UNSAID_MAX:
                self._metrics.unsaid_dropped.inc()
            self._unsaid.append(action)
            logger.warning("%s: %s is said after the next check: %s", printable(action.id), action.step,
                           printable(str(error)))  # fmt: skip
            return False
        return True

    async def _limited(self, asked: Coroutine[Any, Any, Any]) -> Any:
        """What is asked of the cluster, within the limit."""
        async with asyncio.timeout(ORDER_MS / 1000):
            return await asked


def _id(plan: Plan, quota_type: str, subscription: str) -> str:
    return f"{plan.decision.id}/{quota_type}/{subscription}"
