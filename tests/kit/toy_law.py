"""A sixth law in one file: counts heartbeats. It shows what adding a law takes, and is in no product.

Importing this module registers it, so that a worker that unpickles a `Names` knows it too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from streaming.columns.outputs import DecisionTexts
from streaming.contract.fields import Fields, applied_ts, text
from streaming.laws.law import Batch, Decision, DecisionForm, LawSpec, LawState, Said, WarmUp, count_up
from streaming.laws.registry import LAWS
from streaming.policy.timeline import PolicyTimeline

FORM = DecisionForm(type="pulse", subject=("heart",), standing=("heart",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A heart has beaten."""

    id: str
    ts: int
    at: int
    heart: str


def beat(fields: Fields, name: str, ts: int) -> Beat:
    """Read a `beat`."""
    return Beat(id=name, ts=ts, at=applied_ts(fields, ts), heart=text(fields, "heart", None))


class Hearts(LawState):
    """Beats of each heart so far."""

    def __init__(self) -> None:
        self.beats: dict[str, int] = {}

    @classmethod
    def from_columns(cls, columns: Mapping[str, pa.Array]) -> Self:
        hearts = cls()
        if columns:
            pairs = zip(columns["heart"].to_pylist(), columns["beats"].to_pylist(), strict=True)
            hearts.beats = dict(pairs)
        return hearts

    def columns(self) -> dict[str, pa.Array]:
        return {
            "heart": pa.array(self.beats.keys(), pa.string()),
            "beats": pa.array(self.beats.values(), pa.int64()),
        }

    def fold(self, batch: Batch) -> DecisionTexts:
        decided: list[tuple[int, Decision]] = []
        for entry in batch.events:
            event: Beat = entry.event
            beats = self.beats[event.heart] = self.beats.get(event.heart, 0) + 1
            head = {"type": FORM.type, "id": event.id, "ts": event.ts}
            decided.append((entry.source, {**head, "heart": event.heart, "beats": beats, "ttl_ms": 60_000}))
        return FORM.columns(decided)

    def sweep(self, timeline: PolicyTimeline, horizon: int) -> None:
        """Every heart is remembered."""


def line(decision: Decision) -> Said:
    """A pulse for people."""
    return "pulse", f"{decision['beats']} beats", []


def total(totals: dict[str, Any], decision: Decision) -> None:
    """The newest count."""
    count_up(totals, pulses=1)


SPEC = LawSpec(
    name="hearts", number=9, table=Hearts, readers={"beat": beat}, events=(Beat,),
    routing_key=lambda event, timeline: str(event.heart), key_column="heart", sections=frozenset(),
    decision=FORM, warm_up=WarmUp(policies={}, batches=[[{"type": "beat", "heart": "h"}]]), line=line,
    total=total,
)  # fmt: skip
LAWS.add(SPEC)


class Names(tuple[str, ...]):
    """Base names of files; whoever unpickles them imports this module."""
