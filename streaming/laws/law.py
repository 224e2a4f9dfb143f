"""What a law is to the rest of the program: a table of subjects that folds events into decisions, and a
specification of all that others need to know of it."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, Self

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers
from streaming.columns.outputs import Decided, DecisionTexts
from streaming.columns.records import Records
from streaming.contract.events import MAX_AHEAD_MS, Event, Reader, Tick
from streaming.contract.fields import INT64_MAX
from streaming.policy.policy_set import EntryPath, PolicySet, Section
from streaming.policy.timeline import PolicyTimeline
from streaming.state.blob_store import BlobStore

Decision = dict[str, Any]
Flags = NDArray[np.bool_]
FOR_EVER: Final = 2**62
"""A time (ms) that never comes."""
REPEAT_PARTS: Final = 4
"""Repeated at a quarter of the life time: the next tick then comes before half of it has passed."""
Said = tuple[str, str, list[str]]
"""A decision for people: a word for the outcome, the numbers, and why."""
SHOWN_MAX: Final = 10
"""Names or plans that a line tells."""


def count_up(totals: dict[str, Any], **counts: int) -> None:
    """Add to the totals of one subject (`weir replay --summary`), up to 64 bits; what is not there is 0."""
    for name, count in counts.items():
        totals[name] = min(INT64_MAX, totals.get(name, 0) + count)


def few(shown: Sequence[str], most: int = SHOWN_MAX) -> list[str]:
    """The first of many, and how many more there are: a line is for people, JSON has all.

    >>> few(["a", "b", "c"], 2), few(["a", "b"], 2)
    (['a', 'b', 'and 1 more'], ['a', 'b'])
    """
    return [*shown[:most], *([f"and {len(shown) - most} more"] if len(shown) > most else [])]


def keep_longest_throttle(totals: dict[str, Any], decision: Mapping[str, Any]) -> None:
    """Keep the longest throttle of one subject's decisions, ms."""
    longest = max(totals.get("longest_throttle_ms", 0), decision["throttle_time_ms"])
    totals["longest_throttle_ms"] = longest


@dataclass(frozen=True, slots=True)
class Entry:
    """An event on its way through a law.

    Attributes:
        event: what happened.
        source: index of its record.
    """

    event: Any
    source: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a law folds at once.

    Attributes:
        events: what the law's intake made of them, in the order of docs/contract.md 1.
        timeline: the policies over time.
        processed_ts: when the batch began on the brokers' clock, ms since the epoch; None in a replay.
        end: no more input will come (a replay's last step): open rounds are closed.
        as_decided: what the proxies have decided stands; False: it is decided anew.
        anew: so is what they have refused by themselves, by other policies than those that are tried.
    """

    events: Any
    timeline: PolicyTimeline
    processed_ts: int | None
    end: bool
    as_decided: bool = True
    anew: bool = False

    @property
    def replay(self) -> bool:
        """Whether files are replayed; a replay writes every decision, the live job only what changed."""
        return self.processed_ts is None


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePolicies:
    """Policies that are tried beside those in force: decided by, never gone by.

    Attributes:
        name: what decisions and metrics call them.
        entries: path -> value, in force all the time.
        digest: of the entries: under others what is known begins anew.
    """

    name: str
    entries: Mapping[str, Any]
    digest: bytes

    @classmethod
    def of(cls, name: str, entries: Mapping[str, Any]) -> Self:
        """What a file or a proposal holds."""
        return cls(name=name, entries=entries, digest=hashlib.sha256(orjson.dumps(entries)).digest())


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What a step needs to know beside its records.

    Attributes:
        initial: policies in force before every event, as version 1 (replay's `--policies`).
        processed_ts: when the micro-batch began by the clock of the job's host, ms; None in a replay.
        fail_fast: a code error in a law stops the query instead of making dead letters.
        replay: subjects are resolved against the policies, not taken from the event.
        blobs: where rows rest that are not needed; None: all stay in the body.
        max_ahead_ms: how far an event may lie after its record's timestamp, if that has one.
        as_decided: what the proxies have decided stands, as always live; False: a replay decides anew.
        candidate: decide by these policies, and by no others; None: by those in force.
    """

    initial: Mapping[str, Any] = field(default_factory=dict)
    processed_ts: int | None = None
    fail_fast: bool = False
    replay: bool = False
    blobs: BlobStore | None = None
    max_ahead_ms: int = MAX_AHEAD_MS
    as_decided: bool = True
    candidate: CandidatePolicies | None = None

    def tried(self, candidate: CandidatePolicies) -> Self:
        """The same for policies that are only tried: all is decided anew, by them."""
        return replace(self, initial=candidate.entries, as_decided=False, blobs=None, candidate=candidate)


class LawState(Protocol):
    """State of one law in one shard."""

    @classmethod
    def from_columns(cls, columns: Mapping[str, pa.Array]) -> Self:
        """The table that `columns` described; an empty mapping gives an empty table."""

    def columns(self) -> dict[str, pa.Array]:
        """The table as Arrow columns of one length, for the checkpoint; exact."""

    def fold(self, batch: Batch) -> Decided:
        """Decide; a decision's keys are in the order of docs/contract.md's example."""

    def finish(self, timeline: PolicyTimeline) -> Decided | None:
        """What the end of a replay decides whose last batch had nothing for this law; mostly nothing."""
        return None

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Let rows go that say nothing at `horizon` (ms) and later: their leaving must be neutral."""

    def policies_from(self, horizon: int) -> int:
        """The time (ms, at most `horizon`) before which no policy is needed any more."""
        return horizon

    def repeats(self, now: int, timeline: PolicyTimeline) -> Decided | None:
        """What must be said again at `now` (ms, event time), by a law whose own state says what stands."""
        return None

    def stand(self, subjects: pa.Array, over: Flags, now: int, timeline: PolicyTimeline) -> Flags:
        """Whose decisions stand at `now` (ms, event time), of those whom DecisionForm.standing names.

        Args:
            subjects, now: see there.
            over: whose `DecisionForm.until` has come.
            timeline: the policies.
        """
        return ~over

    def take_up(self, notes: Mapping[str, bytes], blobs: BlobStore | None) -> None:
        """Take up what `leave` left, before anything else; most laws leave nothing beside their columns.

        Args:
            notes: of the body that the columns came from.
            blobs: where rows can rest; None: nowhere.
        """
        return None

    def leave(self) -> dict[str, bytes]:
        """Notes for the body beside the columns, asked for before them: rows may be laid to rest now."""
        return {}


class Intake(Protocol):
    """Gathers a law's events of one batch: in bulk where the law can, else one by one.

    Attributes:
        newest: time (ms) of the newest event so far; -1: none.

    Args:
        records: the shard's.
        max_ahead_ms: see StepContext; what lies further ahead is left by `scan`.
    """

    newest: int

    def __init__(self, records: Records, max_ahead_ms: int) -> None: ...

    def scan(self) -> Flags:
        """Read what can be read in bulk; which records it has taken, a flag a record."""

    def put(self, i: int, event: Event) -> None:
        """Take the event of record `i`, which the parser has read."""

    def scanned(self) -> Iterator[tuple[Integers, Integers]]:
        """Of those that `scan` has taken, some at a time: their records, and when each is applied, ms."""
        return iter(())

    def events(self, timeline: PolicyTimeline, *, replay: bool) -> Any | None:
        """What `Batch.events` is, all being read; None: there are none.

        Args:
            timeline: the policies over time.
            replay: subjects are resolved by the policies, whatever the events say.
        """


class Entries(Intake):
    """The intake of laws whose events are few: objects in the order of docs/contract.md 1."""

    def __init__(self, records: Records, max_ahead_ms: int) -> None:
        self.newest = -1
        self._records = records
        self._put: list[tuple[int, tuple[int, int, int], int, Event]] = []

    def scan(self) -> Flags:
        """Nothing is read in bulk."""
        return np.zeros(len(self._records), dtype=np.bool_)

    def put(self, i: int, event: Event) -> None:
        """Take an event."""
        self.newest = max(self.newest, event.at)
        self._put.append((event.at, self._records.order_of(i), i, event))

    def events(self, timeline: PolicyTimeline, *, replay: bool) -> list[Entry] | None:
        """Entries by time, then arrival."""
        entries = [Entry(event, i) for _, _, i, event in sorted(self._put, key=lambda one: one[:3])]
        return entries or None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionForm:
    """What decisions of one law look like from outside.

    Attributes:
        type: their `type`.
        subject: the fields that together name whom one is about, joined by slashes.
        standing: the fields that name what a newer decision replaces; empty: none is repeated by what was
            written (docs/contract.md 1).
        routing: the field that a decision's partition is chosen by, where its order with others of that name
            matters; empty: its key.
        receiver: the field that names the one enforcer whom a decision is for; empty: it is for all.
        timely: receivers go by the one that comes last, whatever time it is of, so one whose life time is
            over is not written (docs/contract.md 1). Others answer an event, and their times are looked at.
        until: event time (ms) from which a decision says nothing any more, if nothing newer comes, and
            `LawState.stand` does not say otherwise.
        repeat_ms: how often one that stands is said again, event time; 0: at a quarter of its life time.
    """

    type: str
    subject: tuple[str, ...]
    standing: tuple[str, ...] = ()
    routing: str = ""
    receiver: str = ""
    timely: bool = False
    until: Callable[[Decision], int] = lambda decision: FOR_EVER
    repeat_ms: int = 0

    def subject_of(self, decision: Mapping[str, Any]) -> str:
        """Whom a decision is about: the record key, and the name in summaries."""
        return "/".join(decision[name] for name in self.subject)

    def columns(self, decided: Sequence[tuple[int, Decision]], at: int | None = None) -> DecisionTexts:
        """Decisions that were made one by one, as columns.

        Args:
            decided: (source of the record answered, decision) in the order decided; a decision holds at
                least `type`, `id`, `ts` and what names its subject.
            at: when all of them are said, ms; None: each at its own `ts`.
        """
        made = [decision for _, decision in decided]
        rows = {
            "id": pa.array([one["id"] for one in made], pa.string()),
            "ts": pa.array([one["ts"] if at is None else at for one in made], pa.int64()),
            "value": pa.array(map(orjson.dumps, made), pa.large_binary()),
        }
        if self.routing:
            rows[self.routing] = pa.array([one[self.routing] for one in made], pa.string())
        return DecisionTexts(
            type=self.type,
            rows=pa.RecordBatch.from_pydict(rows),
            source=np.array([source for source, _ in decided], dtype=np.int64),
            keys=pa.array(map(self.subject_of, made), pa.string()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """What lets every compiled part of a law see the types that it sees in production.

    Attributes:
        policies: in force from the start.
        batches: of events, as JSON objects, each for a shard that begins; one of them with one subject alone,
            since Numba takes the fields of a single row for another type than those of several.
    """

    policies: Mapping[str, Any]
    batches: Sequence[Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LawSpec:
    """All that the rest of the program needs to know of a law; `registry` lists one a law.

    Attributes:
        name: for people, metrics and the command line.
        number: its own for ever, below 16: checkpoints hold it, so no order of laws decides anything.
        table: its state in one shard.
        intake: how its events are gathered.
        readers: by event `type`: (fields, id, ts) -> event.
        events: the classes that it decides; `Tick` among them if ticks are events to it.
        on_requests: its events stand on `weir.requests`, else on `weir.usage`; of one law only.
        routing_key: whose events must be seen in order; given the policies, subjects are resolved by them.
        key_column: the field of its events that is the routing key, or an object with routing keys as keys.
        record_key: the key of an event's record on Kafka; None: its routing key.
        split: an event of many routing keys as one record a shard (contract.usage_events.split_group_usage).
        plain: which packed rows its parser surely takes: (rows, their records' times in ms, max_ahead_ms) ->
            flags; None: each is to be parsed.
        sections: the policies that it asks for; no others are kept with its state.
        versioned: it says the version of the policies, so the others count as versions.
        routing_key_of_policy: the one routing key that an entry of its sections is for; None: any.
        decision: what its decisions look like.
        warm_up: for workers, before they are forked.
        line: a decision for people, as `weir tail` shows it.
        total: adds a decision to its subject's totals in a summary.
        stamp: the subject of an event that names none, by the policies in force; None: events need none.
        times: fields that hold times in ms, of the objects in an event's lists: (list, field).
    """

    name: str
    number: int
    table: type[LawState]
    readers: Mapping[str, Reader]
    events: tuple[type, ...]
    routing_key: Callable[[Any, PolicyTimeline | None], str]
    sections: frozenset[Section]
    decision: DecisionForm
    key_column: str
    warm_up: WarmUp
    line: Callable[[Decision], Said]
    total: Callable[[dict[str, Any], Decision], None]
    intake: type[Intake] = Entries
    on_requests: bool = False
    record_key: Callable[[Any], str] | None = None
    split: Callable[[bytes, Callable[[str], int]], list[tuple[int, bytes]]] | None = None
    plain: Callable[[pa.RecordBatch, Integers, int], Flags] | None = None
    versioned: bool = False
    routing_key_of_policy: Callable[[EntryPath], str | None] = lambda entry: None
    stamp: Callable[[Any, PolicySet], str | None] | None = None
    times: tuple[tuple[str, str], ...] = ()

    def is_own(self, event: type) -> bool:
        """Whether events of a class are for this law alone."""
        return event in self.events and event is not Tick

    def key_of(self, event: Any) -> str:
        """The key of an event's record on Kafka."""
        return self.routing_key(event, None) if self.record_key is None else self.record_key(event)
