"""One shard's step: records in, decisions and dead letters out, state carried as bytes.

Everything that decides passes through here: the Spark operator, both replay engines and the tests. No clock,
no I/O, no Spark.
"""

import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self

import numpy as np

from streaming.columns.byte_strings import Integers
from streaming.columns.outputs import Outputs
from streaming.columns.records import NO_ROW, Records
from streaming.contract.decisions import dead_letter
from streaming.contract.errors import BadEvent, StateError
from streaming.contract.events import Event, PolicyChange, Tick
from streaming.contract.topics import KEPT_MS
from streaming.laws.law import Batch, Intake, LawSpec, LawState, StepContext
from streaming.laws.present import Present
from streaming.laws.refresh import Refresh
from streaming.laws.registry import LAWS
from streaming.laws.routing import take
from streaming.policy.files import check_entry
from streaming.policy.timeline import PolicyTimeline
from streaming.state.body import Body, encode
from streaming.state.spilled import SpilledBody

STATE_VERSION: Final = 5
"""Version of the body; Spark's own schema (version, body) never changes."""
LATENESS_MS: Final = 300_000
"""How far Kafka partitions may lie apart in time without a decision changing: state that a straggler may
still ask for (policies of then, buckets not yet full then) is kept this long."""
SWEEP_MS: Final = 60_000
"""How often idle subjects leave the table, in event time."""
NEVER: Final = -1
"""A time (ms) before all times: of what no law decides."""
_AHEAD: Final = "brokers_ahead_ms"
"""Note in the body: see Present.ahead_ms."""
SENT: Final = "sent"
"""Note in the body: who has sent what so far (columns.sent.SentBefore)."""
_CANDIDATE: Final = "candidate"
"""Note in the body: the digest of the policies that are tried there."""
_Change = tuple[int, tuple[int, int, int], int, PolicyChange]
"""A change of policy: since when it is in force, arrival and number of its record, and what it says."""


@dataclass(slots=True)
class _ShardState:
    """What a shard knows as a batch finds it.

    Attributes:
        spilled: its body.
        timeline: the policies; at its first batch those in force before every event.
        table: the law's state.
    """

    spilled: SpilledBody
    timeline: PolicyTimeline
    table: LawState

    @classmethod
    def of(cls, law: LawSpec, body: bytes | None, context: StepContext) -> Self:
        spilled = SpilledBody.of(body, context.blobs)
        tried = b"" if context.candidate is None else context.candidate.digest
        if spilled.body.notes.get(_CANDIDATE, b"") != tried:
            spilled = SpilledBody.of(None, context.blobs)
        columns, notes = spilled.body.columns, spilled.body.notes
        if "policies" in notes:
            timeline = PolicyTimeline.from_json(notes["policies"], notes["changes"])
        else:
            timeline = PolicyTimeline(context.initial)
        table = law.table.from_columns(columns)
        table.take_up(notes, context.blobs)
        return cls(spilled, timeline, table)

    def with_policies(self, context: StepContext) -> bytes:
        """The body as it was read, but for the policies."""
        before = self.spilled.body
        policies, changes = self.timeline.to_json()
        notes = {**before.notes, "policies": policies, "changes": changes}
        return self.spilled.to_bytes(Body(columns=before.columns, notes=notes), context.blobs)


@dataclass(slots=True)
class BatchContent:
    """What the records of a batch say.

    Attributes:
        intakes: the events, by the name of the law that decides them.
        policies: changes of policy.
        single: of what was read by itself, policies too: its record, and when it is applied, ms.
        newest: time (ms) of the newest tick, -1 for none; the intakes know that of their events.
        brokers_ahead_ms: what the newest tick that knows it says of the brokers' clock; None: none does.
    """

    intakes: dict[str, Intake]
    policies: list[_Change] = field(default_factory=list)
    single: list[tuple[int, int]] = field(default_factory=list)
    newest: int = -1
    brokers_ahead_ms: int | None = None

    @classmethod
    def of(cls, laws: Iterable[LawSpec], records: Records, context: StepContext) -> Self:
        return cls({law.name: law.intake(records, context.max_ahead_ms) for law in laws})

    def put(self, i: int, event: Event, records: Records) -> None:
        """Take what a record says, unless it is for other laws alone.

        Raises:
            BadEvent: it cannot be used.
        """
        self.single.append((i, event.at))
        if isinstance(event, PolicyChange):
            self.policies.append((event.ts, records.order_of(i), i, event))
            return
        if isinstance(event, Tick):
            if event.brokers_ahead_ms is not None and event.at >= self.newest:
                self.brokers_ahead_ms = event.brokers_ahead_ms
            self.newest = max(self.newest, event.at)
        for name, intake in self.intakes.items():
            if type(event) in LAWS.by_name[name].events:
                intake.put(i, event)

    def times(self, count: int) -> Integers:
        """When each of so many records is applied, ms; -1: it is not."""
        at = np.full(count, NEVER)
        for records, times in (part for intake in self.intakes.values() for part in intake.scanned()):
            at[records] = times
        for i, time in self.single:
            at[i] = time
        return at


def step(
    law: str, shard: int, body: bytes | None, records: Records, context: StepContext
) -> tuple[bytes, Outputs]:
    """Take a shard one batch further.

    A bug in a law costs its batch, not the query: the state stays as it was, but for the policies, and every
    event becomes a dead letter with the traceback.

    Args:
        law: name of the law, a key of LAWS.by_name.
        shard: number of the shard.
        body: its state before; None at its first batch.
        records: the batch; policies are in every shard's batch.
        context: see StepContext.

    Returns:
        The state after and what was decided, in order of time.

    Raises:
        StateError: the state cannot be read or kept.
        Exception: whatever a law raised, under `fail_fast`.
    """
    spec = LAWS.by_name[law]
    known = _ShardState.of(spec, body, context)
    # Only one shard reports what is wrong with a record that all of them see.
    reporter = shard == 0 and spec is LAWS.reporting
    try:
        return _advance(spec, known, records, context, reporter)
    except StateError:
        raise
    except Exception:
        if context.fail_fast:
            raise
        failure = f"law {law} failed: {traceback.format_exc()}"
    return _set_aside(spec, body, records, context, reporter, failure)


def _advance(
    law: LawSpec, known: _ShardState, records: Records, context: StepContext, reporter: bool
) -> tuple[bytes, Outputs]:
    """Decide a batch; whatever it raises, nothing is lost but this shard as it was read."""
    outputs = Outputs()
    timeline, table, notes = known.timeline, known.table, known.spilled.body.notes
    read = read_batch((law,), records, outputs, context, reporter)
    if context.candidate is None:
        apply_policies(read.policies, law, timeline)
    intake = read.intakes[law.name]
    newest = max(int(notes.get("newest", b"-1")), read.newest, intake.newest)
    swept = int(notes.get("swept", b"-1"))
    # Ticks stand on another topic than requests, which may be read hours behind them: ticks alone are
    # believed where they go on from the last sweep, or there was no event for as long as topics keep them.
    quiet_ms = newest - swept
    alone = newest if quiet_ms < SWEEP_MS + LATENESS_MS or quiet_ms > KEPT_MS else swept
    reached = alone if intake.newest == NEVER else intake.newest
    present = _present(law, records, context, known, read)
    batch = batch_of(intake, timeline, context, present.now, end=context.replay)
    decided = None if batch is None else table.fold(batch)
    if not context.replay and reached - swept >= SWEEP_MS:
        table.sweep(timeline, reached - LATENESS_MS)
        timeline.forget_before(table.policies_from(reached - LATENESS_MS))
        swept = reached
    if decided is not None:
        said = present.in_time(decided)
        outputs.add(said)
        outputs.withheld = len(decided) - len(said)
    policies, changes = timeline.to_json()
    after = {"newest": b"%d" % newest, "swept": b"%d" % swept, "policies": policies, "changes": changes}
    if present.ahead_ms is not None:
        after[_AHEAD] = b"%d" % present.ahead_ms
    if context.candidate is not None:
        # Nothing of it stands for anybody, so that nothing is said again.
        after[_CANDIDATE] = context.candidate.digest
    elif not context.replay:
        outputs.add(None if present.behind else table.repeats(newest, timeline))
        if law.decision.standing:
            refresh = Refresh(law.decision, notes.get("standing"))
            if decided is not None:
                refresh.note(decided, newest)
            stand = partial(table.stand, now=newest, timeline=timeline)
            outputs.add(None if present.behind else refresh.repeats(newest, stand))
            after["standing"] = refresh.to_bytes()
    if sent := records.sent or notes.get(SENT):
        after[SENT] = sent
    after |= table.leave()
    return known.spilled.to_bytes(Body(columns=table.columns(), notes=after), context.blobs), outputs


def _set_aside(
    law: LawSpec, body: bytes | None, records: Records, context: StepContext, reporter: bool, failure: str
) -> tuple[bytes, Outputs]:
    """A batch that the law failed on: its policies are taken, its events buried, and nothing is decided.

    Record by record, each guarded by itself: what has failed once may fail here again. What the shard knows
    stays as it was before the batch, but for the policies: nobody sends those again.
    """
    outputs = Outputs()
    policies: list[_Change] = []
    for i in range(len(records)):
        reason: str | None = failure
        try:
            event = _parse(records, i, context)
            if isinstance(event, PolicyChange):
                policies.append((event.ts, records.order_of(i), i, event))
                reason = None
        except BadEvent as error:
            reason = error.reason if _is_reported(records, i, reporter) else None
        except Exception:  # noqa: BLE001  # told in the dead letter
            reason = f"it cannot be read: {traceback.format_exc()}"
        if reason is not None:
            _bury(records, i, reason, outputs)
    before = encode(Body(columns={}, notes={})) if body is None else body
    if not policies or context.candidate is not None:
        return before, outputs
    try:
        known = _ShardState.of(law, body, context)
        apply_policies(policies, law, known.timeline)
        return known.with_policies(context), outputs
    except StateError:
        raise
    except Exception:  # noqa: BLE001  # the same
        reason = f"a batch of law {law.name} failed, and then its policies: {traceback.format_exc()}"
    for _, _, i, _ in policies:
        _bury(records, i, reason, outputs)
    return before, outputs


def read_batch(
    laws: Iterable[LawSpec], records: Records, outputs: Outputs, context: StepContext, reporter: bool
) -> BatchContent:
    """Read the records for some laws; those that cannot be used are buried."""
    read = BatchContent.of(laws, records, context)
    left = np.ones(len(records), dtype=np.bool_)
    for intake in read.intakes.values():
        left &= ~intake.scan()
    for i in np.flatnonzero(left).tolist():
        try:
            event = _parse(records, i, context)
            own = LAWS.by_event.get(type(event))
            if own is not None and (
                own.name not in read.intakes or (own.on_requests and records.is_elsewhere(i))
            ):
                raise BadEvent(f"type: of the law {own.name}; it does not belong on this topic")
            read.put(i, event, records)
        except BadEvent as error:
            if _is_reported(records, i, reporter):
                _bury(records, i, error.reason, outputs)
    return read


def _parse(records: Records, i: int, context: StepContext) -> Event:
    """What a record says, read by itself.

    Raises:
        BadEvent: it cannot be used.
    """
    if i in records.unusable:
        raise BadEvent(records.unusable[i])
    event = LAWS.parse(
        records.value_of(i),
        default_id=records.name_of(i),
        default_ts=records.ts_of(i),
        max_ahead_ms=context.max_ahead_ms,
    )
    for_all = isinstance(event, PolicyChange | Tick)
    records.check_channel(i, for_all)
    if for_all and records.row_of(i) != NO_ROW:
        raise BadEvent("type: for all shards; a row of a packed record is for one")
    if isinstance(event, PolicyChange):
        check_entry(event.path, event.value)
    return event


def _present(
    law: LawSpec, records: Records, context: StepContext, known: _ShardState, read: BatchContent
) -> Present:
    """What time it is."""
    ahead = known.spilled.body.notes.get(_AHEAD)
    return Present.of(
        records, context.processed_ts, timely=law.decision.timely,
        known_ms=None if ahead is None else int(ahead), told_ms=read.brokers_ahead_ms,
        policies=[i for _, _, i, _ in read.policies],
    )  # fmt: skip


def batch_of(
    intake: Intake, timeline: PolicyTimeline, context: StepContext, processed_ts: int | None, *, end: bool
) -> Batch | None:
    """What a law has to decide; None: nothing."""
    events = intake.events(timeline, replay=context.replay or context.candidate is not None)
    if events is None:
        return None
    return Batch(
        events=events, timeline=timeline, processed_ts=processed_ts, end=end,
        as_decided=context.as_decided, anew=context.candidate is not None,
    )  # fmt: skip


def _is_reported(records: Records, i: int, reporter: bool) -> bool:
    """Whether this shard says what is wrong with a record."""
    return reporter or records.broadcast is None or not records.broadcast[i]


def apply_policies(policies: Iterable[_Change], law: LawSpec, timeline: PolicyTimeline) -> None:
    """Bring changes into the timeline of a law, in the order of docs/contract.md 1."""
    for _, _, _, change in sorted(policies, key=lambda entry: entry[:3]):
        take(change, law, timeline)


def _bury(records: Records, i: int, reason: str, outputs: Outputs) -> None:
    outputs.add_dead_letter(letter_of(records, i, reason), ts=records.ts_of(i), source=i)


def letter_of(records: Records, i: int, reason: str, value: bytes | None = None) -> bytes:
    """A dead letter about a record, with its bytes, or those of them that are given."""
    row = records.row_of(i)
    return dead_letter(
        reason=reason,
        topic=records.topic[i],
        partition=int(records.partition[i]),
        offset=int(records.offset[i]),
        ts=records.ts_of(i),
        value=records.value_of(i) if value is None else value,
        row=None if row == NO_ROW else row,
    )
