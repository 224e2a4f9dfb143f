"""Writing to `weir.policies`: one writer at a time, so that nobody's change gets lost.

Several programs change policies: `weir policy apply`, `weir up`, the collector and the admin API. Each reads
the topic, works out what to write, and writes. Were two to do so at a time, the second would write what it
worked out from a topic that has changed since. Kafka has no compare-and-swap, but it has one producer per
transactional id: whoever comes later ends the transaction of the one before and everything it may still try
(KIP-98). So a writer first takes its *turn*, then reads the topic to its end, then writes in one transaction.
If that succeeds, nobody else has written since the turn was taken. If the broker does not say that it does,
whoever takes the next turn and reads on sees what became of it: no transaction outlives a turn.
"""

import random
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Self

import orjson
from confluent_kafka import KafkaError

from streaming.contract.errors import WeirError
from streaming.contract.events import VERSION_MAX
from streaming.contract.fields import TS_MAX_MS
from streaming.contract.topics import Cluster
from streaming.kafka_io.policy_topic import (
    ALL_EARLIER_MAX_BYTES,
    EARLIER_MAX_BYTES,
    TIMEOUT_S,
    Author,
    PolicyLog,
    PolicyReader,
    Update,
    earlier_of,
)
from streaming.kafka_io.writer import OVER, NotWritten, Record, Transactions

# A change is in force so long after it is published: by then every reader has it (docs/contract.md 2). Where
# Kafka takes more than half of that to write it, it is published anew with twice the time.
EFFECTIVE_AFTER_MS = 2_000
_DOUBLINGS_MAX = 5
CLOCKS_APART_MS = 120_000
"""A change that is dated this much later than ours was published by a fast clock, and ours waits for it."""
# Writers that keep ending each other's turns must get out of step.
_PAUSE_S, _PAUSE_MAX_S = 0.1, 2.0
_READ_BACK_S, _LEAST_S = 0.01, 0.05
# A writer that dies in the middle holds readers up until the broker ends its transaction.
_TRANSACTION_LIMIT_S = 10.0
_ABORT_LIMIT_S = 3.0


class TurnLost(WeirError):
    """Nothing was written: somebody else took their turn."""


class TooSlow(TurnLost):
    """Nothing was written: Kafka took so long that it would have been in force before readers had it."""


class Behind(TurnLost):
    """Nothing was written: the topic could not be read to its end, as when a transaction was left open."""


class OutcomeUnknown(WeirError):
    """It may have been written: who reads on in a turn of their own sees it, or sees that it was not."""


class NotInForce(WeirError):
    """It was written, but no reader is seen to go by it; the message says what stands in the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What a writer writes in one turn.

    Attributes:
        log: the topic, as it is now.
        before: the entries as they are before.
        updates: what changes, in order; empty if there is nothing to change.
        effective_ts: from when on all of it is in force, ms since the epoch.
        lines: the records, as `Turn.write` takes them.
        version: the last version.
        bad_before: how many records of the topic could not be used before.
        within_s: Kafka has to take it in so long; None: of the first change of all nobody has another one.
    """

    log: PolicyLog
    before: Mapping[str, Any]
    updates: Sequence[Update]
    effective_ts: int
    lines: Sequence[tuple[str, bytes]]
    version: int
    bad_before: int
    within_s: float | None

    @classmethod
    def of(cls, log: PolicyLog, updates: Sequence[Update], author: Author, slow: int = 0) -> Self:
        """What to write behind all that was read; whether that came is then known by `log.arrived`.

        Args:
            slow: how often Kafka was too slow for it before.
        """
        after_ms = EFFECTIVE_AFTER_MS << min(slow, _DOUBLINGS_MAX)
        # What takes long comes first: readers have their time from when it is published.
        said = changes_of(log, updates, author)
        effective_ts = effective_from(log, updates, _now_ms(), after_ms)
        lines = records(log, said, effective_ts, author)
        if lines:
            # One transaction: if its last record came, all did.
            log.await_record(lines[-1][1])
        return cls(
            log=log,
            before=log.entries,
            updates=updates,
            effective_ts=effective_ts,
            lines=lines,
            version=log.newest_version + len(lines),
            bad_before=log.bad_records,
            within_s=after_ms / 2000 if log.records else None,
        )

    def check_in_force(self, log: PolicyLog) -> None:
        """Whether readers will go by what was written; `log` was read after the writing.

        Raises:
            NotInForce: they will not, and not because somebody has changed it since.
        """
        entries = log.timeline.at(self.effective_ts).written
        missing = [update.path for update in self.updates if entries.get(update.path) != update.value]
        if missing and log.bad_records > self.bad_before:
            raise NotInForce(
                f"{len(missing)} of {len(self.updates)} policies were written, such as {missing[0]}, but"
                f" readers do not go by them: {log.last_bad}"
            )


class Turn:
    """The right to write to the topic, until somebody else takes it or a writing fails.

    Args:
        cluster: that holds it.
        timeout_s: limit for taking it.

    Raises:
        WeirError: the cluster did not answer in time or refuses.
    """

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        # The topic's own name: every installation has its own turns.
        name = cluster.topics.policies
        self._where = f"{name} on {cluster.bootstrap}"
        self._transactions = Transactions(cluster, name, name, _TRANSACTION_LIMIT_S, timeout_s)

    def write(
        self, records: Sequence[tuple[str, bytes]], timeout_s: float, within_s: float | None = None
    ) -> None:
        """Write (key, value) pairs, all or none; what Kafka does not take within a time is not committed.

        Raises:
            TooSlow: it did not.
            TurnLost: nothing was written, and the writer may begin again.
            OutcomeUnknown: see there.
            WeirError: the cluster refuses; this turn is of no use now.
        """
        what = f"{len(records)} policies"
        try:
            lines = (Record(value=value, key=key.encode()) for key, value in records)
            self._transactions.write(lines, timeout_s, within_s)
        except NotWritten as failure:
            with closing(self._transactions):
                raise self._failed(failure, what, timeout_s) from failure

    def _failed(self, failure: NotWritten, what: str, timeout_s: float) -> WeirError:
        if failure.late:
            return TooSlow(f"{what} were not written to {self._where}: {failure}")
        if failure.unknown:
            # Also if the turn is over: an earlier try of the same commit may have been carried out. And
            # a broker that another writer came to in the middle answers with UNKNOWN_SERVER_ERROR.
            return OutcomeUnknown(f"it is not known whether {what} were written to {self._where}: {failure}")
        # The broker forgets an id that was not used for a week.
        if failure.codes & {*OVER, KafkaError.UNKNOWN_PRODUCER_ID}:
            return TurnLost(f"another writer of {self._where} came in between")
        # Readers need not wait for the broker, or for the next writer, to end it.
        self._transactions.abort(min(timeout_s, _ABORT_LIMIT_S))
        return WeirError(f"{what} were not written to {self._where}: {failure}")


class Turns:
    """Changes policies, one change at a time, in as many turns as each takes; the last turn is kept.

    Args:
        cluster: that holds them.
        run: calls what takes its time: in a thread, for who has a loop that must not wait.
        read: a limit, s -> the topic, read to its end.
        lag_s: a turn in which this takes longer is given up: the next one ends what was left open.
        lost: called when a turn was lost and another will be taken.
    """

    def __init__(
        self,
        cluster: Cluster,
        run: Callable[..., Awaitable[Any]],
        read: Callable[[float], Awaitable[PolicyLog]],
        *,
        lag_s: float = inf,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._cluster, self._run, self._read = cluster, run, read
        self._lag_s, self._lost = lag_s, lost
        self._turn: Turn | None = None

    async def change(
        self, decide: Callable[[PolicyLog], Sequence[Update]], author: Author, deadline: float
    ) -> Attempt:
        """Make a change and read back that it counts; raises as `change_policies`.

        Args:
            decide: the topic as it is -> updates; called again if nothing could be written.
            author: who makes it.
            deadline: by the steady clock, s.
        """
        attempt: Attempt | None = None
        unknown: OutcomeUnknown | None = None
        lost = slow = 0
        while True:
            try:
                # Not kept if anything fails in it but `decide`; a thread may still work with it.
                turn, self._turn = self._turn or await self._run(Turn, self._cluster, _left(deadline)), None
                log = await self._read(min(_left(deadline), self._lag_s))
                self._turn = turn
                if attempt is None or not log.arrived:
                    # What was tried before is known not to be there.
                    unknown = None
                    attempt = Attempt.of(log, decide(log), author, slow)
                    if attempt.lines:
                        self._turn = None
                        await self._run(turn.write, attempt.lines, _left(deadline), attempt.within_s)
                        self._turn = turn
                break
            except WeirError as failure:
                again = isinstance(failure, TurnLost | OutcomeUnknown)
                pause = pause_s(lost)
                if not again or time.monotonic() + pause > deadline:
                    if unknown is None:
                        raise
                    raise OutcomeUnknown(f"{unknown}; then {failure}") from failure
                lost += 1
                slow += isinstance(failure, TooSlow)
                unknown = failure if isinstance(failure, OutcomeUnknown) else unknown
                self._lost()
                await self._run(time.sleep, pause)
        if attempt.lines:
            attempt.check_in_force(await self._read_back(deadline))
        return attempt

    async def _read_back(self, deadline: float) -> PolicyLog:
        """The topic, with what was written: a commit is answered a moment before readers may see it."""
        try:
            while not (log := await self._read(_left(deadline))).arrived:
                if time.monotonic() > deadline:
                    raise WeirError("they have not come in time")
                await self._run(time.sleep, _READ_BACK_S)
        except WeirError as failure:
            raise NotInForce(f"the policies were written, but could not be read back: {failure}") from failure
        return log


def change_policies(
    cluster: Cluster,
    decide: Callable[[PolicyLog], Sequence[Update]],
    *,
    origin: str,
    actor: str = "",
    reason: str = "",
    timeout_s: float = TIMEOUT_S,
    reader: PolicyReader | None = None,
) -> Attempt:
    """Read the topic, ask `decide` what to write, write it as one step, and read back that it counts.

    Args:
        cluster: that holds it.
        decide: the topic as it is -> updates; called again if nothing could be written.
        origin, actor, reason: see `Author`.
        timeout_s: limit of all of it.
        reader: one that may have read some of it, for who does this often.

    Raises:
        WeirError: no such topic, no answer in time, or others kept writing. If it is not known whether the
            change was made, since the cluster went away in the middle, the message says so.
        NotInForce: it was made, and readers are not seen to go by it.
    """
    deadline = time.monotonic() + timeout_s
    author = Author(origin, actor, reason)
    with reader or PolicyReader(cluster) as reader:
        log = reader.read(timeout_s)
        reader.check_order()
        # Mostly there is nothing to do, and then nobody else's turn need end.
        if not decide(log):
            return Attempt.of(log, (), author)
        turns = Turns(cluster, _here, partial(_here, reader.read))
        attempt: Attempt = _at_once(turns.change(decide, author, deadline))
        return attempt


async def _here(call: Callable[..., Any], *given: Any) -> Any:
    return call(*given)


def _at_once(change: Coroutine[Any, Any, Any]) -> Any:
    """What comes of a change that is made by `_here` alone, and so never waits for a loop."""
    try:
        change.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError


def _left(deadline: float) -> float:
    return max(_LEAST_S, deadline - time.monotonic())


def pause_s(lost: int) -> float:
    """How long to wait, s, after a turn was lost for the n-th time (from 0)."""
    return random.uniform(0, min(_PAUSE_MAX_S, _PAUSE_S * 2.0**lost))


def effective_from(log: PolicyLog, updates: Sequence[Update], now_ms: int, after_ms: int) -> int:
    """When updates take effect, all at one time: so long from now, ms since the epoch.

    Now if nobody has set any policy yet, since then nobody can be behind. Not before an entry's last change
    where that is near, whatever the other writer's clock: the later record must be the one in force.
    """
    soon = now_ms + (after_ms if log.records else 0)
    last = [log.effective.get(update.path, 0) for update in updates]
    return max([soon, *(ts for ts in last if ts <= soon + CLOCKS_APART_MS)])


def changes_of(log: PolicyLog, updates: Sequence[Update], author: Author) -> list[tuple[Update, bytes]]:
    """Updates, each with what its record says but for its time, as JSON that follows on that."""
    return [(update, _said(log, update, author, len(updates))) for update in updates]


def records(
    log: PolicyLog, said: Sequence[tuple[Update, bytes]], effective_ts: int, author: Author
) -> list[tuple[str, bytes]]:
    """The records (key, value) of what `changes_of` made, with rising versions, in force from a time on.

    Where changes of an entry are dated later still, the same is said again at each of their times. It
    stands before the record that counts from `effective_ts` on, since compaction leaves the last one alone.
    """
    ahead: dict[str, set[int]] = {}
    for ts, path in log.timeline.changed(effective_ts, TS_MAX_MS, written=True):
        ahead.setdefault(path, set()).add(ts)
    dated = [(u, rest, ts) for u, rest in said for ts in (*sorted(ahead.get(u.path, ())), effective_ts)]
    # No other writer's record is the same, though it be of the same version and time.
    name = f"{author.origin}-{secrets.token_hex(4)}"
    lines = []
    for number, (update, rest, ts) in enumerate(dated, 1):
        # Beyond the greatest version that may be stated they go on counting.
        version = min(log.newest_version + number, VERSION_MAX)
        head = {
            "type": "policy",
            "id": f"{name}-{ts}-{version}",
            "ts": ts,
            "effective_ts": ts,
            "version": version,
        }
        if ts != effective_ts:
            rest = _rest({**_change(update, author), "repeat": True})
        lines.append((update.path, orjson.dumps(head)[:-1] + rest))
    return lines


def _said(log: PolicyLog, update: Update, author: Author, of: int) -> bytes:
    """What a record says but for its time, one `of` so many that are written together."""
    told = log.told.get(update.path, ())
    earlier = earlier_of(told, min(EARLIER_MAX_BYTES, ALL_EARLIER_MAX_BYTES // of))
    change = {**_change(update, author), "actor": author.actor or author.origin, "reason": author.reason}
    # None of them means that there was none, and not that none fits.
    if earlier or not told:
        change["earlier"] = earlier
    return _rest(change)


def _change(update: Update, author: Author) -> dict[str, Any]:
    return {"path": update.path, "value": update.value, "origin": author.origin}


def _rest(fields: Mapping[str, Any]) -> bytes:
    return b"," + orjson.dumps(fields)[1:]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
