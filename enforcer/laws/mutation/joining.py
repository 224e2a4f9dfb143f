"""How a proxy comes to decide at once, and stays among those that do (docs/contract.md 3.1).

It says that it lives, learns the brokers' clock from the acknowledgement, hears who else lives, and reads
back what was decided before it and what is still to be.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Any, Final

from enforcer.core.clock import Clock
from enforcer.core.feeds.company import Charge, Saying, Sign, alive_tail, requests_since
from enforcer.core.feeds.decisions import Read, decisions_tail
from enforcer.core.feeds.tail import Tail
from enforcer.core.feeds.unusable import Unusable
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from enforcer.laws.mutation.membership import ALIVE_EVERY_MS, back_ms
from enforcer.laws.mutation.request import probe
from streaming.contract.errors import WeirError
from streaming.contract.topics import Topics
from streaming.kafka_io.brokers_clock import BrokersClock

logger = logging.getLogger(__name__)

_STOP_S: Final = 1.0
_MARGIN_MS: Final = 2_000
"""Read back more than is needed, since clocks disagree: nothing counts twice."""
SendUsage = Callable[..., bool]
_RETRY_S: Final = 0.5
_HEARD_S: Final = 1.0
"""After our own `alive` was read: so long others may take to read it."""
_COMPLAIN_MS: Final = 60_000
_OWN_NAMES: Final = "give each a name of its own: --id or proxy.id, of an admin API http.id"


class Joining:
    """A proxy's place among the others.

    Args:
        coordinator: decides by what is read.
        clock: our own.
        brokers: learns the brokers' clock.
        topics: names of Weir's topics.
        connection: librdkafka properties of our connections.
        policies_known: set once all policies were read.
        send_usage: takes (event, key) for `weir.usage`, and `acked`.
        unusable: told of decisions that cannot be used.
        take: gets all decisions that are read, in the loop.
        listen: gets what other proxies say of who reads for which group, in the loop.
    """

    def __init__(
        self,
        coordinator: QuotaCoordinator,
        clock: Clock,
        brokers: BrokersClock,
        topics: Topics,
        connection: Mapping[str, str],
        *,
        policies_known: asyncio.Event,
        send_usage: SendUsage,
        unusable: Unusable,
        take: Callable[[list[Read]], None],
        listen: Callable[[Saying], None],
    ) -> None:
        self._coordinator = coordinator
        self._name = coordinator.proxy_id
        self._members = coordinator.members
        self._clock = clock
        self._brokers = brokers
        self._topics = topics
        self._connection = connection
        self._policies_known = policies_known
        self._send_usage = send_usage
        self._unusable = unusable
        self._take = take
        self._listen = listen
        self._loop = asyncio.get_running_loop()
        self._signs = alive_tail(connection, topics.usage, self._heard)
        self._decisions: Tail[Read] | None = None
        self._heart: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None
        self._back_ms = 0
        self._acknowledged, self._read_own, self._taken = (asyncio.Event() for _ in range(3))
        self._beats = 0
        self._complained_ms = -inf

    def start(self) -> None:
        """Say that we live, and listen who else does."""
        self._signs.start(self._loop)
        self._beat()

    async def open(self, limit_s: float) -> None:
        """Read back what is needed to decide at once; what takes longer than the limit goes on meanwhile.

        Until all is read nothing is decided at once: every request is asked about.

        Raises:
            WeirError: another process has our name, which it had before us.
        """
        self._members.read_to_ms = self._read_to_ms
        self._opening = self._loop.create_task(self._open())
        done, _ = await asyncio.wait((self._opening,), timeout=max(0.0, limit_s))
        if self._taken.is_set():
            raise WeirError(f"another process is {self._name!r} and decides already; {_OWN_NAMES}")
        if not done:
            logger.warning("what was decided before could not be read in time; until it is, the job is asked")
        if self._decisions is None:
            # Kafka is away: what is asked from now on needs its decisions, however far back is read later.
            self._decisions = self._follow()

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

    async def _open(self) -> None:
        # By the policies is said how far back, by the acknowledgement what time it is.
        await asyncio.gather(self._policies_known.wait(), self._acknowledged.wait())
        decisions = await self._follow_back()
        await asyncio.gather(
            decisions.caught_up.wait(), self._signs.caught_up.wait(), self._others_have_heard()
        )
        # Without an admission: nothing is decided of what was asked after the job's last word.
        reading = self._coordinator.reading
        newest_ts = (reading and reading.newest_ts) or decisions.newest_ms or self._brokers.now_ms()
        since_ms = self._clock.wall_ms() - newest_ts
        requests = requests_since(
            self._connection,
            self._topics.requests,
            self._charged,
            max(0, since_ms) + self._longest_ms() + _MARGIN_MS,
        )
        requests.start(self._loop)
        try:
            await requests.caught_up.wait()
        finally:
            await requests.stop(_STOP_S)
        self._coordinator.begin()

    async def _follow_back(self) -> Tail[Read]:
        """Follow the decisions from as far back as the policies say."""
        if self._decisions is not None and self._back_ms < self._longest_ms():
            # It was begun without the policies. What comes twice is passed over.
            await self._decisions.stop(_STOP_S)
            self._decisions = None
        if self._decisions is None:
            self._decisions = self._follow()
        return self._decisions

    def _follow(self) -> Tail[Read]:
        self._back_ms = self._longest_ms()
        decisions = decisions_tail(
            self._connection,
            self._topics.decisions,
            self._take,
            self._unusable,
            own=self._name,
            back_ms=self._back_ms + _MARGIN_MS,
            now_ms=self._now_ms,
        )
        decisions.start(self._loop)
        return decisions

    def _longest_ms(self) -> int:
        return back_ms(self._coordinator.policies.now)

    def _now_ms(self, record_ms: int) -> int:
        """The time by which decisions are too far ahead: a record's own may be any, but for a start."""
        now_ms = self._brokers.now_ms()
        return now_ms if self._brokers.known else max(now_ms, record_ms)

    async def _others_have_heard(self) -> None:
        await self._read_own.wait()
        await asyncio.sleep(_HEARD_S)
        # One of our name that was killed says nothing more; else it will within this time.
        left_ms = self._members.alive.predecessor_ms(self._brokers.now_ms())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._taken.wait(), left_ms / 1000)

    def _read_to_ms(self) -> int | None:
        return 0 if self._decisions is None else self._decisions.read_to_ms

    def _charged(self, charges: list[Charge]) -> None:
        if self._coordinator.reading is not None:
            for charge in charges:
                self._coordinator.reading.event(charge)

    def _heard(self, signs: list[Sign | Saying]) -> None:
        alive = self._members.alive
        for sign in signs:
            if isinstance(sign, Saying):
                self._listen(sign)
                continue
            proxy, ts, leaving, speaks, instance = sign
            if alive.heard(proxy, ts, leaving=leaving, speaks=speaks, instance=instance):
                self._complain()
        if alive.read_own:
            self._read_own.set()
        self._members.look()

    def _complain(self) -> None:
        """Another process lives that has our name."""
        if self._members.alive.name_is_taken:
            self._taken.set()
        self._coordinator.metrics.same_name.inc()
        now_ms = self._clock.steady_ms()
        if now_ms - self._complained_ms >= _COMPLAIN_MS:
            self._complained_ms = now_ms
            logger.error("another process is %r too: shares are used twice; %s", self._name, _OWN_NAMES)

    def _beat(self) -> None:
        self._say(leaving=False)
        every_s = ALIVE_EVERY_MS / 1000 if self._brokers.known else _RETRY_S
        if self._members.hears_of_no_decision:
            # Where there are others, only a decision tells that the job has theirs as well.
            # Under the quota that a replay finds for it, or that would decide otherwise.
            asked = probe()
            self._coordinator.report(asked, self._coordinator.quota(asked.user, asked.client_id))
        self._heart = self._loop.call_later(every_s, self._beat)

    def _say(self, *, leaving: bool) -> None:
        self._beats += 1
        name = self._name
        event: dict[str, Any] = {
            "type": "alive", "id": f"{name}-alive-{self._clock.wall_ms()}-{self._beats}", "proxy": name,
            "instance": self._members.alive.instance,
        }  # fmt: skip
        if self._members.speaks:
            event["speaks"] = self._members.speaks
        if leaving:
            event["leaving"] = True
        sent_ms = self._brokers.now_ms()
        if self._send_usage(event, name, acked=partial(self._told, sent_ms)):
            self._members.alive.sent(sent_ms)

    def _told(self, sent_ms: int, record_ms: int | None) -> None:
        """The acknowledgement of an `alive`, in a thread."""
        if record_ms is not None:
            self._coordinator.in_loop(partial(self._stands, sent_ms))

    def _stands(self, sent_ms: int) -> None:
        self._members.alive.acknowledged(sent_ms)
        self._acknowledged.set()
