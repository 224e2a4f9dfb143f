"""Evictions that were begun, without it being known whether they were carried out, and how they are ended.

A collector that is killed between carrying out and saying so leaves a `begun` behind. Positions are absolute,
so whether it was carried out can be seen: the subscription has passed the place or not. Until that is known
nothing else is evicted from its topic, so that no message is counted twice. The same holds for what this run
has asked for without an answer: a broker may carry it out later.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from streaming.collect.backlog.cluster import ORDER_MS, CollectorRun, now_ms
from streaming.contract.backlog.actions import BEGUN, DONE, ENDED, FAILED, BacklogAction
from streaming.contract.errors import WeirError
from streaming.contract.printable import printable

READ_BACK_MS: Final = 600_000
"""So far weir.decisions is read back for evictions that were begun and not ended, and so long it is tried to
find out."""
UNSETTLED_MAX: Final = 10_000
"""Such evictions that are kept; what is beyond is counted and not settled."""

logger = logging.getLogger("weir.collect")

CUT_OFF: Final = "the collector ended in between"
_NOT_DONE: Final = ", and it was not carried out"
_NOT_KNOWN: Final = ", and it is not known whether it was carried out"
NOT_DONE: Final = CUT_OFF + _NOT_DONE
NOT_KNOWN: Final = CUT_OFF + _NOT_KNOWN
_SAID_S: Final = 60.0


def collector_of(actor: str) -> str:
    """The collector that an actor is a run of.

    >>> collector_of("collect-kafka-c1-0a1b2c3d")
    'collect-kafka-c1'
    """
    return actor.rpartition("-")[0]


def decision_of(action: BacklogAction) -> str:
    """The id of the decision that an eviction was made by."""
    return action.id.removesuffix(f"/{action.quota_type}/{action.subscription}")


class OpenOrders:
    """Those of all other runs of one collector, and those of this one that nobody has answered.

    Args:
        run: of this collector: its cluster tells how far subscriptions are.
        known: whether all that may be there was read; before that every topic is held.
    """

    def __init__(self, run: CollectorRun, known: Callable[[], bool]) -> None:
        self._run, self._name, self._metrics = run, run.name, run.metrics
        self._known = known
        self._begun: dict[str, BacklogAction] = {}
        self._topics: Counter[str] = Counter()
        self._stuck: dict[str, float] = {}
        """Ids of those that could not be settled, and since when."""
        self._next_said_s = float("-inf")

    def take(self, action: BacklogAction) -> None:
        """A step of an action was read, of whomever."""
        if action.actor == self._name or collector_of(action.actor) != collector_of(self._name):
            return
        if action.step in (DONE, FAILED, ENDED):
            self._drop(action.id)
        elif action.step == BEGUN and action.subscription and action.id not in self._begun:
            # Whatever clock has said when: it was begun before we read it.
            self.hold(replace(action, ts=min(action.ts, now_ms())))

    def hold(self, action: BacklogAction) -> bool:
        """One was begun, and it is not known whether it was carried out; False: there is no room."""
        if len(self._begun) >= UNSETTLED_MAX:
            self._metrics.unsettled_dropped.inc()
            return False
        self._begun[action.id] = action
        self._topics[action.topic] += 1
        self._metrics.unsettled_evictions.set(len(self._begun))
        return True

    def holds(self, topic: str) -> bool:
        """Whether one of a topic is not settled, or may not be."""
        return topic in self._topics or not self._known()

    async def settle(self, *, stuck: bool) -> None:
        """End those that were begun long enough ago not to be under way any more.

        Args:
            stuck: those that could not be settled before; else all others, which need not wait for them.
        """
        if not self._known():
            return
        latest = now_ms() - ORDER_MS
        due: dict[str, list[BacklogAction]] = {}
        for action in self._begun.values():
            if action.ts <= latest and (action.id in self._stuck) == stuck:
                due.setdefault(action.topic, []).append(action)
        for topic, actions in due.items():
            try:
                async with asyncio.timeout(ORDER_MS / 1000):
                    await self._settle(topic, actions)
            except (WeirError, TimeoutError) as error:
                await self._stay(topic, actions, str(error) or "no answer")
            except Exception as error:  # noqa: BLE001 - what others wrote may be anything
                await self._stay(topic, actions, repr(error))

    async def _stay(self, topic: str, actions: list[BacklogAction], why: str) -> None:
        """They cannot be settled now; those that could not for too long end without it being known."""
        now_s = time.monotonic()
        if now_s >= self._next_said_s:
            self._next_said_s = now_s + _SAID_S
            logger.warning(
                "%s: %d evictions that were cut short cannot be settled yet, nothing is evicted from it until"
                " then: %s", printable(topic), len(actions), printable(why),
            )  # fmt: skip
        for action in actions:
            since_s = self._stuck.setdefault(action.id, now_s) if action.id in self._begun else now_s
            if now_s - since_s >= READ_BACK_MS / 1000:
                with contextlib.suppress(WeirError):
                    await self._end(action, None)

    async def _settle(self, topic: str, actions: list[BacklogAction]) -> None:
        places = [(one.subscription, one.upto) for one in actions]
        known = [(name, upto) for name, upto in places if upto is not None]
        answers = iter(await self._run.cluster.passed(topic, known) if known else [])
        for action in actions:
            passed = next(answers) if action.upto is not None else None
            await self._end(action, passed)

    async def _end(self, action: BacklogAction, passed: bool | None) -> None:
        """Say how one ended; None: it is not known.

        Raises:
            WeirError: it cannot be said.
        """
        if action.id not in self._begun:
            # Whoever began it has said so himself meanwhile.
            return
        why = {True: "", False: _NOT_DONE, None: _NOT_KNOWN}[passed]
        reason = f"{action.reason or CUT_OFF}{why}" if why else ""
        end = replace(action, ts=now_ms(), actor=self._name, step=DONE if passed else FAILED, reason=reason)
        await self._run.log(end)
        self._drop(action.id)
        logger.info(
            "%s: eviction from %s that was cut short: %s", printable(end.topic), printable(end.subscription),
            printable(reason) or f"done, {end.messages} messages",
        )  # fmt: skip
        self._metrics.evictions.labels(end.quota_type, end.step).inc()
        if passed:
            self._metrics.evicted(end.topic, end.quota_type, decision_of(end), end.messages, end.bytes)

    def _drop(self, id: str) -> None:
        self._stuck.pop(id, None)
        action = self._begun.pop(id, None)
        if action is not None:
            self._topics[action.topic] -= 1
            if not self._topics[action.topic]:
                del self._topics[action.topic]
            self._metrics.unsettled_evictions.set(len(self._begun))
