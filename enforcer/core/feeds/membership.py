"""How an enforcer becomes one of those that count, and stays one (docs/contract.md 3.1).

It says that it lives, learns the brokers' clock from the acknowledgement, and hears who else lives.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Any, Final

from enforcer.core.feeds.peers import ReadersReport, Sign, signs_in
from enforcer.core.law import Context, Send
from enforcer.core.membership import ALIVE_EVERY_MS
from enforcer.core.reports import Reports
from streaming.contract.errors import WeirError
from streaming.kafka_io.brokers_clock import BrokersClock
from streaming.kafka_io.tail import Tail

logger = logging.getLogger(__name__)

_STOP_S: Final = 1.0
_BACK_MS: Final = 20_000
_RETRY_S: Final = 0.5
_HEARD_S: Final = 1.0
"""After our own `alive` was read: so long others may take to read it."""
_COMPLAIN_MS: Final = 60_000
_OWN_NAMES: Final = "give each a name of its own: --id or proxy.id, of an admin API http.id"
Hear = Callable[[str, Mapping[str, Any]], None]
"""Gets what another proxy says of who reads for which group: its name, and the record's fields."""


class MembershipFeed:
    """An enforcer's place among the others.

    Attributes:
        known: set once our own first `alive` stands on the topic; by then the brokers' clock is known.

    Args:
        context: where we stand; its membership is told what is heard.
        reports: writes what is said before all else.
        brokers: knows the brokers' clock, once some event was acknowledged.
        hear: see there.
    """

    def __init__(self, context: Context, reports: Reports, brokers: BrokersClock, hear: Hear) -> None:
        self._name, self._membership, self._clock = context.proxy_id, context.membership, context.clock
        self._in_loop, self._ask_for_a_sign = context.in_loop, context.ask_for_a_sign
        self._same_name = context.metrics.same_name
        self._brokers, self._hear = brokers, hear
        topic, self._send = context.topics.usage, context.send_usage
        self._send_first: Send = partial(reports.send_first, topic=topic)
        self._loop = asyncio.get_running_loop()
        self._signs = Tail[Sign | ReadersReport](
            context.connection,
            topic,
            back_ms=_BACK_MS,
            # Our own clock may be ahead of the brokers', and would leave out all who said so just now.
            from_newest=True,
            parse=signs_in,
            deliver=self._heard,
        )
        self._heart: asyncio.TimerHandle | None = None
        self.known, self._read_own, self._taken = (asyncio.Event() for _ in range(3))
        self._beats = 0
        self._complained_ms = -inf

    def start(self) -> None:
        """Say that we live, and then listen who else does."""
        self._beat()

    async def heard_of(self) -> None:
        """Wait until the others have heard of us, and we know of them."""
        await self._signs.caught_up.wait()
        await self._read_own.wait()
        if self._membership.count == 1:
            # Who comes from now on hears of us before it begins: we listen since our own word stands.
            return
        await asyncio.sleep(_HEARD_S)
        # One of our name that was killed says nothing more; else it will within this time.
        left_ms = self._membership.alive.predecessor_ms(self._brokers.now_ms())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_ms / 1000):
                await self._taken.wait()

    def check_name(self) -> None:
        """Make sure that our name is ours.

        Raises:
            WeirError: another process has it, which had it before us.
        """
        if self._taken.is_set():
            raise WeirError(f"another process is {self._name!r} and decides already; {_OWN_NAMES}")

    async def stop(self) -> None:
        """Say that we leave, and listen no more."""
        if self._heart is not None:
            self._heart.cancel()
        self._say(leaving=True)
        await self._signs.stop(_STOP_S)

    def begin_anew(self) -> None:
        """The topic was made again (from any thread)."""
        self._signs.begin_anew()

    def _heard(self, signs: list[Sign | ReadersReport]) -> None:
        alive = self._membership.alive
        for sign in signs:
            if isinstance(sign, ReadersReport):
                self._hear(sign.proxy, sign.fields)
                continue
            proxy, ts, leaving, speaks, instance = sign
            if alive.heard(proxy, ts, leaving=leaving, speaks=speaks, instance=instance):
                self._complain()
        if alive.read_own:
            self._read_own.set()
        self._membership.look()

    def _complain(self) -> None:
        """Another process lives that has our name."""
        if self._membership.alive.name_is_taken:
            self._taken.set()
        self._same_name.inc()
        now_ms = self._clock.steady_ms()
        if now_ms - self._complained_ms >= _COMPLAIN_MS:
            self._complained_ms = now_ms
            logger.error("another process is %r too: shares are used twice; %s", self._name, _OWN_NAMES)

    def _beat(self) -> None:
        # First of all: whatever fails in what follows, we live, and the others must hear it.
        every_s = ALIVE_EVERY_MS / 1000 if self._brokers.known else _RETRY_S
        self._heart = self._loop.call_later(every_s, self._beat)
        self._say(leaving=False)
        if self._membership.hears_of_no_decision:
            # Where there are others, only a decision tells that the job has theirs as well.
            self._ask_for_a_sign()

    def _say(self, *, leaving: bool) -> None:
        self._beats += 1
        name = self._name
        event: dict[str, Any] = {
            "type": "alive", "id": f"{name}-alive-{self._clock.wall_ms()}-{self._beats}", "proxy": name,
            "instance": self._membership.alive.instance,
        }  # fmt: skip
        if self._membership.speaks:
            event["speaks"] = self._membership.speaks
        if leaving:
            event["leaving"] = True
        sent_ms = self._brokers.now_ms()
        send = self._send_first if self._beats == 1 else self._send
        # Also one that is dropped, as too many events wait: nobody takes that either.
        self._membership.alive.sent(sent_ms)
        send(event, name, acked=partial(self._told, sent_ms))

    def _told(self, sent_ms: int, record_ms: int | None) -> None:
        """The acknowledgement of an `alive`, in a thread."""
        if record_ms is not None:
            self._in_loop(partial(self._stands, sent_ms))

    def _stands(self, sent_ms: int) -> None:
        self._membership.alive.acknowledged(sent_ms)
        if not self.known.is_set():
            # First, since it could fail, where no thread is left: our next word begins it then.
            self._signs.start(self._loop)
            self.known.set()
