"""The collector of backlogs, tied to Weir's topics, whichever kind of cluster it looks after."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry

from streaming.collect.backlog.action_log import ActionLog
from streaming.collect.backlog.cluster import BacklogCluster, CollectorRun
from streaming.collect.backlog.collector import BacklogCollector, Outcome
from streaming.collect.backlog.metrics import BacklogMetrics
from streaming.collect.backlog.open_orders import READ_BACK_MS
from streaming.collect.backlog.packed_reports import write_reports
from streaming.collect.reports import Reports, stand_by
from streaming.collect.settings import BacklogSettings
from streaming.contract.errors import TakenOver, WeirError
from streaming.contract.printable import printable
from streaming.contract.topics import Cluster
from weir.collect.feeds import DecisionFeed, PolicyFeed, backlogs_in

_WRITE_S: Final = 10.0
"""Limit of one write to Kafka."""
logger = logging.getLogger("weir.collect")

AGAIN_S: Final = 5.0
"""Pause before another attempt to start."""


Watch = Callable[[AsyncExitStack], Awaitable[tuple[str, BacklogCluster]]]
"""Finds the cluster: its name, and what reads and relieves it; what is to be closed goes on the stack. Raises
WeirError while it does not answer."""


@dataclass(slots=True)
class BacklogPart:
    """Looks after one cluster's backlogs.

    Attributes:
        cluster: where Weir's topics are.
        kind: `kafka` or `pulsar`, which the cluster is that is looked after.
        watch: finds the cluster that is looked after.
        checked: called after each check that was reported.
        stand_by: after another collector has taken over, wait for its end; else that ends this part.
    """

    cluster: Cluster
    kind: str
    settings: BacklogSettings
    registry: CollectorRegistry
    watch: Watch
    checked: Callable[[], None] = lambda: None
    stand_by: bool = field(kw_only=True)
    _metrics: BacklogMetrics | None = None

    async def run(self) -> None:
        """Look after them until cancelled; what does not answer at the start is asked again.

        Raises:
            TakenOver: another collector of the cluster has started since, and it is not waited for.
        """
        while True:
            try:
                async with AsyncExitStack() as stack:
                    collector = await self._start(stack, once=False)
                    await collector.run(self.checked)
            except TakenOver as taken:
                if not self.stand_by:
                    raise
                await stand_by(self.cluster, taken, collector.interval_s())
            # The second: this machine has no thread left, and may have one later.
            except (WeirError, RuntimeError) as error:
                logger.warning("backlogs: not looked after yet: %s; tried again in %.0f s",
                               printable(str(error)), AGAIN_S)  # fmt: skip
            await asyncio.sleep(AGAIN_S)

    async def once(self) -> None:
        """One check, beside whoever looks after the cluster: nothing is acted on.

        Raises:
            WeirError: it failed.
        """
        async with AsyncExitStack() as stack:
            collector = await self._start(stack, once=True)
            outcome = await collector.check()
        if outcome is not Outcome.DONE:
            raise WeirError(f"backlogs: the check failed ({outcome})")
        self.checked()

    async def _start(self, stack: AsyncExitStack, *, once: bool) -> BacklogCollector:
        cluster = self.cluster
        name, backlogs = await self.watch(stack)
        lease = f"{cluster.topics.usage}-backlog-{self.kind}-{name}{'-once' if once else ''}"
        if self._metrics is None:
            self._metrics = BacklogMetrics(self.registry, name, topic_metrics=self.settings.topic_metrics)
        metrics = self._metrics
        unusable = metrics.dropped_decisions.labels("unusable").inc
        policies = PolicyFeed(cluster, unusable)
        decisions = DecisionFeed(
            cluster, backlogs_in, lambda said: collector.take(said), unusable, READ_BACK_MS
        )

        async def stop() -> None:
            await asyncio.gather(policies.stop(), decisions.stop())

        stack.push_async_callback(stop)
        await policies.start()
        writer = await asyncio.to_thread(Reports, cluster, lease, _WRITE_S, policies.clock.learn)
        stack.enter_context(writer)
        log = ActionLog(cluster, _WRITE_S)
        stack.callback(log.close)
        run = CollectorRun(
            cluster=backlogs, name=f"collect-{self.kind}-{name}-{secrets.token_hex(4)}",
            policies=policies.policies, log=log.write, metrics=metrics,
        )  # fmt: skip
        collector = BacklogCollector(
            run,
            lambda reports: asyncio.to_thread(write_reports, writer, reports),
            lambda: decisions.caught_up,
        )
        if not once:
            decisions.begin()
        return collector
