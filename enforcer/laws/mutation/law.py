"""Quotas of partition mutations at one enforcer: the coordinator, what it begins with, and whether the job
decides in time."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final

from enforcer.core.feeds.peers import Charge, requests_since
from enforcer.core.law import Context, DecisionReader, EnforcerLaw, Work
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from enforcer.laws.mutation.request import PROBE_API, Decision, Request
from streaming.contract.decisions import admission_of
from streaming.contract.events import ANONYMOUS
from streaming.policy.policy_set import PolicySet, refill_times

logger = logging.getLogger(__name__)

BACK_MS: Final = 60_000
"""The least that is read back."""
BACK_MAX_MS: Final = 600_000
"""The most: one slow quota must not make each start read days. Debts are repeated meanwhile."""
PROBE_CLIENT_ID: Final = "weir-probe"
_MARGIN_MS: Final = 2_000
"""Read back more than is needed, since clocks disagree: nothing counts twice."""
_STOP_S: Final = 1.0
_PROBE_S: Final = 5.0
# In a row, each within half of the decision timeout; asked for at most so long after the first decision.
_QUICK_PROBES: Final = 3
_WARM_UP_S: Final = 30.0
_COMPLAIN_S: Final = 10.0
_LOOK_S: Final = 0.1
_POLICIES_LOOKS: Final = 600
"""For the policies: after a minute more clients are better off without."""


READER: Final = DecisionReader(type="admission", parse=admission_of, at=lambda decision: decision.at)


class MutationQuotas(EnforcerLaw):
    """The law of partition mutations.

    Attributes:
        coordinator: decides on requests.
        ready: set once probe requests are decided in time.
        serving: set then, or before: where the job has decided none of them when start_timeout_ms was over,
            once what is decided here is decided by what was read back.
    """

    reads = READER
    look_s = 1.0

    def __init__(self, context: Context, _accounts: object = None) -> None:
        self.coordinator = QuotaCoordinator(context)
        self._context = context
        self._alone_from_ms = context.clock.steady_ms() + context.settings.start_timeout_ms
        self.ready, self.serving = asyncio.Event(), asyncio.Event()

    @property
    def history_ms(self) -> int:
        """As long as balances need to be known."""
        return back_ms(self._context.policies.now)

    async def open(self, newest_ms: int) -> None:
        """Read what was decided by proxies after the job's last word, and decide at once from then on."""
        context, reading = self._context, self.coordinator.reading
        # Without an admission: nothing is decided of what was asked after the job's last word.
        newest_ts = (reading and reading.newest_ts) or newest_ms or context.brokers_ms()
        since_ms = max(0, context.clock.wall_ms() - newest_ts)
        requests = requests_since(
            context.connection,
            context.topics.requests,
            self._charged,
            since_ms + self.history_ms + _MARGIN_MS,
        )
        requests.start(asyncio.get_running_loop())
        try:
            await requests.caught_up.wait()
        finally:
            await requests.stop(_STOP_S)
        self.coordinator.begin()

    def take(self, decisions: Sequence[Decision]) -> None:
        """Act on what was decided, for whichever proxy."""
        self.coordinator.take(decisions)

    def look(self) -> None:
        """Drop what is old, see who lives."""
        self.coordinator.tick()

    def refused(self, event_id: str) -> None:
        """Whoever waits for its decision need not wait on."""
        self.coordinator.refused(event_id)

    def ask_for_a_sign(self) -> None:
        """Send a probe that nobody waits for, under the quota that a replay finds for it."""
        asked = probe()
        self.coordinator.report(asked, self.coordinator.quota(asked.user, asked.client_id))

    def work(self) -> list[Work]:
        """Look, and probe the job until it decides in time."""
        return [self.run, self.probe]

    def stop(self) -> None:
        """Hand over what was put off."""
        self.coordinator.outgoing.catch_up()

    async def probe(self) -> None:
        """Send requests that cost nothing until decisions come in time, several in a row; then be ready.

        One alone says too little: the first batches of a job that has just started take seconds, and a
        client that came then would be answered without its decision.
        """
        clock, known = self._context.clock, self.coordinator.policies.known
        started_ms = complained_ms = clock.steady_ms()
        for _ in range(_POLICIES_LOOKS):
            if known():
                break
            await asyncio.sleep(_LOOK_S)
        first_ms, quick = 0.0, 0
        while quick < _QUICK_PROBES:
            asked_ms = clock.steady_ms()
            decided = await self._ask_probe()
            now_ms = clock.steady_ms()
            if decided:
                first_ms = first_ms or now_ms
                in_time = (now_ms - asked_ms) * 2 <= self._context.settings.decision_timeout_ms
                quick = quick + 1 if in_time else 0
                if now_ms - first_ms > _WARM_UP_S * 1000:
                    logger.warning("decisions still take long on this machine; going on all the same")
                    break
            elif now_ms - complained_ms >= _COMPLAIN_S * 1000:
                complained_ms = now_ms
                logger.warning("no probe decided yet: does the job run? strict requests get on_late_decision")
            if not first_ms and now_ms >= self._alone_from_ms:
                self._serve_alone()
        logger.info("ready: a probe was decided, after %.1f s", (clock.steady_ms() - started_ms) / 1000)
        self._context.metrics.local.alone = False
        self.serving.set()
        self.ready.set()

    def _serve_alone(self) -> None:
        """Others' rollout must not wait for a job that is away."""
        if self.coordinator.reading is None and not self.serving.is_set():
            logger.warning("serving without the job: it has decided nothing since the start")
            self._context.metrics.local.alone = True
            self.serving.set()

    async def _ask_probe(self) -> bool:
        """Whether one probe was decided within its limit."""
        asked, decided = probe(), asyncio.Event()
        quota = self.coordinator.quota(asked.user, asked.client_id)
        sent = self.coordinator.ask(asked, quota, lambda decision: decided.set() if decision else None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PROBE_S):
                await decided.wait()
        if decided.is_set():
            return True
        if sent:
            # A job that is only starting answers later; keep the question, within the bound.
            self.coordinator.undecided.watch(asked)
        return False

    def _charged(self, charges: list[Charge]) -> None:
        if self.coordinator.reading is not None:
            for charge in charges:
                self.coordinator.reading.event(charge)


def back_ms(policies: PolicySet) -> int:
    """R: how long an empty bucket takes to be full under any quota, from one minute to ten."""
    longest_s = max((seconds for _, seconds in refill_times(policies.entries)), default=0.0)
    return max(BACK_MS, int(min(longest_s * 1000.0, BACK_MAX_MS)))


def probe() -> Request:
    """A request that costs nothing: its decision shows that events and decisions flow."""
    return Request(
        user=ANONYMOUS, client_id=PROBE_CLIENT_ID, api=PROBE_API, api_version=0,
        strict=True, dry_run=True, items={PROBE_CLIENT_ID: 0},
    )  # fmt: skip
