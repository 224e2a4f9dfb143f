"""Why a connection is ended by the proxy, counted and said."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from enforcer.kafka.context import Context
from enforcer.kafka.life.connection_end import ConnectionEnd
from enforcer.wire.kafka.frames import BadFrame, Reason
from streaming.contract.errors import WeirError

logger = logging.getLogger(__name__)


class Troubles:
    """What may be wrong with one connection; each ends it.

    Args:
        context: what all connections share.
        ending: of this connection.
        who: whose it is, for the log.
    """

    def __init__(self, context: Context, ending: ConnectionEnd, who: Callable[[], str]) -> None:
        self._context = context
        self._ending = ending
        self._who = who

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call it after a delay; what it raises ends the connection: it might wait for an answer for ever."""
        return self._context.call_later(delay_ms, partial(self._call, function))

    def _call(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as error:  # noqa: BLE001  # one client's trouble must not be everybody's
            self.no_answer(error)

    def broken(self) -> None:
        """A mistake of ours, which must not concern anybody else: to be called where it was caught."""
        self._context.metrics.bad_frames.labels(Reason.INTERNAL.value).inc()
        if self._context.turns.may_say():
            logger.exception("the connection of %s ends: it met a mistake in the proxy", self._who())
        self._ending.close_client("internal")

    def no_answer(self, error: Exception) -> None:
        """The broker's answers cannot go on: to be called where it was caught."""
        # First of all, as long as it is known what waits: a departed client loses it.
        self._ending.give_up("upstream")
        if isinstance(error, WeirError):
            # An address that we cannot stand for, or bytes that we cannot read, must not be passed on.
            logger.warning("the connection of %s ends: %s", self._who(), error)
            self._ending.close_client("bad_response")
        else:
            self.broken()

    def bad_frame(self, bad: BadFrame) -> None:
        """The client sent what the protocol does not allow."""
        self._context.metrics.bad_frames.labels(bad.reason.value).inc()
        self._ending.close_client("bad_frame")

    def greedy(self, held_bytes: int, reason: str) -> None:
        """It holds more than there is room for: nothing of it is kept."""
        logger.warning("the connection of %s ends: it holds %d bytes", self._who(), held_bytes)
        self._ending.drop(reason)
