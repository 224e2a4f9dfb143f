"""What ties an enforcer to the job, whatever it speaks: events go out, policies and decisions come in.

A proxy makes one of these beside its meter, starts it before it lets clients in, and lets it probe.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from enforcer.core.clock import Clock
from enforcer.core.feeds.decisions import Decision, Read, Standing, standing
from enforcer.core.feeds.dispatches import Dispatched
from enforcer.core.feeds.limits import LimitDecision
from enforcer.core.feeds.policies import policies_tail
from enforcer.core.feeds.shares import Elsewhere, Share
from enforcer.core.feeds.unusable import Complaints
from enforcer.core.metrics import Metrics
from enforcer.core.reports import EVENTS_MAX, Reports
from enforcer.core.settings import ProxySettings
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from enforcer.laws.mutation.joining import Joining
from enforcer.laws.mutation.request import probe
from streaming.contract.backlog.decisions import BacklogDecision
from streaming.contract.topics import CHECK_MS, Topics
from streaming.kafka_io.brokers_clock import BrokersClock
from streaming.kafka_io.topic_watch import TopicWatch

logger = logging.getLogger(__name__)

_PROBE_S = 5.0
# In a row, each within half of the decision timeout; asked for at most so long after the first decision.
_QUICK_PROBES = 3
_WARM_UP_S = 30.0
_COMPLAIN_S = 10.0
_TAIL_STOP_S = 1.0
_FLUSH_S = 2.0
# A policy may be dated far ahead; the loop's timers may not. The time is looked at again then.
_TIMER_MAX_S = 86_400.0


class Brain:
    """One enforcer's ties to the job; made in its event loop.

    Attributes:
        clock: the loop's steady clock, and the wall clock.
        coordinator: asks for decisions, and holds the policies.
        send_usage: takes (usage report, record key); False if it was dropped.
        send_usage_pack: the same of a packed record.
        take_shares: gets the shares of all enforcers; set by whoever meters.
        take_dispatches: gets all dispatch decisions, those that are read back too; set by whoever delivers.
        take_limits: gets what was decided of concurrency limits, nothing where only others were; set by
            whoever keeps these.
        take_backlogs: gets what was decided of backlogs, that which is read back too; set by whoever blocks
            producers.
        take_saying: gets what other proxies say of who reads for which group; set by whoever asks that.
        send_action: takes (action, record key) for `weir.decisions`, and `acked`; False if it was dropped.
        brokers_ms: the brokers' clock, ms since the epoch.
        ready: set once probe requests are decided in time.
        serving: set then, or before: where the job has decided none of them when start_timeout_ms was over,
            once what is decided here is decided by what was read back.

    Args:
        proxy_id: name of this enforcer.
        settings: time limits and bounds.
        metrics: counts.
        topics: names of Weir's topics.
        connection: librdkafka properties of our own connections, `bootstrap.servers` among them.
        topics_check_ms: how often the topics are looked at, ms.
        speaks: the protocol of its clients, kafka, pulsar or http: who does not speak ours delivers nothing
            of what we may deliver (docs/contract.md 3.1).
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
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._start_until_ms = 0.0
        self.clock = Clock(steady_ms=self._steady_ms, wall_ms=lambda: time.time_ns() // 1_000_000)
        self._reports = Reports(
            connection,
            topics.requests,
            events_max=EVENTS_MAX,
            event_timeout_ms=settings.event_timeout_ms,
            metrics=metrics,
        )
        brokers = BrokersClock(self._steady_ms, self.clock.wall_ms)
        self._reports.learn, self.brokers_ms = brokers.learn, brokers.now_ms
        args = settings, metrics, self._reports, self.clock, brokers.now_ms
        self.coordinator = self._in_the_loop(QuotaCoordinator(proxy_id, *args), speaks)
        self._reports.refused = self._refused
        self.send_usage = partial(self._reports.send, topic=topics.usage)
        self.send_action = partial(self._reports.send, topic=topics.decisions)
        self.send_usage_pack = partial(self._reports.send_packed, topic=topics.usage)
        self._tell_nobody()
        self.ready, self.serving = asyncio.Event(), asyncio.Event()
        of_policies, of_decisions = (
            Complaints(topic, metrics.unusable.labels(topic).inc)
            for topic in (topics.policies, topics.decisions)
        )
        policies = self.coordinator.policies
        self._policies_tail = policies_tail(connection, topics.policies, policies, of_policies)
        self._joining = Joining(
            self.coordinator,
            self.clock,
            brokers,
            topics,
            connection,
            policies_known=self._policies_tail.caught_up,
            send_usage=self.send_usage,
            unusable=of_decisions,
            take=self._take,
            listen=lambda said: self.take_saying(said.proxy, said.fields),
        )
        self._watch = TopicWatch(
            connection["bootstrap.servers"],
            topics,
            connection,
            interval_ms=topics_check_ms,
            metrics=metrics.topics,
            logger=logger,
            on_replaced=self._begin_anew,
        )

    def _tell_nobody(self) -> None:
        self.take_shares: Callable[[list[Share | Elsewhere]], None] = lambda _shares: None
        self.take_dispatches: Callable[[list[Dispatched]], None] = lambda _dispatches: None
        self.take_limits: Callable[[list[LimitDecision]], None] = lambda _limits: None
        self.take_backlogs: Callable[[list[BacklogDecision]], None] = lambda _backlogs: None
        self.take_saying: Callable[[str, Mapping[str, Any]], None] = lambda _proxy, _fields: None

    async def start(self) -> None:
        """Connect, and read the policies and what was decided before, for at most start_timeout_ms.

        Raises:
            WeirError: another process has our name.
        """
        limit_ms = self._settings.start_timeout_ms
        self._start_until_ms = self.clock.steady_ms() + limit_ms
        self._watch.start()
        self._reports.start()
        self._joining.start()
        self._policies_tail.start(self._loop)
        try:
            await asyncio.wait_for(self._policies_tail.caught_up.wait(), limit_ms / 1000)
        except TimeoutError:
            # Refusing all traffic because our own topic cannot be read would be worse than no limits.
            logger.warning("the policies could not be read within %.0f s; going on without", limit_ms / 1000)
        await self._joining.open((self._start_until_ms - self.clock.steady_ms()) / 1000)

    async def read_back(self, back_ms: int) -> None:
        """Take the shares and backlogs that still stand, for what `start` has left of its time.

        An enforcer that comes back under its old name goes on with its shares, instead of 5 % for a round.

        Args:
            back_ms: the longest life time.
        """
        tail = standing(
            self._connection,
            self._topics.decisions,
            self._take_standing,
            back_ms,
            own=self.coordinator.proxy_id,
            now_ms=lambda record_ms: max(self.brokers_ms(), record_ms),
        )
        tail.start(self._loop)
        try:
            async with asyncio.timeout(max(0.0, self._start_until_ms - self.clock.steady_ms()) / 1000):
                await tail.caught_up.wait()
        except TimeoutError:
            logger.warning("the decisions could not be read back in time; they come with the next round")
        finally:
            await tail.stop(_TAIL_STOP_S)

    async def probe(self) -> None:
        """Send requests that cost nothing until decisions come in time, several in a row; then be ready.

        One alone says too little: the first batches of a job that has just started take seconds, and a
        client that came then would be answered without its decision.
        """
        started_ms = complained_ms = self.clock.steady_ms()
        first_ms, quick = 0.0, 0
        while quick < _QUICK_PROBES:
            asked_ms = self.clock.steady_ms()
            decided = await self._ask_probe()
            now_ms = self.clock.steady_ms()
            if decided:
                first_ms = first_ms or now_ms
                quick = quick + 1 if (now_ms - asked_ms) * 2 <= self._settings.decision_timeout_ms else 0
                if now_ms - first_ms > _WARM_UP_S * 1000:
                    logger.warning("decisions still take long on this machine; going on all the same")
                    break
            elif now_ms - complained_ms >= _COMPLAIN_S * 1000:
                complained_ms = now_ms
                logger.warning("no probe decided yet: does the job run? strict requests get on_late_decision")
            if not first_ms and now_ms >= self._start_until_ms:
                self._serve_alone()
        logger.info("ready: a probe was decided, after %.1f s", (self.clock.steady_ms() - started_ms) / 1000)
        self.coordinator.metrics.local.alone = False
        self.serving.set()
        self.ready.set()

    def _serve_alone(self) -> None:
        """Others' rollout must not wait for a job that is away."""
        if self.coordinator.reading is None and not self.serving.is_set():
            logger.warning("serving without the job: it has decided nothing since the start")
            self.coordinator.metrics.local.alone = True
            self.serving.set()

    def ask_for_a_sign(self) -> None:
        """Make the job say something, if it is there: a probe that nobody waits for."""
        asked = probe()
        self.coordinator.report(asked, self.coordinator.quota(asked.user, asked.client_id))

    async def stop(self) -> None:
        """Send what waits, for a short while, and end."""
        self.coordinator.outgoing.catch_up()
        self._watch.stop()
        # Its last word goes out with all else that waits.
        await asyncio.gather(self._joining.stop(), self._policies_tail.stop(_TAIL_STOP_S))
        await asyncio.to_thread(self._reports.stop, _FLUSH_S)

    def _in_the_loop(self, coordinator: QuotaCoordinator, speaks: str) -> QuotaCoordinator:
        coordinator.members.speaks = speaks
        coordinator.call_at = self._call_at
        coordinator.in_loop = self._in_loop
        coordinator.outgoing.soon = self._loop.call_soon
        return coordinator

    def _begin_anew(self, topic: str) -> None:
        """A topic was made again: its new records count from the first on; the policies known so far stay."""
        if topic == self._topics.policies:
            self._policies_tail.begin_anew()
        self._joining.begin_anew(topic)

    def _take_standing(self, found: list[Standing]) -> None:
        self.take_shares([share for share in found if isinstance(share, Share | Elsewhere)])
        self.take_backlogs([said for said in found if isinstance(said, BacklogDecision)])

    def _take(self, decisions: list[Read]) -> None:
        self.coordinator.take([decision for decision in decisions if isinstance(decision, Decision)])
        # Those that are read back have lived a part of their life time: read_back takes them.
        if self._joining.caught_up:
            self.take_shares([share for share in decisions if isinstance(share, Share | Elsewhere)])
            if backlogs := [said for said in decisions if isinstance(said, BacklogDecision)]:
                self.take_backlogs(backlogs)
        self.take_dispatches([said for said in decisions if isinstance(said, Dispatched)])
        if decisions:
            self.take_limits([limit for limit in decisions if isinstance(limit, LimitDecision)])

    def _steady_ms(self) -> float:
        return self._loop.time() * 1000

    def _in_loop(self, function: Callable[[], None]) -> None:
        # From the producer's thread; the loop may have closed meanwhile.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def _refused(self, event_id: str) -> None:
        self._in_loop(partial(self.coordinator.refused, event_id))

    def _call_at(self, ts: int, function: Callable[[], None]) -> None:
        delay_s = (ts - self.brokers_ms()) / 1000
        if delay_s > 0:
            self._loop.call_later(min(delay_s, _TIMER_MAX_S), self._call_at, ts, function)
        else:
            self._loop.call_soon(function)

    async def _ask_probe(self) -> bool:
        """Whether one probe was decided within its limit."""
        asked, decided = probe(), asyncio.Event()
        quota = self.coordinator.quota(asked.user, asked.client_id)
        sent = self.coordinator.ask(asked, quota, lambda decision: decided.set() if decision else None)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(decided.wait(), _PROBE_S)
            return True
        if sent:
            # A job that is only starting answers later; keep the question, within the bound.
            self.coordinator.undecided.watch(asked)
        return False
