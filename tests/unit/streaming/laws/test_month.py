"""What the job keeps of a month: no more after four weeks than after two."""

from collections.abc import Callable
from typing import Any

import pytest
from blob_store_kit import MemoryBlobStore
from law_kit import records_of
from month_kit import POLICIES, Month, Readings

from streaming.laws.backlog.table import BacklogTable
from streaming.laws.concurrency.table import ConcurrencyTable
from streaming.laws.dispatch.table import DispatchTable
from streaming.laws.law import LawSpec, StepContext
from streaming.laws.mutation import table as mutation_table
from streaming.laws.mutation.table import MutationTable
from streaming.laws.refresh import Refresh
from streaming.laws.registry import LAWS
from streaming.laws.shard import step
from streaming.laws.shares import state as shares_state
from streaming.policy.timeline import PolicyTimeline
from streaming.state import spilled
from streaming.state.spilled import SpilledBody


@pytest.fixture(autouse=True)
def _much_lies_beside_the_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation_table, "WARM_ROWS", 3)
    monkeypatch.setattr(spilled, "BLOB_BYTES", 200)


def kept_of_a_month(law: LawSpec) -> Readings:
    """What one shard keeps of it: its rows, the bytes of its body, and of what lies beside."""
    readings, blobs = Readings(), MemoryBlobStore()
    types = {*law.readers, "policy", "tick"}
    body, offset = None, 0
    for day, events in Month(batches=2):
        own = [event for event in events if event["type"] in types]
        context = StepContext(initial=POLICIES, processed_ts=own[-1]["ts"], fail_fast=True, blobs=blobs)
        body, _ = step(law.name, 0, body, records_of(own, offset), context)
        offset += len(own)
        readings.note(day, figures(law, body, blobs))
    return readings


def figures(law: LawSpec, raw: bytes, blobs: MemoryBlobStore) -> dict[str, float]:
    """What there is now."""
    body = SpilledBody.of(raw, blobs).body
    table: Any = law.table.from_columns(body.columns)
    table.take_up(body.notes, blobs)
    rows = len(table) + (len(table.cold) if isinstance(table, MutationTable) else 0)
    beside = sum(map(len, blobs.contents.values()))
    notes = {f"note {name}": len(note) for name, note in body.notes.items()}
    return {"rows": rows, "bytes": len(raw) + beside, "segments": len(blobs.contents), **notes}


@pytest.mark.parametrize("law", LAWS.by_name.values(), ids=LAWS.by_name)
def test_a_month_leaves_no_more_than_a_fortnight(law: LawSpec) -> None:
    """Of rows, bytes, segments and each note; and there were some."""
    readings = kept_of_a_month(law)
    assert readings.grown() == {}
    assert min(readings["rows"]) > 0 and min(readings["segments"]) > 0


def nothing(*_: object, **__: object) -> None:
    """Of what is done."""


LEAKS: list[tuple[str, object, str, Callable[..., Any], str]] = [
    ("mutation", MutationTable, "sweep", nothing, "rows"),
    ("shares", shares_state.State, "narrowed", lambda state: state, "bytes"),
    ("dispatch", DispatchTable, "sweep", nothing, "rows"),
    ("concurrency", ConcurrencyTable, "sweep", nothing, "rows"),
    ("backlog", BacklogTable, "sweep", nothing, "rows"),
    ("dispatch", Refresh, "repeats", nothing, "note standing"),
    ("mutation", PolicyTimeline, "forget_before", nothing, "note changes"),
    ("mutation", MemoryBlobStore, "drop", nothing, "segments"),
]


@pytest.mark.parametrize(
    ("law", "where", "name", "leaking", "found"),
    # A month takes seconds: that rows, bytes and notes which stay are seen is tried with every change.
    [pytest.param(*one, marks=[pytest.mark.soak] * (n not in (1, 4, 5))) for n, one in enumerate(LEAKS)],
)
def test_a_leak_is_found(
    law: str, where: object, name: str, leaking: Any, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one of those parts does nothing any more that let go."""
    monkeypatch.setattr(where, name, leaking)
    assert found in kept_of_a_month(LAWS.by_name[law]).grown()
