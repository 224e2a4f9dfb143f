"""The collector of a cluster's backlogs: looks, reports, and acts on what is decided, check after check."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from itertools import islice
from typing import Final

from streaming.collect.backlog.actions import Actions
from streaming.collect.backlog.cluster import CollectorRun, RoundQuestion, RoundResult
from streaming.collect.backlog.open_orders import OpenOrders
from streaming.collect.backlog.plans import ReportNames
from streaming.contract.backlog.actions import BacklogAction
from streaming.contract.backlog.decisions import BacklogDecision
from streaming.contract.broker_events import Backlog
from streaming.contract.errors import TakenOver, WeirError
from streaming.contract.printable import printable
from streaming.laws.backlog.law import EVICTION
from streaming.policy.policy_set import Section
from streaming.policy.topics import BacklogKind, backlog_quota, check_interval_s

ROUNDS_KEPT: Final = 3
"""Checks whose decisions are still acted on, the newest ones: the job may be late by two."""

logger = logging.getLogger("weir.collect")

PROGRESS_S: Final = 60.0
_LOOK_S: Final = 1.0
"""How often it is asked whether the interval is another one, and whether there is something to settle."""
_FAILURES_SAID: Final = 5
"""Of one check one by one; the others are counted."""


class Outcome(StrEnum):
    """How a check ended."""

    DONE = "done"
    UNREAD = "unread"
    UNREPORTED = "unreported"


class BacklogCollector:
    """One run of it; all in its loop.

    Args:
        run: what it works with.
        write: writes reports, all or none; returns the topics whose reports were too large. Raises WeirError
            where they were not written, TakenOver where they never will be.
        known: whether all actions of earlier runs were read that may not have ended (see `take`).
    """

    def __init__(
        self,
        run: CollectorRun,
        write: Callable[[Sequence[Backlog]], Awaitable[Sequence[str]]],
        known: Callable[[], bool],
    ) -> None:
        self._cluster, self._policies, self._metrics = run.cluster, run.policies, run.metrics
        self._write = write
        self._sent = ReportNames(run.name, ROUNDS_KEPT)
        # Only a cluster that was looked at knows where its subscriptions are.
        self._looked = False
        self._unsettled = OpenOrders(run, lambda: self._looked and known())
        self.actions = Actions(run, self._sent, self._unsettled)
        self._next_progress_s = self._next_behind_s = self._next_failure_s = float("-inf")

    def take(self, said: BacklogDecision | BacklogAction) -> None:
        """Something about a backlog was read on `weir.decisions`."""
        if isinstance(said, BacklogAction):
            self._unsettled.take(said)
        else:
            self.actions.take(said)

    def interval_s(self) -> int:
        """Between two checks, by the policies in force now."""
        return check_interval_s(self._policies())

    async def run(self, checked: Callable[[], None] = lambda: None) -> None:
        """Check until cancelled; `checked` is called after each that was reported.

        Raises:
            TakenOver: another collector of this cluster has started since.
        """
        settling = [asyncio.create_task(self._settle(stuck=one)) for one in (False, True)]
        try:
            while True:
                began_s = time.monotonic()
                if await self.check() is Outcome.DONE:
                    checked()
                await self._wait(began_s)
        finally:
            for task in settling:
                task.cancel()
            await self.actions.close()
            # Whoever has taken over settles and reads them; this process may stand by for days.
            self._metrics.unsettled_evictions.set(0)
            self._metrics.unread_topics.set(0)

    async def check(self) -> Outcome:
        """Look at all topics once, and report them.

        Raises:
            TakenOver: as in `run`.
        """
        began_s = time.monotonic()
        outcome, looked, why = Outcome.UNREAD, RoundResult(), ""
        try:
            looked = await self._cluster.look(self._wants())
            self._looked = True
            self._metrics.publish_times_missed.inc(looked.publish_times_missed)
            outcome = Outcome.UNREPORTED
            await self._report(looked)
            outcome = Outcome.DONE
        except TakenOver:
            raise
        except WeirError as error:
            why = str(error)
        except Exception as error:
            # What a cluster answers may be anything, and its backlogs must be looked at again all the same;
            # nor must one topic that cannot be written down end the others' checks.
            logger.exception("backlogs: a check failed")
            why = repr(error)
        if outcome is not Outcome.DONE:
            # Nobody hears of any of them.
            self._metrics.unread_topics.set(len(self._metrics.known))
        seconds = time.monotonic() - began_s
        self._metrics.check_seconds.observe(seconds)
        self._metrics.rounds.labels(outcome).inc()
        self._say(looked, seconds, why)
        return outcome

    async def _report(self, looked: RoundResult) -> None:
        # Before they are written: what is decided may come back at once.
        reports = self._sent.named(looked.reports)
        topics = {report.topic for report in reports}
        self._metrics.reported(topics, complete=not looked.unread)
        self.actions.checked(topics)
        too_large = await self._write(reports)
        await self.actions.catch_up()
        self._metrics.unread_topics.set(looked.unread + len(too_large))
        self._metrics.reports.inc(len(reports) - len(too_large))
        self._metrics.too_large_reports.inc(len(too_large))
        if too_large:
            looked.failures.append(
                f"{len(too_large)} reports are larger than a record may be, such as that of {too_large[0]}"
            )

    def _wants(self) -> RoundQuestion:
        policies = self._policies()
        broker = policies.entries.get(Section.BROKER, {})
        precise = bool(broker.get("preciseTimeBasedBacklogQuotaCheck", False))

        def expires(topic: str) -> bool:
            quota = backlog_quota(policies, topic, BacklogKind.AGE)
            return quota.limit > 0 and quota.policy == EVICTION

        return RoundQuestion(precise_age=precise, expires=expires, interval_s=check_interval_s(policies))

    async def _wait(self, began_s: float) -> None:
        """Until the next check is due, which another policy may bring nearer; one that came late is said."""
        took_s, interval_s = time.monotonic() - began_s, self.interval_s()
        if took_s > interval_s:
            self._metrics.behind.inc()
            if time.monotonic() >= self._next_behind_s:
                logger.warning("backlogs: falls behind: a check took %.1f s, the interval is %d s", took_s,
                               interval_s)  # fmt: skip
                self._next_behind_s = time.monotonic() + PROGRESS_S
        while True:
            left_s = began_s + self.interval_s() - time.monotonic()
            await asyncio.sleep(max(0.0, min(left_s, _LOOK_S)))
            if left_s <= _LOOK_S:
                return

    async def _settle(self, *, stuck: bool) -> None:
        while True:
            try:
                await self._unsettled.settle(stuck=stuck)
            except Exception:
                logger.exception("evictions of an earlier run are not settled; tried again")
            await asyncio.sleep(_LOOK_S)

    def _say(self, looked: RoundResult, seconds: float, why: str) -> None:
        now_s = time.monotonic()
        if (why or looked.failures) and now_s >= self._next_failure_s:
            self._next_failure_s = now_s + PROGRESS_S
            lines = Counter(looked.failures if not why else [why, *looked.failures])
            for line, times in islice(lines.items(), _FAILURES_SAID):
                logger.warning("backlogs: %s%s", printable(line), f" ({times} times)" if times > 1 else "")
            if len(lines) > _FAILURES_SAID:
                logger.warning("backlogs: %d further failures in this check", len(lines) - _FAILURES_SAID)
        if not why and now_s >= self._next_progress_s:
            self._next_progress_s = now_s + PROGRESS_S
            logger.info(
                "backlogs: %d topics reported, %d not read; a check takes %.2f s", len(looked.reports),
                looked.unread, seconds,
            )  # fmt: skip
