"""What every enforcer consists of, whatever it speaks: its ties to the job, its meter, its limits.

A proxy makes one of these in its event loop, starts it before it lets clients in, spawns its work, and stops
it after the last client has left.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping

from enforcer.core.brain import Brain
from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.laws.backlog.blocks import Blocks
from enforcer.laws.concurrency.measuring import Counted, Measuring, Upstreams
from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.laws.dispatch.shares import DispatchShares
from enforcer.laws.shares.groups import Groups
from streaming.contract.backlog.decisions import TTL_MS
from streaming.contract.topics import CHECK_MS, Topics


class Enforcement:
    """One enforcer's laws, without sockets to clients.

    Attributes:
        proxy_id: its name in events.
        brain: ties to the job.
        coordinator: decides on partition mutations, and holds the policies.
        groups: resource groups and byte rates; their shares and reports.
        meter: the accounts of these.
        dispatch: dispatch rates.
        measuring: concurrency limits of the brokers behind it.
        blocks: topics that take nothing of their producers.

    Args:
        proxy_id: see there.
        settings: time limits and bounds.
        metrics: counts.
        topics: names of Weir's topics.
        connection: librdkafka properties of our own connections, `bootstrap.servers` among them.
        topics_check_ms: how often the topics are looked at, ms.
        speaks: see Brain.
        upstreams: tell the partition of load at a broker's address.
        connections: all that are open to clients.
    """

    def __init__(
        self,
        proxy_id: str,
        settings: ProxySettings,
        metrics: Metrics,
        topics: Topics,
        connection: Mapping[str, str],
        topics_check_ms: int = CHECK_MS,
        *,
        speaks: str,
        upstreams: Upstreams,
        connections: Callable[[], Iterable[Counted]],
    ) -> None:
        self.proxy_id = proxy_id
        self._loop = asyncio.get_running_loop()
        self.brain = brain = Brain(
            proxy_id, settings, metrics, topics, connection, topics_check_ms, speaks=speaks
        )  # fmt: skip
        self.coordinator = brain.coordinator
        self.groups = Groups(
            proxy_id, settings, metrics, brain.clock,
            brain.send_usage, brain.send_usage_pack, self.coordinator.policies,
        )  # fmt: skip
        brain.take_shares = self.groups.take
        self.groups.alive = lambda: self.coordinator.members.metering
        self.meter = self.groups.meter
        self.dispatch = self._make_dispatch(settings, metrics)
        # A block of another process of the same name is another one.
        self.blocks = Blocks(
            f"{proxy_id}-{brain.clock.wall_ms()}", settings, metrics, brain.clock, brain.brokers_ms,
            self.coordinator.policies, brain.send_action,
        )  # fmt: skip
        brain.take_backlogs = self.blocks.take
        self.measuring = Measuring(proxy_id, metrics, brain, self.groups, upstreams, connections)

    async def start(self) -> None:
        """Connect, read the policies and what was decided before; see Brain.start."""
        await self.brain.start()
        self.groups.look()
        self.dispatch.look()
        self.measuring.look()
        self.blocks.look()
        shares = self.meter.active or self.dispatch.active or self.measuring.partitions.active
        backlogs = self.blocks.acting
        if shares or backlogs:
            life_ms = self.groups.share_life_ms if shares else 0
            await self.brain.read_back(max(life_ms, TTL_MS if backlogs else 0))

    def work(self) -> list[Coroutine[None, None, None]]:
        """What is to be run, each until it is cancelled but for the probe, which ends once it is decided."""
        return [
            self.brain.probe(),
            self.groups.run(),
            self.dispatch.run(),
            self.measuring.run(),
            self.blocks.run(),
        ]

    async def stop(self) -> None:
        """Say what is left to be said, and end."""
        self.groups.stop()
        self.dispatch.stop()
        self.blocks.stop()
        await self.brain.stop()

    def _make_dispatch(self, settings: ProxySettings, metrics: Metrics) -> Dispatch:
        brain = self.brain
        dispatch = Dispatch(
            self.proxy_id,
            settings,
            metrics,
            brain.clock,
            brain.brokers_ms,
            self.coordinator.policies,
            brain.send_usage,
            brain.send_usage_pack,
        )
        dispatch.reports.call_later = self._call_later
        dispatch.shared = DispatchShares(self.meter)
        dispatch.proxies = lambda: self.coordinator.members.peers
        brain.take_dispatches = dispatch.take
        return dispatch

    def _call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, function)
