"""Bodies whose large parts lie on a blob store: what was written is read, and nothing is written twice."""

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from blob_store_kit import MemoryBlobStore
from cachetools import LRUCache
from law_kit import T0, records_of

from streaming.contract.errors import StateError
from streaming.laws.law import StepContext
from streaming.laws.shard import LATENESS_MS, SWEEP_MS, step
from streaming.policy.timeline import PolicyTimeline
from streaming.state import spilled as spilled
from streaming.state.body import Body, decode, encode
from streaming.state.spilled import SpilledBody

POLICIES = {"resourcegroups.rg1": {"publishRateInMsgs": 5}}


class CountingBlobStore(MemoryBlobStore):
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
    """Whether they say the same."""
    if dict(one.notes) != dict(other.notes) or list(one.columns) != list(other.columns):
        return False
    pairs = zip(one.columns.values(), other.columns.values(), strict=True)
    # As text where they differ, since NaN equals nothing; not at once, since that takes a second.
    return all(a.equals(b) or repr(a.to_pylist()) == repr(b.to_pylist()) for a, b in pairs)


@pytest.mark.parametrize("size", [0, 1000, 2 * spilled.BLOB_BYTES])
@pytest.mark.parametrize("note", [b"", b"\x00" * spilled.BLOB_BYTES])
def test_what_was_written_is_read(size: int, note: bytes) -> None:
    """Small parts in the body, large ones beside it, which leaves some hundred bytes to carry."""
    blobs, given = MemoryBlobStore(), body(size, note)
    raw = SpilledBody().to_bytes(given, blobs)
    assert equal(SpilledBody.of(raw, blobs).body, given)
    assert len(blobs.contents) == (size > 1000) + bool(note)
    assert len(raw) < 10_000


def test_without_a_shelf_all_is_in_the_body() -> None:
    """As in a replay, or with a checkpoint on a file system that workers cannot map."""
    given = body(2 * spilled.BLOB_BYTES)
    raw = SpilledBody().to_bytes(given, None)
    assert equal(decode(raw), given) and equal(SpilledBody.of(raw, None).body, given)


def test_a_part_that_is_the_same_stays_where_it_lies() -> None:
    """It is not even written again; what is replaced stays as long as it may be asked for, then it goes."""
    blobs, note = CountingBlobStore(batches_kept=2), bytes(spilled.BLOB_BYTES)
    raw = SpilledBody().to_bytes(body(2 * spilled.BLOB_BYTES, note), blobs)
    assert blobs.puts == 2
    for _ in range(3):
        read = SpilledBody.of(raw, blobs)
        raw = read.to_bytes(read.body, blobs)
    assert blobs.puts == 2
    read = SpilledBody.of(raw, blobs)
    changed = Body(columns=read.body.columns, notes={**read.body.notes, "large": note + b"x"})
    raw, old = read.to_bytes(changed, blobs), raw
    assert blobs.puts == 3 and len(blobs.contents) == 3
    assert equal(SpilledBody.of(old, blobs).body, read.body)
    for _ in range(3):
        read = SpilledBody.of(raw, blobs)
        raw = read.to_bytes(read.body, blobs)
    assert len(blobs.contents) == 2 and equal(SpilledBody.of(raw, blobs).body, changed)


def test_content_that_comes_back_is_not_deleted() -> None:
    """A to B and back to A within the time for which A is kept."""
    blobs = MemoryBlobStore(batches_kept=1)
    first, second = body(2 * spilled.BLOB_BYTES), body(4 * spilled.BLOB_BYTES)
    raw = None
    for given in (first, second, first, first, first):
        raw = SpilledBody.of(raw, blobs).to_bytes(given, blobs)
    assert equal(SpilledBody.of(raw, blobs).body, first) and len(blobs.contents) == 1


def test_parts_without_their_shelf_are_not_forgotten_silently() -> None:
    """A job with another idea of where they lie must stop."""
    raw = SpilledBody().to_bytes(body(2 * spilled.BLOB_BYTES), MemoryBlobStore())
    with pytest.raises(StateError, match="does not know"):
        SpilledBody.of(raw, None)


def test_large_notes_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their bytes; the oldest leaves."""
    monkeypatch.setattr(spilled, "_notes", LRUCache(2 * spilled.BLOB_BYTES, getsizeof=len))
    blobs = MemoryBlobStore()
    for number in range(4):
        raw = SpilledBody().to_bytes(body(0, bytes([number]) * spilled.BLOB_BYTES), blobs)
        SpilledBody.of(raw, blobs)
    assert len(spilled._notes) == 2


def test_a_note_beyond_the_bound_is_kept_alone() -> None:
    """Otherwise the largest policies would be read again in each batch."""
    spilled._notes.clear()
    for name, size in (("a", 1), ("b", spilled.NOTES_BYTES + 1)):
        spilled._notes[name] = bytes(size)
    assert list(spilled._notes) == ["b"]
    spilled._notes["c"] = b"small"
    assert list(spilled._notes) == ["c"]


def test_a_change_of_one_policy_of_many_writes_that_change_alone() -> None:
    """And the others are neither written nor parsed again, now or when the change is past."""
    blobs, raw = CountingBlobStore(), None
    many = {f"resourcegroups.rg{number:05d}": {"publishRateInMsgs": number + 1} for number in range(10_000)}
    context = StepContext(initial=many, processed_ts=T0, fail_fast=True, blobs=blobs)
    change = {"type": "policy", "path": "resourcegroups.rg00007", "value": {"publishRateInMsgs": 1}}
    tick = {"type": "tick"}
    puts = []
    for number, event in enumerate([tick, tick, change, tick, tick]):
        event = event | {"ts": T0 + number * (LATENESS_MS + SWEEP_MS)}
        raw, _ = step("shares", 0, raw, records_of([event], number), context)
        puts.append(blobs.puts)
    assert puts == [1] * 5
    notes = SpilledBody.of(raw, blobs).body.notes
    timeline = PolicyTimeline.from_json(notes["policies"], notes["changes"])
    assert timeline.at(0).entries["resourcegroups.rg00007"] == change["value"]
    assert len(notes["changes"]) < 200 < spilled.BLOB_BYTES < len(notes["policies"])


@pytest.mark.parametrize("law", ["shares", "mutation"])
def test_a_shard_steps_alike_with_and_without_a_blob_store(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part on the blob store, however small: the same decisions and the same state."""
    monkeypatch.setattr(spilled, "BLOB_BYTES", 1)
    blobs, bodies = MemoryBlobStore(), [None, None]
    for number in range(6):
        report: dict[str, Any] = {
            "type": "group_usage", "id": "u", "ts": T0 + number * 60_000, "broker": f"b{number % 2}",
            "period_ms": 1000, "usage": {"rg1": {"publishedMsg": number + 1}},
        }  # fmt: skip
        asked = {"type": "request", "id": "r", "ts": T0 + number, "subject": "", "items": []}
        event = report if law == "shares" else asked
        written = []
        for place, lying in enumerate((blobs, None)):
            context = StepContext(initial=POLICIES, processed_ts=T0, fail_fast=True, blobs=lying)
            bodies[place], outputs = step(law, 0, bodies[place], records_of([event], number), context)
            written.append(outputs.value)
        assert written[0] == written[1]
        assert equal(SpilledBody.of(bodies[0], blobs).body, SpilledBody.of(bodies[1], None).body)
    assert blobs.contents and orjson.loads(decode(bodies[0] or b"").notes["in_blobs"])[0]


@pytest.mark.parametrize("names", [b"", b"[]", b"[1,2,3]", b"[[],0,[]]"])
def test_names_that_are_none_are_named_as_such(names: bytes) -> None:
    """Whatever a damaged file holds."""
    raw = encode(Body(columns={}, notes={"in_blobs": names}))
    with pytest.raises(StateError, match="checkpoint is damaged"):
        SpilledBody.of(raw, MemoryBlobStore())
