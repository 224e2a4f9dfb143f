"""One shard's step: records in, decisions and dead letters out, state carried as bytes.

Everything that decides passes through here: the Spark operator, both replay engines and the tests. No clock,
no I/O, no Spark.
"""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.columns.byte_strings import Integers
from streaming.columns.outputs import DecisionColumns, Outputs
from streaming.columns.records import Records
from streaming.contract.decisions import dead_letter
from streaming.contract.errors import BadEvent, StateError
from streaming.contract.events import LawEvent, PolicyChange, Refund, Request, parse
from streaming.contract.names import parse_subject
from streaming.contract.usage_events import GroupUsage, Tick
from streaming.laws.law import Asked, Batch, Decision, Entry, LawState, StepContext
from streaming.laws.mutation.request_json import scanned
from streaming.laws.mutation.requests import ID, Requests, Rows, ordered
from streaming.laws.mutation.routing_keys import routing_keys
from streaming.laws.policy_routing import REPORTING_LAW, take
from streaming.laws.refresh import Refresh
from streaming.laws.registry import LAW_OF_EVENT, LAWS, STANDING_LAWS
from streaming.laws.shares.report_merge import Arrived, PlainReports
from streaming.laws.shares.reports import Reports
from streaming.policy.files import check_entry
from streaming.policy.timeline import PolicyTimeline
from streaming.state.body import Body
from streaming.state.spilled import SpilledBody

STATE_VERSION: Final = 4
"""Version of the body; Spark's own schema (version, body) never changes."""
LATENESS_MS: Final = 300_000
"""How far Kafka partitions may lie apart in time without a decision changing: state that a straggler may
still ask for (policies of then, buckets not yet full then) is kept this long."""
SWEEP_MS: Final = 60_000
"""How often idle subjects leave the table, in event time."""


_ASKING: Final = "mutation"
"""The law whose events are requests: they are columns, since they are as many as other events are few."""
_REPORTING: Final = "shares"
"""The law whose events are reports of groups, which are columns too."""


@dataclass(slots=True)
class _Parsed:
    """Usable records: changes of policy, and events by law, each with its time, arrival and source.

    `requests` are those of the law of mutations, `plain` the reports of groups that were not parsed; `newest`
    is the time of the newest event, ticks included.
    """

    policies: list[tuple[int, tuple[int, int], int, PolicyChange]] = field(default_factory=list)
    events: dict[str, list[tuple[int, tuple[int, int], int, LawEvent]]] = field(default_factory=dict)
    requests: Requests | None = None
    order: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    plain: PlainReports | None = None
    newest: int = -1

    def sources(self, law: str) -> list[int]:
        """Records that hold a law's events, in the order of contract section 1."""
        if law == _ASKING:
            return list(self.order.tolist())
        if law == _REPORTING:
            return list(self.reported()[1].tolist())
        return [entry.source for entry in self.entries(law)]

    def reported(self) -> tuple[Reports, Integers]:
        """Reports of groups as columns, and the records of reports and ticks; both in order."""
        assert self.plain is not None
        return self.plain.merged(
            [
                Arrived(at=at, source=i, event=event if isinstance(event, GroupUsage) else None)
                for at, _, i, event in self.events.get(_REPORTING, [])
            ]
        )

    def entries(self, law: str) -> list[Entry]:
        """A law's events with their sources, as contract section 1 orders them."""
        ordered = sorted(self.events.get(law, []), key=lambda entry: entry[:3])
        return [Entry(event, i) for _, _, i, event in ordered]

    def batch(self, law: str, timeline: PolicyTimeline, context: StepContext) -> Batch | None:
        """What a law has to decide; None: nothing."""
        asked, reports, entries = None, None, self.entries(law)
        if law == _ASKING and self.requests is not None and len(self.order):
            stamped = not context.replay
            own = routing_keys(self.requests, self.order, timeline, stamped=stamped)
            asked = Asked(requests=self.requests, order=self.order, routing_keys=own)
        if law == _REPORTING:
            reports, _ = self.reported()
            entries = [entry for entry in entries if isinstance(entry.event, Tick)]
        if asked is None and not entries and (reports is None or not len(reports.at)):
            return None
        return Batch(
            entries=entries, timeline=timeline, processed_ts=context.processed_ts, end=context.replay,
            asked=asked, reports=reports,
        )  # fmt: skip


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
        StateError: the state cannot be read or kept.
        Exception: whatever a law raised, under `fail_fast`.
    """
    outputs = Outputs()
    spilled = SpilledBody.of(body, context.blobs)
    columns, notes = spilled.body.columns, spilled.body.notes
    timeline = _timeline(notes, context)
    # Only one shard reports what is wrong with a record that all of them see.
    reporter = shard == 0 and law == REPORTING_LAW
    parsed = _parse(records, outputs, law, reporter)
    _apply_policies(parsed, law, timeline)
    newest = max(int(notes.get("newest", b"-1")), parsed.newest)
    swept = int(notes.get("swept", b"-1"))
    table = _table(law, columns, notes, context)
    try:
        batch = parsed.batch(law, timeline, context)
        decided = [] if batch is None else table.fold(batch)
        if not context.replay and newest - swept >= SWEEP_MS:
            table.sweep(timeline, newest - LATENESS_MS)
            timeline.forget_before(table.policies_from(newest - LATENESS_MS))
            swept = newest
    except StateError:
        raise
    except Exception:
        # A bug in a law costs its batch, not the query: nothing is decided, every record is buried.
        if context.fail_fast:
            raise
        reason = f"law {law} failed: {traceback.format_exc()}"
        for i in parsed.sources(law):
            _bury(records, i, reason, outputs)
        table, decided = _table(law, columns, notes, context), []
    outputs.add(decided)
    policies, changes = timeline.to_json()
    after = {"newest": b"%d" % newest, "swept": b"%d" % swept, "policies": policies, "changes": changes}
    if not context.replay:
        outputs.add(table.repeats(newest) or [])
        if law in STANDING_LAWS:
            standing = Refresh(notes.get("standing"))
            _repeat(standing, decided, newest, outputs)
            after["standing"] = standing.to_bytes()
    after |= table.leave()
    return spilled.to_bytes(Body(columns=table.columns(), notes=after), context.blobs), outputs


def _timeline(notes: Mapping[str, bytes], context: StepContext) -> PolicyTimeline:
    """The policies as the shard knew them; at its first batch those in force before every event."""
    if "policies" not in notes:
        return PolicyTimeline(context.initial)
    return PolicyTimeline.from_json(notes["policies"], notes["changes"])


def _table(
    law: str, columns: Mapping[str, pa.Array], notes: Mapping[str, bytes], context: StepContext
) -> LawState:
    table = LAWS[law].from_columns(columns)
    table.take_up(notes, context.blobs)
    return table


def replay_all(records: Records, context: StepContext) -> Outputs:
    """Decide a whole log at once, every law in one shard: what the local engine does.

    Raises:
        Exception: whatever a law raised.
    """
    outputs = Outputs()
    parsed = _parse(records, outputs, None, reporter=True)
    for law in LAWS:
        timeline = PolicyTimeline(context.initial)
        _apply_policies(parsed, law, timeline)
        batch = parsed.batch(law, timeline, context)
        if batch is not None:
            outputs.add(LAWS[law].from_columns({}).fold(batch))
    return outputs


def _parse(records: Records, outputs: Outputs, law: str | None, reporter: bool) -> _Parsed:
    """Read the records of one law (None: of all laws)."""
    parsed = _Parsed()
    rows: Rows | None = None
    left = np.ones(len(records), dtype=np.bool_)
    if law in (None, _REPORTING):
        parsed.plain = PlainReports(records)
        parsed.newest = parsed.plain.newest
        left &= ~parsed.plain.taken
    if law in (None, _ASKING):
        parsed.requests = scanned(records)
        left &= parsed.requests.flags == 0
        rows = Rows(parsed.requests)
        for i in np.flatnonzero((parsed.requests.flags != 0) & (parsed.requests.length[:, ID] < 0)).tolist():
            rows.name(i, records.name_of(i))
    for i in np.flatnonzero(left).tolist():
        try:
            _parse_one(records, i, law, parsed, rows)
        except BadEvent as error:
            if reporter or records.broadcast is None or not records.broadcast[i]:
                _bury(records, i, error.reason, outputs)
    if rows is not None:
        parsed.requests = rows.finish()
        parsed.order = ordered(parsed.requests, records)
        if len(parsed.order):
            parsed.newest = max(parsed.newest, int(parsed.requests.at[parsed.order].max()))
    return parsed


def _parse_one(records: Records, i: int, law: str | None, parsed: _Parsed, rows: Rows | None) -> None:
    """Read a record that the scanners leave alone.

    Raises:
        BadEvent: it cannot be used.
    """
    event = parse(records.value_of(i), default_id=records.name_of(i), default_ts=records.ts_of(i))
    records.check_channel(i, isinstance(event, PolicyChange | Tick))
    if isinstance(event, PolicyChange):
        check_entry(event.path, event.value)
        parsed.policies.append((event.ts, records.order_of(i), i, event))
        return
    if isinstance(event, Request | Refund) and event.subject:
        parse_subject(event.subject)
    own = LAW_OF_EVENT[type(event)]
    if law not in (None, own) and not isinstance(event, Tick):
        raise BadEvent(f"type: of the law {own}; it does not belong on this topic")
    parsed.newest = max(parsed.newest, event.at)
    if law not in (None, own):
        return
    if isinstance(event, Request | Refund):
        assert rows is not None
        rows.put(i, event)
    else:
        parsed.events.setdefault(own, []).append((event.at, records.order_of(i), i, event))


def _apply_policies(parsed: _Parsed, law: str, timeline: PolicyTimeline) -> None:
    for _, _, _, change in sorted(parsed.policies, key=lambda entry: entry[:3]):
        take(change, law, timeline)


def _repeat(
    standing: Refresh, decided: list[tuple[int, Decision]] | DecisionColumns, newest: int, outputs: Outputs
) -> None:
    """Note what was decided, and say again what has stood for long."""
    assert not isinstance(decided, DecisionColumns)
    standing.note([decision for _, decision in decided], newest)
    for again in standing.repeats(newest):
        outputs.add_repeat(
            again.value, subject=again.subject, type=again.type, id=again.id, now=newest, source=0
        )


def _bury(records: Records, i: int, reason: str, outputs: Outputs) -> None:
    ts = records.ts_of(i)
    letter = dead_letter(
        reason=reason,
        topic=records.topic[i],
        partition=int(records.partition[i]),
        offset=int(records.offset[i]),
        ts=ts,
        value=records.value_of(i),
    )
    outputs.add_dead_letter(letter, ts=ts, source=i)
