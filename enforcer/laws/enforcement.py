"""What every enforcer consists of, whatever it speaks: its client of the control plane, and its laws.

A proxy makes one of these in its event loop, starts it before it lets clients in, spawns its work, and stops
it after the last client has left.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from math import inf
from typing import Final, TypeVar

from enforcer.core.control import ControlPlane
from enforcer.core.law import EnforcerLaw, Work
from enforcer.laws.backlog.blocks import Blocks
from enforcer.laws.concurrency.limits import ConcurrencyLimits
from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.laws.mutation.law import MutationQuotas
from enforcer.laws.shares.groups import Groups
from enforcer.laws.shares.meter import Meter

LAWS: Final[list[type[EnforcerLaw]]] = [MutationQuotas, Groups, Dispatch, ConcurrencyLimits, Blocks]
"""Adding a law is adding its folder, and its class here. In that order they are made, get what was read, look
and stop: `Groups` before whose limits are its accounts."""

_SAY_S: Final = 60.0
"""Between two lines in the log of one law's mistakes."""

logger = logging.getLogger(__name__)

Law = TypeVar("Law", bound=EnforcerLaw)


class Enforcement:
    """One enforcer's laws, without sockets to clients.

    Attributes:
        context: what its laws stand in.
        meter: the accounts of groups and byte rates.
        ready: set once probe requests are decided in time.
        serving: set then, or once it decides without the job what it can.

    Args:
        control: its ties to the job; started and stopped here.
        laws: those that apply to what it speaks.
    """

    def __init__(self, control: ControlPlane, laws: Sequence[type[EnforcerLaw]] = LAWS) -> None:
        self._control, self.context = control, control.context
        self.meter = Meter(self.context.settings, self.context.clock)
        assert len({law.reads.type for law in laws}) == len(laws), "each law has decisions of its own type"
        self._laws = {law: law(self.context, self.meter) for law in laws}
        quotas = self.of(MutationQuotas)
        self.ready, self.serving = quotas.ready, quotas.serving

    def of(self, law: type[Law]) -> Law:
        """One of its laws."""
        found = self._laws[law]
        assert isinstance(found, law)
        return found

    async def start(self) -> None:
        """Connect, read the policies and what was decided before; see ControlPlane.start."""
        await self._control.start(list(self._laws.values()))

    def work(self) -> list[Coroutine[None, None, None]]:
        """What is to be run, each until it is cancelled or has come to its end."""
        return [self._lasting(law, work) for law in self._laws.values() for work in law.work()]

    async def _lasting(self, law: EnforcerLaw, work: Work) -> None:
        """Begin it anew after each mistake: what nobody looks at would stand for ever, such as a block."""
        said_s = -inf
        while True:
            try:
                return await work()
            except Exception:
                self.context.metrics.bad_frames.labels("internal").inc()
                if time.monotonic() - said_s >= _SAY_S:
                    said_s = time.monotonic()
                    logger.exception("the law of %s met a mistake of ours, and goes on", law.reads.type)
                await asyncio.sleep(law.look_s)

    async def stop(self) -> None:
        """Say what is left to be said, and end."""
        for law in self._laws.values():
            try:
                law.stop()
            except Exception:  # the others, and that we leave, are said all the same
                logger.exception("the law of %s did not stop well", law.reads.type)
        await self._control.stop()
