"""What a law is to the rest of the program: a table of subjects that folds events into decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import pyarrow as pa

from streaming.columns.byte_strings import Integers
from streaming.columns.outputs import DecisionColumns
from streaming.contract.events import LawEvent
from streaming.laws.mutation.requests import Requests
from streaming.laws.mutation.routing_keys import RoutingKeys
from streaming.laws.shares.reports import Reports
from streaming.policy.policy_set import EntryPath, Section
from streaming.policy.timeline import PolicyTimeline
from streaming.state.blob_store import BlobStore

Decision = dict[str, Any]
Said = tuple[str, str, list[str]]
"""A decision for people: a word for the outcome, the numbers, and why."""
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a plot.

    Attributes:
        name: what the legend says.
        points: (x, y), by x.
        dashed: something to compare with.
    """

    name: str
    points: Points
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A picture of what a law does, for docs/laws.md; docs/plots draws it.

    Attributes:
        title: above it.
        x_label, y_label: what the axes show, with units.
        curves: in the order of the legend.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]


@dataclass(frozen=True, slots=True)
class Entry:
    """An event on its way through a law.

    Attributes:
        event: what happened.
        source: index of its record.
    """

    event: LawEvent
    source: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Requests and refunds on their way through the law of mutations.

    Attributes:
        requests: as columns; a row a record.
        order: the rows to take, in the order of contract section 1.
        routing keys: the quota entity of each of `order`.
    """

    requests: Requests
    order: Integers
    routing_keys: RoutingKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a law folds at once.

    Attributes:
        entries: events in the order of contract section 1; of the law of mutations there are none.
        asked: its requests, which are too many for objects; None for other laws.
        reports: those of the law of shares, which are too many too (its `entries` are ticks); None: none.
        timeline: the policies over time.
        processed_ts: wall time of the batch in ms; None in a replay.
        end: no more input will come (a replay's last step): open rounds are closed.
    """

    entries: list[Entry]
    timeline: PolicyTimeline
    processed_ts: int | None
    end: bool
    asked: Asked | None = None
    reports: Reports | None = None

    @property
    def replay(self) -> bool:
        """Whether files are replayed; a replay writes every decision, the live job only what changed."""
        return self.processed_ts is None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What a step needs to know beside its records.

    Attributes:
        initial: policies in force before every event, as version 1 (replay's `--policies`).
        processed_ts: wall time of the micro-batch in ms, None in a replay.
        fail_fast: a code error in a law stops the query instead of making dead letters.
        replay: subjects are resolved against the policies, not taken from the event.
        blob store: where rows rest that are not needed; None: all stay in the body.
    """

    initial: Mapping[str, Any] = field(default_factory=dict)
    processed_ts: int | None = None
    fail_fast: bool = False
    replay: bool = False
    blobs: BlobStore | None = None


class LawState(Protocol):
    """State of one law in one shard.

    Attributes:
        sections: the policies that it asks for; no others are kept with its state.
        versioned: it says the version of the policies, so the others count as versions.
    """

    sections: ClassVar[frozenset[Section]]
    versioned: ClassVar[bool] = False

    @classmethod
    def routing_key_of_policy(cls, entry: EntryPath) -> str | None:
        """The routing key that an entry of its sections is for, and no other; None: it may be for any.

        Only what is many needs a routing key.
        """
        return None

    @classmethod
    def from_columns(cls, columns: Mapping[str, pa.Array]) -> Self:
        """The table that `columns` described; an empty mapping gives an empty table."""

    def columns(self) -> dict[str, pa.Array]:
        """The table as Arrow columns of one length, for the checkpoint; exact."""

    def fold(self, batch: Batch) -> list[tuple[int, Decision]] | DecisionColumns:
        """Decide; returns (source of the record answered, decision) in the order decided, or all as columns.

        A decision holds at least `type`, `id`, `ts`; its keys are in the order of the contract's example.
        """

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Let rows go that say nothing at `horizon` (ms) and later: their leaving must be neutral."""

    def policies_from(self, horizon: int) -> int:
        """The time (ms, at most `horizon`) before which no policy is needed any more."""

    def repeats(self, now: int) -> DecisionColumns | None:
        """What must be said again at `now` (ms, event time), by a law whose state says what stands; None:
        nothing, or `Refresh` keeps what it decided (STANDING_LAWS).
        """
        return None

    def take_up(self, notes: Mapping[str, bytes], blobs: BlobStore | None) -> None:
        """Take up what `leave` left, before anything else; most laws leave nothing beside their columns.

        Args:
            notes: of the body that the columns came from.
            blob store: where rows can rest; None: nowhere.
        """
        return None

    def leave(self) -> dict[str, bytes]:
        """Notes for the body beside the columns, asked for before them: rows may be laid to rest now."""
        return {}
