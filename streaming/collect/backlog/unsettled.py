"""Evictions that an earlier run of a cluster's collector has begun and not ended, and how they are ended.

A collector that is killed between carrying out and saying so leaves a `begun` behind. Positions are absolute,
so whether it was carried out can be seen: the subscription has passed the place or not. Until that is known
nothing else is evicted from its topic, so that no message is counted twice.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from streaming.collect.backlog.cluster import BacklogCluster
from streaming.collect.backlog.metrics import BacklogMetrics
from streaming.collect.backlog.settings import BacklogSettings
from streaming.contract.backlog.actions import BEGUN, DONE, ENDED, FAILED, BacklogAction
from streaming.contract.errors import WeirError
from streaming.contract.printable import printable

logger = logging.getLogger("weir.collect")

NOT_DONE: Final = "the collector ended in between, and it was not carried out"
NOT_KNOWN: Final = "the collector ended in between, and it is not known whether it was carried out"


def collector_of(actor: str) -> str:
    """The collector that an actor is a run of.

    >>> collector_of("collect-kafka-c1-0a1b2c3d")
    'collect-kafka-c1'
    """
    return actor.rpartition("-")[0]


def decision_of(action: BacklogAction) -> str:
    """The id of the decision that an eviction was made by."""
    return action.id.removesuffix(f"/{action.quota_type}/{action.subscription}")


class Unsettled:
    """Those of all other runs of one collector.

    Args:
        cluster: that tells how far subscriptions are.
        name: of this run.
        log: writes an action.
        settings: of backlogs.
        metrics: told what becomes of them.
        known: whether all that may be there was read; before that every topic is held.
        wall_ms: the time now, ms since the epoch.
    """

    def __init__(
        self,
        cluster: BacklogCluster,
        name: str,
        log: Callable[[BacklogAction], Awaitable[None]],
        settings: BacklogSettings,
        metrics: BacklogMetrics,
        known: Callable[[], bool],
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._cluster, self._name, self._log = cluster, name, log
        self._settings, self._metrics = settings, metrics
        self._known, self._wall_ms = known, wall_ms
        self._begun: dict[str, BacklogAction] = {}
        self._topics: Counter[str] = Counter()

    def take(self, action: BacklogAction) -> None:
        """A step of an action was read, of whomever."""
        if action.actor == self._name or collector_of(action.actor) != collector_of(self._name):
            return
        if action.step in (DONE, FAILED, ENDED):
            self._drop(action.id)
        elif action.step == BEGUN and action.subscription and action.id not in self._begun:
            if len(self._begun) >= self._settings.unsettled_max:
                self._metrics.lost.inc()
                return
            self._begun[action.id] = action
            self._topics[action.topic] += 1
            self._metrics.unsettled.set(len(self._begun))

    def holds(self, topic: str) -> bool:
        """Whether one of a topic is not settled, or may not be."""
        return topic in self._topics or not self._known()

    async def settle(self) -> None:
        """End those that were begun long enough ago not to be under way any more."""
        if not self._known():
            return
        latest = self._wall_ms() - self._settings.order_timeout_ms
        due: dict[str, list[BacklogAction]] = {}
        for action in self._begun.values():
            if action.ts <= latest:
                due.setdefault(action.topic, []).append(action)
        for topic, actions in due.items():
            try:
                async with asyncio.timeout(self._settings.order_timeout_ms / 1000):
                    await self._settle(topic, actions)
            except (WeirError, TimeoutError) as error:
                logger.warning(
                    "%s: %d evictions of an earlier run cannot be settled yet, nothing is evicted from it"
                    " until then: %s", printable(topic), len(actions), printable(str(error) or "no answer"),
                )  # fmt: skip

    async def _settle(self, topic: str, actions: list[BacklogAction]) -> None:
        places = [(one.subscription, one.upto) for one in actions]
        known = [(name, upto) for name, upto in places if upto is not None]
        answers = iter(await self._cluster.passed(topic, known) if known else [])
        for action in actions:
            passed = next(answers) if action.upto is not None else None
            reason = {True: "", False: NOT_DONE, None: NOT_KNOWN}[passed]
            end = replace(
                action, ts=self._wall_ms(), actor=self._name, step=DONE if passed else FAILED, reason=reason
            )
            await self._log(end)
            self._drop(action.id)
            logger.info(
                "%s: eviction from %s by an earlier run: %s", printable(topic), printable(end.subscription),
                reason or f"done, {end.messages} messages",
            )  # fmt: skip
            self._metrics.outcomes.labels(end.quota_type, end.step).inc()
            if passed:
                self._metrics.evicted(topic, end.quota_type, decision_of(end), end.messages, end.bytes)

    def _drop(self, id: str) -> None:
        action = self._begun.pop(id, None)
        if action is not None:
            self._topics[action.topic] -= 1
            if not self._topics[action.topic]:
                del self._topics[action.topic]
            self._metrics.unsettled.set(len(self._begun))
