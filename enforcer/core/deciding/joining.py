"""How a proxy comes to decide at once, and stays among those that do (docs/contract.md 3.1).

It says that it lives, learns the brokers' clock from the acknowledgement, hears who else lives, and reads
back what was decided before it and what is still to be.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from enforcer.core.clock import BrokersClock, Clock
from enforcer.core.coordinator import QuotaCoordinator
from enforcer.core.feeds.company import Charge, Sign, alive_tail, requests_since
from enforcer.core.feeds.decisions import Decision, decisions_tail
from enforcer.core.feeds.shares import Elsewhere, Share
from enforcer.core.feeds.tail import Tail
from enforcer.core.feeds.unusable import Unusable
from enforcer.core.local.alive import ALIVE_EVERY_MS
from enforcer.core.local.read_back import back_ms
from enforcer.core.questions.request_events import probe
from streaming.contract.topics import Topics

logger = logging.getLogger(__name__)

_STOP_S: Final = 1.0
_MARGIN_MS: Final = 2_000
"""Read back more than is needed, since clocks disagree: nothing counts twice."""
SendUsage = Callable[..., bool]
_RETRY_S: Final = 0.5


class Joining:
    """A proxy's place among the others.

    Args:
        coordinator: decides by what is read.
        clock: our own.
        brokers: learns the brokers' clock.
        topics: names of Weir's topics.
        connection: librdkafka properties of our connections.
        send_usage: takes (event, key) for `weir.usage`, and `acked`.
        unusable: told of decisions that cannot be used.
        take: gets all decisions that are read, in the loop.
    """

    def __init__(
        self,
        coordinator: QuotaCoordinator,
        clock: Clock,
        brokers: BrokersClock,
        topics: Topics,
        connection: Mapping[str, str],
        *,
        send_usage: SendUsage,
        unusable: Unusable,
        take: Callable[[list[Decision | Share | Elsewhere]], None],
    ) -> None:
        self._coordinator = coordinator
        self._local = coordinator.local
        self._clock = clock
        self._brokers = brokers
        self._topics = topics
        self._connection = connection
        self._send_usage = send_usage
        self._unusable = unusable
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._signs = alive_tail(connection, topics.usage, self._heard)
        self._decisions: Tail[Decision | Share | Elsewhere] | None = None
        self._heart: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None
        self._acknowledged = asyncio.Event()
        self._beats = 0

    def start(self) -> None:
        """Say that we live, and listen who else does."""
        self._signs.start(self._loop)
        self._beat()

    async def open(self, limit_s: float) -> None:
        """Read back what is needed to decide at once; what takes longer than the limit goes on meanwhile.

        Until all is read nothing is decided at once: every request is asked about.
        """
        policies = self._coordinator.policies.at(self._clock.wall_ms())
        longest_ms = back_ms(policies)
        self._decisions = decisions_tail(
            self._connection,
            self._topics.decisions,
            self._take,
            self._unusable,
            own=self._coordinator.proxy_id,
            back_ms=longest_ms + _MARGIN_MS,
        )
        self._local.read_to_ms = self._read_to_ms
        self._decisions.start(self._loop)
        self._opening = self._loop.create_task(self._open(self._decisions, longest_ms))
        done, _ = await asyncio.wait((self._opening,), timeout=max(0.0, limit_s))
        if not done:
            logger.warning("what was decided before could not be read in time; until it is, the job is asked")

    @property
    def caught_up(self) -> bool:
        """Whether what is read of the decisions was written since the start."""
        return self._decisions is not None and self._decisions.caught_up.is_set()

    async def stop(self) -> None:
        """Say that we leave, and read no more."""
        if self._heart is not None:
            self._heart.cancel()
        if self._opening is not None:
            self._opening.cancel()
        self._say(leaving=True)
        stops = [self._signs.stop(_STOP_S)]
        if self._decisions is not None:
            stops.append(self._decisions.stop(_STOP_S))
        await asyncio.gather(*stops)

    def begin_anew(self, topic: str) -> None:
        """A topic was made again (from any thread)."""
        if topic == self._topics.usage:
            self._signs.begin_anew()
        if topic == self._topics.decisions and self._decisions is not None:
            self._decisions.begin_anew()

    async def _open(self, decisions: Tail[Decision | Share | Elsewhere], longest_ms: int) -> None:
        await asyncio.gather(
            decisions.caught_up.wait(), self._signs.caught_up.wait(), self._acknowledged.wait()
        )
        newest_ts = self._local.newest_stated_ts
        since_ms = 0 if newest_ts is None else max(0, self._clock.wall_ms() - newest_ts)
        requests = requests_since(
            self._connection, self._topics.requests, self._charged, since_ms + longest_ms + _MARGIN_MS
        )
        requests.start(self._loop)
        try:
            await requests.caught_up.wait()
        finally:
            await requests.stop(_STOP_S)
        self._local.begin()

    def _read_to_ms(self) -> int | None:
        return 0 if self._decisions is None else self._decisions.read_to_ms

    def _charged(self, charges: list[Charge]) -> None:
        for charge in charges:
            self._local.read_back(charge)

    def _heard(self, signs: list[Sign]) -> None:
        for sign in signs:
            self._local.alive.heard(sign.proxy, sign.ts, leaving=sign.leaving)
        self._local.look()

    def _beat(self) -> None:
        self._say(leaving=False)
        every_s = ALIVE_EVERY_MS / 1000 if self._brokers.known else _RETRY_S
        if self._local.hears_of_no_decision:
            # Where there are others, only a decision tells that the job has theirs as well.
            self._coordinator.report(probe(), None)
        self._heart = self._loop.call_later(every_s, self._beat)

    def _say(self, *, leaving: bool) -> None:
        self._beats += 1
        name = self._coordinator.proxy_id
        event: dict[str, Any] = {
            "type": "alive", "id": f"{name}-alive-{self._clock.wall_ms()}-{self._beats}", "proxy": name,
        }  # fmt: skip
        if leaving:
            event["leaving"] = True
        sent_ms = self._brokers.now_ms()
        if self._send_usage(event, name, acked=partial(self._told, sent_ms)):
            self._local.alive.sent(sent_ms)

    def _told(self, sent_ms: int, record_ms: int | None) -> None:
        """The acknowledgement of an `alive`, in a thread."""
        if record_ms is not None:
            self._coordinator.in_loop(partial(self._stands, sent_ms))

    def _stands(self, sent_ms: int) -> None:
        self._local.alive.acknowledged(sent_ms)
        self._acknowledged.set()
