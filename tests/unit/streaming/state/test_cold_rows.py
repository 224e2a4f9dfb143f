"""Cold rows: whatever is laid down comes back once, whole, also from a state of earlier batches."""

import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from blob_store_kit import MemoryBlobStore
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries

from streaming.contract.errors import StateError
from streaming.state import cold_rows as segments
from streaming.state.body import Body, encode
from streaming.state.cold_rows import FANOUT, FIRST_ROWS, ColdRows

NAMES = [f"user=u{number}" for number in range(12)] + ["", "user=Zoë", "user=a", "client-id=" + 99 * "c"]
KINDS = st.sampled_from(["add", "add", "add", "take", "take even", "keep", "rewrite", "save", "back"])
Rows = dict[str, float]


def ring_of(value: float) -> list[float]:
    """A list as long as the number says."""
    return [value] * (int(value) % 3)


def even(found: Mapping[str, pa.Array]) -> Any:
    """Which numbers are even."""
    return found["tokens"].to_numpy() % 2 == 0


def columns(rows: Rows) -> dict[str, pa.Array]:
    """Rows as a law's columns: a number each, and a list."""
    return {
        "subject": pa.array(list(rows), type=pa.string()),
        "tokens": pa.array(list(rows.values()), type=pa.float64()),
        "ring": pa.array(list(map(ring_of, rows.values())), type=pa.list_(pa.float64())),
    }


def rows_of(found: Mapping[str, pa.Array]) -> Rows:
    """The rows back, each list checked against its number."""
    names, values = found["subject"].to_pylist(), found["tokens"].to_pylist()
    assert found["ring"].to_pylist() == list(map(ring_of, values))
    return dict(zip(names, values, strict=True))


def taken(cold: ColdRows, names: list[str]) -> Rows:
    """Rows taken out; each subject at most once."""
    found: list[tuple[str, float]] = []
    for piece in cold.take(pa.array(names, type=pa.string())):
        found += rows_of(piece).items()
    assert len(found) == len(dict(found))
    return dict(found)


@given(st.lists(st.tuples(KINDS, st.randoms())))
@tries(200)
def test_rests_like_a_dictionary(steps: list[tuple[str, Any]]) -> None:
    """Any steps, compared with a dict; `back` is a batch that is run again from an earlier state."""
    blobs = MemoryBlobStore(batches_kept=3)
    cold, model = ColdRows(None, blobs), Rows()
    saved: list[tuple[bytes, Rows]] = []
    for kind, random in steps:
        some = random.sample(NAMES, random.randrange(len(NAMES)))
        if kind == "add":
            new = {name: float(random.randrange(100)) for name in some if name not in model}
            cold.add(columns(new))
            model |= new
        elif kind == "take":
            assert taken(cold, some) == {name: model.pop(name) for name in some if name in model}
        elif kind == "take even":
            found = [pair for piece in cold.take_where(even) for pair in rows_of(piece).items()]
            assert sorted(found) == sorted(pair for pair in model.items() if pair[1] % 2 == 0)
            model = {name: value for name, value in model.items() if value % 2}
        elif kind == "keep":
            cold.keep(even)
            model = {name: value for name, value in model.items() if value % 2 == 0}
        elif kind == "rewrite":
            cold.rewrite(lambda c: columns({name: value + 1 for name, value in rows_of(c).items()}))
            model = {name: value + 1 for name, value in model.items()}
        elif kind == "save":
            raw = cold.to_bytes()
            saved = [*saved[-blobs.batches_kept + 1 :], (raw, dict(model))]
            cold = ColdRows(raw, blobs)
        elif saved:
            raw, model = saved[-1][0], dict(saved[-1][1])
            cold = ColdRows(raw, blobs)
        assert len(cold) == len(model)
        for raw, then in saved:
            assert taken(ColdRows(raw, blobs), NAMES) == then
    assert taken(cold, NAMES) == model


def test_hashes_that_collide_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """All subjects with one hash: every one is found, and no stranger."""
    monkeypatch.setattr(segments, "_hash_all", lambda text, ends, hashes: hashes.fill(7))
    cold = ColdRows(None, MemoryBlobStore())
    cold.add(columns({name: float(number) for number, name in enumerate(NAMES)}))
    assert taken(cold, ["user=u3", "user=stranger", "user=a"]) == {"user=u3": 3.0, "user=a": 14.0}
    assert taken(cold, NAMES).keys() == set(NAMES) - {"user=u3", "user=a"}


def test_thousands_of_one_hash_are_found_as_fast_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients choose their names: of 20,000 with one hash each was compared with each that was asked for."""
    monkeypatch.setattr(segments, "_hash_all", lambda text, ends, hashes: hashes.fill(7))
    cold = ColdRows(None, MemoryBlobStore())
    cold.add(columns({f"user=n{row}": 1.0 for row in range(20_000)}))
    begun = time.process_time()
    assert not any(taken(cold, [f"user=stranger{number}"]) for number in range(10))
    assert time.process_time() - begun < 1.0


def test_segments_stay_few_and_dropped_ones_are_deleted() -> None:
    """After any number of batches there are less than FANOUT segments of a size, and no files of long ago."""
    blobs = MemoryBlobStore(batches_kept=2)
    cold = ColdRows(None, blobs)
    batch = FIRST_ROWS // 4
    for number in range(60):
        names = [f"user=n{row}" for row in range(number * batch, (number + 1) * batch)]
        cold.add(columns(dict.fromkeys(names, 1.0)))
        cold = ColdRows(cold.to_bytes(), blobs)
    sizes = [segment.size for segment in cold._segments]
    assert len(cold) == 60 * batch
    assert all(sizes.count(size) < FANOUT for size in sizes)
    assert max(sizes) == 2
    # What the last batches dropped may be asked for again.
    assert len(blobs.contents) <= len(sizes) + 2 * (FANOUT + 1)


def test_a_segment_mostly_gone_is_written_anew() -> None:
    """Space is given back although nothing is laid down beside it."""
    cold = ColdRows(None, MemoryBlobStore())
    cold.add(columns({f"user=n{row}": 1.0 for row in range(100)}))
    taken(cold, [f"user=n{row}" for row in range(60)])
    cold.add(columns({"user=other": 2.0}))
    assert sum(len(segment.live) for segment in cold._segments) == 41


def test_the_same_rows_laid_down_again_are_not_deleted() -> None:
    """Their file has the name of one that was dropped before and is due to be deleted."""
    blobs = MemoryBlobStore(batches_kept=1)
    cold = ColdRows(None, blobs)
    for _ in range(5):
        cold.add(columns({"user=a": 1.0}))
        cold = ColdRows(cold.to_bytes(), blobs)
        assert taken(cold, ["user=a"]) == {"user=a": 1.0}
    assert len(blobs.contents) == 1


def test_rows_without_their_shelf_are_not_forgotten_silently() -> None:
    """A job that does not know where segments lie must not decide as if there were none."""
    cold = ColdRows(None, MemoryBlobStore())
    cold.add(columns({"user=a": 1.0}))
    with pytest.raises(StateError, match="beside the checkpoint"):
        ColdRows(cold.to_bytes(), None)


@pytest.mark.parametrize(
    ("columns", "notes"),
    [
        ({}, {}),
        ({}, {"batch": b"1", "dropped": b"[]"}),
        ({"name": ["a"], "rows": [8], "live": [b"\xff"]}, {"batch": b"1", "dropped": b"[1]"}),
        ({"name": ["a"], "rows": [8], "live": [None]}, {"batch": b"1", "dropped": b"[]"}),
        ({"name": ["a"], "rows": [2**50], "live": [b"\xff"]}, {"batch": b"1", "dropped": b"[]"}),
    ],
)
def test_what_is_none_is_named_as_such(columns: dict[str, list[Any]], notes: dict[str, bytes]) -> None:
    """Whatever a damaged file holds."""
    raw = encode(Body(columns={name: pa.array(values) for name, values in columns.items()}, notes=notes))
    with pytest.raises(StateError, match="checkpoint is damaged"):
        ColdRows(raw, MemoryBlobStore())
