"""Bodies whose large parts lie on a shelf: what was written is read, and nothing is written twice."""

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from law_kit import T0, records_of
from shelf_kit import MemoryShelf

from streaming.contract.errors import StateError
from streaming.contract.lru_cache import Kept
from streaming.laws.law import StepContext
from streaming.laws.shard import LATENESS_MS, SWEEP_MS, step
from streaming.policy.timeline import PolicyTimeline
from streaming.state import spilled as carried
from streaming.state.body import Body, decode
from streaming.state.spilled import Carried

POLICIES = {"resourcegroups.rg1": {"publishRateInMsgs": 5}}


class CountingShelf(MemoryShelf):
    """Counts what is put on it."""

    puts = 0

    def put(self, content: bytes) -> str:
        """Keep `content`."""
        self.puts += 1
        return super().put(content)


def body(size: int, note: bytes = b"") -> Body:
    """Columns of `size` bytes, half of them in a list of named numbers, and a note."""
    numbers = pa.array(np.arange(size // 16, dtype=np.int64))
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(numbers), np.int32)), pa.array(["b"]))
    rows = pa.StructArray.from_arrays([numbers, names], names=["n", "name"])
    listed = pa.ListArray.from_arrays(pa.array(np.arange(len(numbers) + 1, dtype=np.int32)), rows)
    return Body(columns={"n": numbers, "listed": listed}, notes={"small": b"7", "large": note})


def equal(one: Body, other: Body) -> bool:
    """Whether they say the same; as text, since NaN equals nothing."""
    said = [
        {name: repr(column.to_pylist()) for name, column in each.columns.items()} for each in (one, other)
    ]
    return dict(one.notes) == dict(other.notes) and said[0] == said[1]


@pytest.mark.parametrize("size", [0, 1000, 2 * carried.SHELF_BYTES])
@pytest.mark.parametrize("note", [b"", b"\x00" * carried.SHELF_BYTES])
def test_what_was_written_is_read(size: int, note: bytes) -> None:
    """Small parts in the body, large ones beside it, which leaves some hundred bytes to carry."""
    shelf, given = MemoryShelf(), body(size, note)
    raw = Carried().to_bytes(given, shelf)
    assert equal(Carried.of(raw, shelf).body, given)
    assert len(shelf.contents) == (size > 1000) + bool(note)
    assert len(raw) < 10_000


def test_without_a_shelf_all_is_in_the_body() -> None:
    """As in a replay, or with a checkpoint on a file system that workers cannot map."""
    given = body(2 * carried.SHELF_BYTES)
    raw = Carried().to_bytes(given, None)
    assert equal(decode(raw), given) and equal(Carried.of(raw, None).body, given)


def test_a_part_that_is_the_same_stays_where_it_lies() -> None:
    """It is not even written again; what is replaced stays as long as it may be asked for, then it goes."""
    shelf, note = CountingShelf(batches_kept=2), bytes(carried.SHELF_BYTES)
    raw = Carried().to_bytes(body(2 * carried.SHELF_BYTES, note), shelf)
    assert shelf.puts == 2
    for _ in range(3):
        read = Carried.of(raw, shelf)
        raw = read.to_bytes(read.body, shelf)
    assert shelf.puts == 2
    read = Carried.of(raw, shelf)
    changed = Body(columns=read.body.columns, notes={**read.body.notes, "large": note + b"x"})
    raw, old = read.to_bytes(changed, shelf), raw
    assert shelf.puts == 3 and len(shelf.contents) == 3
    assert equal(Carried.of(old, shelf).body, read.body)
    for _ in range(3):
        read = Carried.of(raw, shelf)
        raw = read.to_bytes(read.body, shelf)
    assert len(shelf.contents) == 2 and equal(Carried.of(raw, shelf).body, changed)


def test_content_that_comes_back_is_not_deleted() -> None:
    """A to B and back to A within the time for which A is kept."""
    shelf = MemoryShelf(batches_kept=1)
    first, second = body(2 * carried.SHELF_BYTES), body(4 * carried.SHELF_BYTES)
    raw = None
    for given in (first, second, first, first, first):
        raw = Carried.of(raw, shelf).to_bytes(given, shelf)
    assert equal(Carried.of(raw, shelf).body, first) and len(shelf.contents) == 1


def test_parts_without_their_shelf_are_not_forgotten_silently() -> None:
    """A job with another idea of where they lie must stop."""
    raw = Carried().to_bytes(body(2 * carried.SHELF_BYTES), MemoryShelf())
    with pytest.raises(StateError, match="does not know"):
        Carried.of(raw, None)


def test_large_notes_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their bytes; the oldest leaves."""
    monkeypatch.setattr(carried, "_notes", Kept(2 * carried.SHELF_BYTES))
    shelf = MemoryShelf()
    for number in range(4):
        raw = Carried().to_bytes(body(0, bytes([number]) * carried.SHELF_BYTES), shelf)
        Carried.of(raw, shelf)
    assert len(carried._notes) == 2


def test_a_change_of_one_policy_of_many_writes_that_change_alone() -> None:
    """And the others are neither written nor parsed again, now or when the change is past."""
    shelf, raw = CountingShelf(), None
    many = {f"resourcegroups.rg{number:05d}": {"publishRateInMsgs": number + 1} for number in range(10_000)}
    context = StepContext(initial=many, processed_ts=T0, fail_fast=True, shelf=shelf)
    change = {"type": "policy", "path": "resourcegroups.rg00007", "value": {"publishRateInMsgs": 1}}
    tick = {"type": "tick"}
    puts = []
    for number, event in enumerate([tick, tick, change, tick, tick]):
        event = event | {"ts": T0 + number * (LATENESS_MS + SWEEP_MS)}
        raw, _ = step("shares", 0, raw, records_of([event], number), context)
        puts.append(shelf.puts)
    assert puts == [1] * 5
    notes = Carried.of(raw, shelf).body.notes
    timeline = PolicyTimeline.from_json(notes["policies"], notes["changes"])
    assert timeline.at(0).entries["resourcegroups.rg00007"] == change["value"]
    assert len(notes["changes"]) < 200 < carried.SHELF_BYTES < len(notes["policies"])


@pytest.mark.parametrize("law", ["shares", "mutation"])
def test_a_shard_steps_alike_with_and_without_a_shelf(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part on the shelf, however small: the same decisions and the same state."""
    monkeypatch.setattr(carried, "SHELF_BYTES", 1)
    shelf, bodies = MemoryShelf(), [None, None]
    for number in range(6):
        report: dict[str, Any] = {
            "type": "group_usage", "id": "u", "ts": T0 + number * 60_000, "broker": f"b{number % 2}",
            "period_ms": 1000, "usage": {"rg1": {"publishedMsg": number + 1}},
        }  # fmt: skip
        asked = {"type": "request", "id": "r", "ts": T0 + number, "subject": "", "items": []}
        event = report if law == "shares" else asked
        written = []
        for place, lying in enumerate((shelf, None)):
            context = StepContext(initial=POLICIES, processed_ts=T0, fail_fast=True, shelf=lying)
            bodies[place], outputs = step(law, 0, bodies[place], records_of([event], number), context)
            written.append(outputs.value)
        assert written[0] == written[1]
        assert equal(Carried.of(bodies[0], shelf).body, Carried.of(bodies[1], None).body)
    assert shelf.contents and orjson.loads(decode(bodies[0] or b"").notes["shelved"])[0]
