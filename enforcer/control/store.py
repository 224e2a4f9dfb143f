"""The admin API's policies on `weir.policies`: read as they come, written in turns (see policy_turn)."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from enforcer.control.groups import Changes, Entries, Refusal, Unavailable
from enforcer.control.metrics import AdminMetrics
from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.kafka_io.policy_topic import Author, PolicyLog, Update
from streaming.kafka_io.policy_turn import Behind, NotInForce, OutcomeUnknown, Turns
from streaming.kafka_io.reader import Reader
from streaming.kafka_io.tail import Tail

CHANGE_S: Final = 10.0
"""Limit for a change to be written and read back, s."""
CHANGES_MAX: Final = 100
"""Changes waiting for their turn; further ones get 503."""
ORIGIN = "admin"
# A reader that lags longer waits for a transaction that somebody left open: a new turn ends it.
_LAG_LIMIT_S = 2.0
_FETCH_WAIT_MS = 100


class PolicyStore:
    """Where policies are kept; all but the reading itself happens in the loop that `tail` is started with.

    Attributes:
        tail: reads them; a change under way at its stop is left to its own limit.

    Args:
        wrong: what is wrong with the topic, empty: nothing; then nothing is changed.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        metrics: AdminMetrics,
        wrong: Callable[[], str] = lambda: "",
    ) -> None:
        self._cluster = cluster
        self._metrics, self._wrong = metrics, wrong
        self._log = PolicyLog()
        self._reached = 0
        self._moved = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._changing = 0
        lost = partial(self._count, "overtaken")
        self._turns = Turns(cluster, asyncio.to_thread, self._catch_up, lag_s=_LAG_LIMIT_S, lost=lost)
        self._asker: Reader | None = None
        self.tail = Tail(
            cluster.properties,
            cluster.topics.policies,
            parse=lambda message: [(message.value(), message.timestamp()[1])],
            deliver=self._take,
            at_end=self._at_end,
            fetch_wait_ms=_FETCH_WAIT_MS,
            begun_anew=self._forget,
        )

    @property
    def entries(self) -> Entries:
        """Path -> value after all changes, those in force soon too; raises Unavailable: not read yet."""
        return self.log.entries

    @property
    def log(self) -> PolicyLog:
        """The same, with who has set what; raises Unavailable: see entries."""
        self._check_read()
        return self._log

    async def change(self, decide: Callable[[Entries], Changes], actor: str, reason: str) -> None:
        """Make a change, visible in `entries` when this returns.

        Args:
            decide: the entries as they are -> what to change; called again if somebody else came in between.
            actor: who makes it, for the log of changes.
            reason: why, in that one's words; may be empty.

        Raises:
            Refusal: by `decide`; nothing was changed.
            Unavailable: no answer within the limit.
        """
        self._check_read()
        if wrong := self._wrong():
            raise Unavailable(f"Not changed, since it could get lost: {wrong}")
        if self._changing >= CHANGES_MAX:
            raise Unavailable(f"{self._changing} changes are under way already")
        deadline = time.monotonic() + CHANGE_S
        self._changing += 1
        try:
            async with asyncio.timeout(CHANGE_S):
                await self._one_at_a_time.acquire()
            try:
                made = await self._turns.change(
                    lambda log: updates_of(log, decide(log.entries)), Author(ORIGIN, actor, reason), deadline
                )
            finally:
                self._one_at_a_time.release()
        except TimeoutError:
            raise Unavailable("Other changes took too long; this one was not made") from None
        except Refusal:
            raise
        except WeirError as failure:
            self._count("failed")
            raise Unavailable(_told(failure)) from failure
        finally:
            self._changing -= 1
        if made.lines:
            self._count("written")

    async def _catch_up(self, limit_s: float) -> PolicyLog:
        """What the topic says, once all is read that was written before now.

        Raises:
            Behind: not within the limit.
            WeirError: the cluster does not answer.
        """
        deadline = time.monotonic() + limit_s
        end = await asyncio.to_thread(self._end, limit_s)
        while self._reached < end:
            self._moved.clear()
            try:
                async with asyncio.timeout(max(0, deadline - time.monotonic())):
                    await self._moved.wait()
            except TimeoutError:
                topic = self._cluster.topics.policies
                raise Behind(f"{topic} was not read to its end within its limit") from None
        return self._log

    def _end(self, limit_s: float) -> int:
        """Offset behind the topic's last record, asked for anew."""
        if self._asker is None:
            # Behind what is not committed yet: a commit is answered a moment before readers may see it.
            own = {"isolation.level": "read_uncommitted"}
            self._asker = Reader(self._cluster.bootstrap, self._cluster.client, own)
        return self._asker.span(self._cluster.topics.policies, 0, limit_s).end

    def _check_read(self) -> None:
        if not self.tail.caught_up.is_set():
            raise Unavailable("The policies have not been read yet: Kafka does not answer")

    def _forget(self) -> None:
        # A change under way may be in the topic that is read from its beginning now.
        self._log, self._reached = self._log.anew(), 0

    def _take(self, lines: list[tuple[bytes | None, int]]) -> None:
        for value, ts in lines:
            self._log.take(value, ts)
        self._metrics.policy_version.set(self._log.newest_version)
        self._metrics.bad_policy_records.set(self._log.bad_records)

    def _at_end(self, partition: int, offset: int) -> None:
        if partition == 0:
            self._reached = offset
            self._moved.set()

    def _count(self, result: str) -> None:
        self._metrics.changes.labels(result).inc()


def _told(failure: WeirError) -> str:
    if isinstance(failure, NotInForce):
        return str(failure)
    what = "It is not known whether this was" if isinstance(failure, OutcomeUnknown) else "Not"
    return f"{what} changed: {failure}"


def updates_of(log: PolicyLog, changes: Changes) -> list[Update]:
    """What there is to write: not what stands there already, if it was set here."""
    held = log.entries
    return [
        Update(path=path, value=value)
        for path, value in changes.items()
        if value is None or held.get(path) != value or log.origins.get(path) != ORIGIN
    ]
