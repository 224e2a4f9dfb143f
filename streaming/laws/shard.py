"""One shard's step: records in, decisions and dead letters out, state carried as bytes.

Everything that decides passes through here: the Spark operator, both replay engines and the tests. No clock,
no I/O, no Spark.
"""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from streaming.contract.decisions import Outputs, dead_letter
from streaming.contract.errors import BadEvent
from streaming.contract.events import PolicyChange, Refund, Request, parse
from streaming.contract.policy import parse_subject
from streaming.contract.policy_check import check_entry
from streaming.contract.policy_timeline import PolicyTimeline
from streaming.laws import LAWS
from streaming.laws.mutation_table import Decision, MutationTable
from streaming.laws.routing import subject_at
from streaming.laws.table import Body, decode, encode

STATE_VERSION: Final = 1
"""Version of the body; Spark's own schema (version, body) never changes."""
LATENESS_MS: Final = 300_000
"""How far Kafka partitions may lie apart in time without a decision changing: state that a straggler may
still ask for (policies of then, buckets not yet full then) is kept this long."""
SWEEP_MS: Final = 60_000
"""How often idle subjects leave the table, in event time."""


@dataclass(slots=True)
class Records:
    """Records of one shard, in any order, as parallel lists.

    Attributes:
        topic: topic, or base name of a file.
        partition: partition; 0 for a file.
        offset: offset, or line number from 1.
        ts: record timestamp in ms; None for a line of a file.
        value: the bytes.
        subject: quota entity found by replay's stateless step; None: as the event says.
        name: default id of the event, None for `<topic>-<partition>-<offset>`.
        order: what sorts events of one time: (partition, offset) live, (file, line) in a replay.
        broadcast: whether every shard got this record, as policies must and nothing else may; None: there
            is one shard only.
    """

    topic: list[str] = field(default_factory=list)
    partition: list[int] = field(default_factory=list)
    offset: list[int] = field(default_factory=list)
    ts: list[int | None] = field(default_factory=list)
    value: list[bytes] = field(default_factory=list)
    subject: list[str | None] = field(default_factory=list)
    name: list[str] | None = None
    order: list[tuple[int, int]] | None = None
    broadcast: list[bool] | None = None

    def name_of(self, i: int) -> str:
        """Id of a record that names none itself (contract section 1)."""
        if self.name is not None:
            return self.name[i]
        return f"{self.topic[i]}-{self.partition[i]}-{self.offset[i]}"

    def check_channel(self, i: int, is_policy: bool) -> None:
        """A policy that one shard alone saw, or an event that all saw, would be decided wrongly.

        Raises:
            BadEvent: it came by the wrong topic.
        """
        if self.broadcast is not None and self.broadcast[i] != is_policy:
            raise BadEvent(
                f"type: {'a policy' if is_policy else 'not a policy'}; it does not belong on this topic"
            )

    def order_of(self, i: int) -> tuple[int, int]:
        """Arrival of a record."""
        return self.order[i] if self.order is not None else (self.partition[i], self.offset[i])


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What a step needs to know beside its records.

    Attributes:
        initial: policies in force before every event, as version 1 (replay's `--policies`).
        processed_ts: wall time of the micro-batch in ms, None in a replay.
        fail_fast: a code error in a law stops the query instead of making dead letters.
        replay: subjects are resolved against the policies, not taken from the event.
    """

    initial: Mapping[str, Any] = field(default_factory=dict)
    processed_ts: int | None = None
    fail_fast: bool = False
    replay: bool = False


@dataclass(slots=True)
class _Parsed:
    """Usable records: changes of policy, and (time, arrival, source, event, subject) of all others."""

    policies: list[tuple[int, tuple[int, int], int, PolicyChange]] = field(default_factory=list)
    events: list[tuple[int, tuple[int, int], int, Request | Refund]] = field(default_factory=list)


def step(
    law: str, shard: int, body: bytes | None, records: Records, context: StepContext
) -> tuple[bytes | None, Outputs]:
    """Take a shard one batch further.

    Args:
        law: name of the law, a key of LAWS.
        shard: number of the shard.
        body: its state before; None at its first batch.
        records: the batch; policies are in every shard's batch.
        context: see StepContext.

    Returns:
        The state after (None: nothing to keep) and what was decided, in order of time.

    Raises:
        Exception: whatever a law raised, under `fail_fast`.
    """
    outputs = Outputs()
    before = None if body is None else decode(body)
    notes = {} if before is None else before.notes
    timeline = (
        PolicyTimeline.from_json(notes["policies"])
        if "policies" in notes
        else PolicyTimeline(context.initial)
    )
    # Only one shard reports what is wrong with a policy that all of them see.
    reporter = shard == 0 and law == next(iter(LAWS))
    parsed = _parse(records, reporter, outputs)
    for _, _, _, change in sorted(parsed.policies, key=lambda entry: entry[:3]):
        timeline.apply(change.path, change.value, change.ts, change.version)
    parsed.events.sort(key=lambda entry: entry[:3])
    table = LAWS[law].from_columns({} if before is None else before.columns)
    newest = max([int(notes.get("newest", b"-1"))] + [at for at, _, _, _ in parsed.events])
    swept = int(notes.get("swept", b"-1"))
    try:
        decided = _decide(table, parsed, records, timeline, context) if parsed.events else []
        if not context.replay and newest - swept >= SWEEP_MS:
            table.sweep(timeline, newest - LATENESS_MS)
            timeline.forget_before(newest - LATENESS_MS)
            swept = newest
    except Exception:
        # A bug in a law costs its batch, not the query: nothing is decided, every record is buried.
        if context.fail_fast:
            raise
        reason = f"law {law} failed: {traceback.format_exc()}"
        for _, _, i, _ in parsed.events:
            _bury(records, i, reason, outputs)
        table = LAWS[law].from_columns({} if before is None else before.columns)
        decided = []
    for i, decision in decided:
        outputs.add_decision(decision, source=i)
    after = {"policies": timeline.to_json(), "newest": b"%d" % newest, "swept": b"%d" % swept}
    return encode(Body(columns=table.columns(), notes=after)), outputs


def _parse(records: Records, reporter: bool, outputs: Outputs) -> _Parsed:
    parsed = _Parsed()
    for i, value in enumerate(records.value):
        try:
            event = parse(value, default_id=records.name_of(i), default_ts=records.ts[i])
            records.check_channel(i, isinstance(event, PolicyChange))
            if isinstance(event, PolicyChange):
                check_entry(event.path, event.value)
                parsed.policies.append((event.ts, records.order_of(i), i, event))
            else:
                if event.subject:
                    parse_subject(event.subject)
                parsed.events.append((event.at, records.order_of(i), i, event))
        except BadEvent as error:
            if reporter or records.broadcast is None or not records.broadcast[i]:
                _bury(records, i, error.reason, outputs)
    return parsed


def _decide(
    table: MutationTable, parsed: _Parsed, records: Records, timeline: PolicyTimeline, context: StepContext
) -> list[tuple[int, Decision]]:
    """Decisions with the index of the record that each answers."""
    events = [entry[3] for entry in parsed.events]
    subjects: list[str] = []
    for (_, _, i, _), event in zip(parsed.events, events, strict=True):
        subject = records.subject[i]
        if subject is None:
            trusted = not context.replay and event.subject is not None
            subject = event.subject if trusted else subject_at(event, timeline)
        subjects.append(subject or "")
    decisions = table.fold(events, subjects, timeline, context.processed_ts)
    sources = [entry[2] for entry in parsed.events]
    return [(i, decision) for i, decision in zip(sources, decisions, strict=True) if decision is not None]


def _bury(records: Records, i: int, reason: str, outputs: Outputs) -> None:
    ts = records.ts[i]
    letter = dead_letter(
        reason=reason,
        topic=records.topic[i],
        partition=records.partition[i],
        offset=records.offset[i],
        ts=ts,
        value=records.value[i],
    )
    outputs.add_dead_letter(letter, ts=ts, source=i)
