"""An enforcer's client of the control plane, which is the job: events go out, policies and decisions come in.

It knows laws by what `law.EnforcerLaw` says of them, and nothing of any one.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from enforcer.core.feeds.complaints import Complaints
from enforcer.core.feeds.decisions import Read, decisions_tail
from enforcer.core.feeds.membership import Hear, MembershipFeed
from enforcer.core.feeds.policies import Policies, policies_tail
from enforcer.core.law import NO_UPSTREAMS, Clock, Context, EnforcerLaw, Upstreams
from enforcer.core.membership import Membership
from enforcer.core.metrics import Metrics
from enforcer.core.reports import Reports
from enforcer.core.settings import ProxySettings
from streaming.contract.topics import Cluster
from streaming.kafka_io.brokers_clock import BrokersClock
from streaming.kafka_io.tail import Tail
from streaming.kafka_io.topic_watch import TopicWatch

logger = logging.getLogger(__name__)

_STOP_S: Final = 1.0
_FLUSH_S: Final = 2.0
_MARGIN_MS: Final = 2_000
"""Read back more than is needed, since clocks disagree: nothing counts twice."""
_TIMER_MAX_S: Final = 86_400.0
"""A policy may be dated far ahead; the loop's timers may not. The time is looked at again then."""


class ControlPlane:
    """One enforcer's ties to the job; made in its event loop.

    Attributes:
        context: what laws are made with.
        clock: the loop's steady clock, and the wall clock.

    Args:
        proxy_id: name of this enforcer.
        settings: time limits and bounds.
        metrics: counts.
        cluster: that holds Weir's topics.
        speaks: the protocol of its clients, kafka, pulsar or http: who does not speak ours delivers nothing
            of what we may deliver (docs/contract.md 3.1).
        hear: gets what other proxies say of who reads for which group.
        patience_ms: for so long beyond start_timeout_ms the policies are waited for: whose clients need Kafka
            as well lose little by that.
        upstreams: the brokers behind us.
        connections: all that are open to clients.
    """

    def __init__(
        self,
        proxy_id: str,
        settings: ProxySettings,
        metrics: Metrics,
        cluster: Cluster,
        *,
        speaks: str,
        hear: Hear = lambda _proxy, _fields: None,
        patience_ms: int = 0,
        upstreams: Upstreams = NO_UPSTREAMS,
        connections: Callable[[], Iterable[Any]] = tuple,
    ) -> None:
        self._settings, self._patience_ms = settings, patience_ms
        self._topics, self._connection = topics, connection = cluster.topics, cluster.properties
        self._loop = loop = asyncio.get_running_loop()
        self._laws: Sequence[EnforcerLaw] = ()
        self.clock = Clock(steady_ms=lambda: loop.time() * 1000, wall_ms=lambda: time.time_ns() // 1_000_000)
        self._brokers = BrokersClock(self.clock.steady_ms, self.clock.wall_ms)
        self._reports = Reports(
            connection,
            topics.requests,
            metrics=metrics,
            refused=self._refused,
            learn=self._brokers.learn,
        )
        self.context = self._make_context(proxy_id, metrics, speaks, upstreams, connections)
        self._unusable, of_policies = (
            Complaints(topic, metrics.unusable_records.labels(topic).inc)
            for topic in (topics.decisions, topics.policies)
        )
        self._policies_tail = policies_tail(connection, topics.policies, self.context.policies, of_policies)
        self._joining = MembershipFeed(self.context, self._reports, self._brokers, hear)
        self._decisions: Tail[Read] | None = None
        self._back_ms = 0
        self._opening: asyncio.Task[None] | None = None
        self._start_until_ms = 0.0
        self._watch = TopicWatch(cluster, metrics=metrics.topics, logger=logger, on_replaced=self._begin_anew)

    def _make_context(
        self, proxy_id: str, metrics: Metrics, speaks: str, upstreams: Upstreams,
        connections: Callable[[], Iterable[Any]],
    ) -> Context:  # fmt: skip
        reports, topics, brokers, loop = self._reports, self._topics, self._brokers, self._loop
        return Context(
            proxy_id=proxy_id,
            settings=self._settings,
            metrics=metrics,
            topics=topics,
            connection=self._connection,
            clock=self.clock,
            brokers_ms=brokers.now_ms,
            policies=Policies(
                brokers.now_ms, lambda: self._policies_tail.caught_up.is_set(), lambda: brokers.known
            ),
            membership=Membership(proxy_id, speaks, brokers.now_ms, self._read_to_ms),
            requests=reports,
            send_usage=partial(reports.send, topic=topics.usage),
            send_usage_pack=partial(reports.send_packed, topic=topics.usage),
            send_action=partial(reports.send, topic=topics.decisions),
            soon=loop.call_soon,
            call_later=lambda delay_ms, function: loop.call_later(delay_ms / 1000, function),
            call_at=self.call_at,
            in_loop=self._in_loop,
            ask_for_a_sign=self._ask_for_a_sign,
            upstreams=upstreams,
            connections=connections,
        )

    async def start(self, laws: Sequence[EnforcerLaw]) -> None:
        """Connect, and read the policies, with patience, and what was decided before, for start_timeout_ms.

        Args:
            laws: get what is read, and look before they get what still stands.

        Raises:
            WeirError: another process has our name.
        """
        self._laws = laws
        limit_ms, known = self._settings.start_timeout_ms, self._policies_tail.caught_up
        wait_s = (limit_ms + self._patience_ms) / 1000 if limit_ms else 0.0
        self._start_until_ms = self.clock.steady_ms() + limit_ms
        self._watch.start()
        self._joining.start()
        self._reports.start()
        self._policies_tail.start(self._loop)
        try:
            # Not wait_for, which forgets a stop that comes as they are read (Python 3.11).
            async with asyncio.timeout(wait_s):
                await known.wait()
        except TimeoutError:
            # Refusing all traffic because our own topic cannot be read would be worse than no limits.
            logger.warning("the policies could not be read within %.0f s; going on without", wait_s)
        if known.is_set() and self.clock.steady_ms() > self._start_until_ms:
            # Kafka has been away: what is read back has its time now.
            self._start_until_ms = self.clock.steady_ms() + limit_ms
        self._opening = self._loop.create_task(self._open())
        self._opening.add_done_callback(_say_why)
        left_s = (self._start_until_ms - self.clock.steady_ms()) / 1000
        done, _ = await asyncio.wait((self._opening,), timeout=max(0.0, left_s))
        self._joining.check_name()
        if not done:
            logger.warning("what was decided before could not be read in time; until it is, the job is asked")
        if self._decisions is None:
            # Kafka is away: what is asked from now on needs its decisions, however far back is read later.
            self._follow()
        for law in laws:
            law.look()
        if life_ms := max((law.standing_ms for law in laws), default=0):
            await self._read_back(life_ms)

    async def _read_back(self, back_ms: int) -> None:
        """Take the decisions that still stand, for what `start` has left of its time.

        An enforcer that comes back under its old name goes on with its shares, instead of 5 % for a round.
        """
        tail = decisions_tail(
            self._connection,
            self._topics.decisions,
            self._readers(),
            self._take_standing,
            own=self.context.proxy_id,
            back_ms=back_ms,
            now_ms=lambda record_ms: max(self._brokers.now_ms(), record_ms),
            standing=True,
        )
        tail.start(self._loop)
        try:
            async with asyncio.timeout(max(0.0, self._start_until_ms - self.clock.steady_ms()) / 1000):
                await tail.caught_up.wait()
        except TimeoutError:
            logger.warning("the decisions could not be read back in time; they come with the next round")
        finally:
            await tail.stop(_STOP_S)

    async def stop(self) -> None:
        """Send what waits, for a short while, and end."""
        self._watch.stop()
        if self._opening is not None:
            self._opening.cancel()
        # Its last word goes out with all else that waits.
        stops = [self._joining.stop(), self._policies_tail.stop(_STOP_S)]
        if self._decisions is not None:
            stops.append(self._decisions.stop(_STOP_S))
        await asyncio.gather(*stops)
        await asyncio.to_thread(self._reports.stop, _FLUSH_S)

    def call_at(self, ts: int, function: Callable[[], None]) -> None:
        """Call a function at a time of the brokers' clock, ms."""
        delay_s = (ts - self._brokers.now_ms()) / 1000
        if delay_s > 0:
            self._loop.call_later(min(delay_s, _TIMER_MAX_S), self.call_at, ts, function)
        else:
            self._loop.call_soon(function)

    async def _open(self) -> None:
        # By the policies is said how far back, by the acknowledgement what time it is.
        await asyncio.gather(self._policies_tail.caught_up.wait(), self._joining.known.wait())
        if self._decisions is not None and self._back_ms < self._history_ms():
            # It was begun without the policies. What comes twice is passed over.
            await self._decisions.stop(_STOP_S)
            self._decisions = None
        decisions = self._decisions or self._follow()
        await asyncio.gather(decisions.caught_up.wait(), self._joining.heard_of())
        await asyncio.gather(*(self._open_law(law, decisions.newest_ms) for law in self._laws))

    async def _open_law(self, law: EnforcerLaw, newest_ms: int) -> None:
        try:
            await law.open(newest_ms)
        except Exception:
            logger.critical("the law of %s cannot begin, restart it", law.reads.type, exc_info=True)

    def _follow(self) -> Tail[Read]:
        """Follow the decisions from as far back as the policies say."""
        self._back_ms = self._history_ms()
        self._decisions = decisions_tail(
            self._connection,
            self._topics.decisions,
            self._readers(),
            self._take,
            self._unusable,
            own=self.context.proxy_id,
            back_ms=self._back_ms + _MARGIN_MS,
            now_ms=self._now_ms,
        )
        self._decisions.start(self._loop)
        return self._decisions

    def _history_ms(self) -> int:
        return max((law.history_ms for law in self._laws), default=0)

    def _readers(self) -> dict[str, Any]:
        return {law.reads.type: law.reads for law in self._laws}

    def _take(self, decisions: list[Read]) -> None:
        """Give each law its decisions."""
        # Those that stand have lived a part of their life time where they are read back, by _read_back.
        stands = self._decisions is not None and self._decisions.caught_up.is_set()
        self._hand_over(decisions, [law for law in self._laws if stands or not law.reads.standing])

    def _take_standing(self, decisions: list[Read]) -> None:
        self._hand_over(decisions, [law for law in self._laws if law.reads.standing])

    def _hand_over(self, decisions: list[Read], laws: Sequence[EnforcerLaw]) -> None:
        for law in laws if decisions else ():
            try:
                law.take([said for kind, said in decisions if kind == law.reads.type])
            except Exception:  # one law's trouble must not be that of those after it
                logger.exception("decisions of type %s met a mistake in their law", law.reads.type)

    def _begin_anew(self, topic: str) -> None:
        """A topic was made again: its new records count from the first on; the policies known so far stay."""
        if topic == self._topics.policies:
            self._policies_tail.begin_anew()
        if topic == self._topics.usage:
            self._joining.begin_anew()
        if topic == self._topics.decisions and self._decisions is not None:
            self._decisions.begin_anew()

    def _read_to_ms(self) -> int | None:
        return 0 if self._decisions is None else self._decisions.read_to_ms

    def _now_ms(self, record_ms: int) -> int:
        """The time by which decisions are too far ahead: a record's own may be any, but for a start."""
        now_ms = self._brokers.now_ms()
        return now_ms if self._brokers.known else max(now_ms, record_ms)

    def _ask_for_a_sign(self) -> None:
        for law in self._laws:
            law.ask_for_a_sign()

    def _refused(self, event_id: str) -> None:
        for law in self._laws:
            self._in_loop(partial(law.refused, event_id))

    def _in_loop(self, function: Callable[[], None]) -> None:
        # From the producer's thread; the loop may have closed meanwhile.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)


def _say_why(opening: asyncio.Task[None]) -> None:
    """Say that the laws have not begun, which nobody would see until they are missed."""
    if not opening.cancelled() and (error := opening.exception()) is not None:
        logger.critical("what was decided before cannot be followed, restart the proxy", exc_info=error)
