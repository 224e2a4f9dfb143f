"""One shard's step: records in, decisions and dead letters out, state carried as bytes.

Everything that decides passes through here: the Spark operator, both replay engines and the tests. No clock,
no I/O, no Spark.
"""

import traceback
from dataclasses import dataclass, field
from typing import Final

from streaming.contract.decisions import Outputs, dead_letter
from streaming.contract.errors import BadEvent
from streaming.contract.events import LawEvent, PolicyChange, Refund, Request, parse
from streaming.contract.policy import parse_subject
from streaming.contract.policy_check import check_entry
from streaming.contract.policy_timeline import PolicyTimeline
from streaming.contract.usage_events import Tick
from streaming.laws import LAW_OF_EVENT, LAWS, STANDING_LAWS
from streaming.laws.law import Batch, Decision, Entry
from streaming.laws.records import Records, StepContext
from streaming.laws.routing import subject_at
from streaming.laws.standing import Standing
from streaming.laws.table import Body, decode, encode

STATE_VERSION: Final = 1
"""Version of the body; Spark's own schema (version, body) never changes."""
LATENESS_MS: Final = 300_000
"""How far Kafka partitions may lie apart in time without a decision changing: state that a straggler may
still ask for (policies of then, buckets not yet full then) is kept this long."""
SWEEP_MS: Final = 60_000
"""How often idle subjects leave the table, in event time."""


@dataclass(slots=True)
class _Parsed:
    """Usable records: changes of policy, and events by law, each with its time, arrival and source.

    `newest` is the time of the newest event, ticks included.
    """

    policies: list[tuple[int, tuple[int, int], int, PolicyChange]] = field(default_factory=list)
    events: dict[str, list[tuple[int, tuple[int, int], int, LawEvent]]] = field(default_factory=dict)
    newest: int = -1

    def ordered(self, law: str) -> list[tuple[int, LawEvent]]:
        """A law's events with their sources, as contract section 1 orders them."""
        return [entry[2:] for entry in sorted(self.events.get(law, []), key=lambda entry: entry[:3])]


def step(
    law: str, shard: int, body: bytes | None, records: Records, context: StepContext
) -> tuple[bytes, Outputs]:
    """Take a shard one batch further.

    Args:
        law: name of the law, a key of LAWS.
        shard: number of the shard.
        body: its state before; None at its first batch.
        records: the batch; policies are in every shard's batch.
        context: see StepContext.

    Returns:
        The state after and what was decided, in order of time.

    Raises:
        Exception: whatever a law raised, under `fail_fast`.
    """
    outputs = Outputs()
    before = None if body is None else decode(body)
    columns = {} if before is None else before.columns
    notes = {} if before is None else before.notes
    timeline = (
        PolicyTimeline.from_json(notes["policies"])
        if "policies" in notes
        else PolicyTimeline(context.initial)
    )
    # Only one shard reports what is wrong with a record that all of them see.
    reporter = shard == 0 and law == next(iter(LAWS))
    parsed = _parse(records, outputs, law, reporter)
    _apply_policies(parsed, timeline)
    events = parsed.ordered(law)
    newest = max(int(notes.get("newest", b"-1")), parsed.newest)
    swept = int(notes.get("swept", b"-1"))
    standing = Standing(notes.get("standing"))
    table = LAWS[law].from_columns(columns)
    try:
        decided = table.fold(_batch(events, timeline, context)) if events else []
        if not context.replay and newest - swept >= SWEEP_MS:
            table.sweep(timeline, newest - LATENESS_MS)
            timeline.forget_before(table.policies_from(newest - LATENESS_MS))
            swept = newest
    except Exception:
        # A bug in a law costs its batch, not the query: nothing is decided, every record is buried.
        if context.fail_fast:
            raise
        reason = f"law {law} failed: {traceback.format_exc()}"
        for i, _ in events:
            _bury(records, i, reason, outputs)
        table, decided = LAWS[law].from_columns(columns), []
    for i, decision in decided:
        outputs.add_decision(decision, source=i)
    after = {"newest": b"%d" % newest, "swept": b"%d" % swept, "policies": timeline.to_json()}
    if not context.replay and law in STANDING_LAWS:
        _repeat(standing, [decision for _, decision in decided], newest, outputs)
        after["standing"] = standing.to_bytes()
    return encode(Body(columns=table.columns(), notes=after)), outputs


def replay_all(records: Records, context: StepContext) -> Outputs:
    """Decide a whole log at once, every law in one shard: what the local engine does.

    Raises:
        Exception: whatever a law raised.
    """
    outputs = Outputs()
    timeline = PolicyTimeline(context.initial)
    parsed = _parse(records, outputs, None, reporter=True)
    _apply_policies(parsed, timeline)
    for law in parsed.events:
        table = LAWS[law].from_columns({})
        for i, decision in table.fold(_batch(parsed.ordered(law), timeline, context)):
            outputs.add_decision(decision, source=i)
    return outputs


def _parse(records: Records, outputs: Outputs, law: str | None, reporter: bool) -> _Parsed:
    """Read the records of one law (None: of all laws)."""
    parsed = _Parsed()
    for i, value in enumerate(records.value):
        try:
            event = parse(value, default_id=records.name_of(i), default_ts=records.ts[i])
            records.check_channel(i, isinstance(event, PolicyChange | Tick))
            if isinstance(event, PolicyChange):
                check_entry(event.path, event.value)
                parsed.policies.append((event.ts, records.order_of(i), i, event))
                continue
            if isinstance(event, Request | Refund) and event.subject:
                parse_subject(event.subject)
            entry = (event.at, records.order_of(i), i, event)
            own = LAW_OF_EVENT[type(event)]
            if law not in (None, own) and not isinstance(event, Tick):
                raise BadEvent(f"type: of the law {own}; it does not belong on this topic")
            parsed.newest = max(parsed.newest, event.at)
            if law in (None, own):
                parsed.events.setdefault(own, []).append(entry)
        except BadEvent as error:
            if reporter or records.broadcast is None or not records.broadcast[i]:
                _bury(records, i, error.reason, outputs)
    return parsed


def _apply_policies(parsed: _Parsed, timeline: PolicyTimeline) -> None:
    for _, _, _, change in sorted(parsed.policies, key=lambda entry: entry[:3]):
        timeline.apply(change.path, change.value, change.ts, change.version)


def _batch(events: list[tuple[int, LawEvent]], timeline: PolicyTimeline, context: StepContext) -> Batch:
    return Batch(
        entries=[Entry(event, _home(event, timeline, context), i) for i, event in events],
        timeline=timeline,
        processed_ts=context.processed_ts,
        end=context.replay,
    )


def _home(event: LawEvent, timeline: PolicyTimeline, context: StepContext) -> str:
    """The quota entity of a request; other laws find their homes in their events."""
    if not isinstance(event, Request | Refund):
        return ""
    if context.replay or event.subject is None:
        return subject_at(event, timeline)
    return event.subject


def _repeat(standing: Standing, decisions: list[Decision], newest: int, outputs: Outputs) -> None:
    """Note what was decided, and say again what has stood for long."""
    standing.note(decisions, newest)
    for again in standing.repeats(newest):
        outputs.add_repeat(
            again.value, subject=again.subject, type=again.type, id=again.id, now=newest, source=0
        )


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
