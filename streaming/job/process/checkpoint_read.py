"""What a checkpoint in a folder holds, read beside a job that may run on it: nothing of it is changed."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from streaming.contract.errors import StateError
from streaming.contract.fields import TS_MAX_MS
from streaming.job.blobs.local import SUFFIX, FileBlobStore, segments_folder
from streaming.job.checkpoint_name import LAYOUT, NAME
from streaming.job.grouping_keys import law_of_key
from streaming.job.process.lease_note import Note, Notes, ProcessIdentity
from streaming.job.spark.state_files import numbers_in, states, why_not
from streaming.laws.mutation.table import COLD
from streaming.laws.shard import STATE_VERSION
from streaming.state.cold_rows import ColdRows
from streaming.state.spilled import SpilledBody

EXPECTED: Final = (
    f"expected a checkpoint of layout {LAYOUT}, v{LAYOUT}-shards*, or the folder that holds it "
    "(job.checkpoint_dir)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRead:
    """What a shard of a law remembers.

    Attributes:
        law, shard: which.
        candidate: number of the policies that are tried there, from 1 on; 0: those in force.
        subjects: rows that the last batches needed.
        resting: rows that lie in segments.
        state_bytes: what Spark carries of it.
        segments, segment_bytes: its files beside that, with those of older versions.
    """

    law: str
    shard: int
    candidate: int
    subjects: int
    resting: int
    state_bytes: int
    segments: int
    segment_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRead:
    """A checkpoint as of its last batch that is complete.

    Attributes:
        path: its folder.
        layout: of its name.
        note: of its last job.
        batch: number of that batch.
        batch_ms: when it began, ms since the epoch.
        next_batch: number of one that has begun and is not complete, which runs again; None: there is none.
        offsets: topic -> partition -> the next record that is read.
        unread: why Spark alone can read the state; empty: it is in `shards`.
        shards: by law and number.
    """

    path: Path
    layout: int
    note: Note
    batch: int
    batch_ms: int
    next_batch: int | None
    offsets: dict[str, dict[str, int]]
    unread: str
    shards: list[ShardRead]


def found(folder: Path) -> list[Path]:
    """The checkpoints of this layout that a folder is, or holds, the one that was used last first.

    Raises:
        StateError: it is none and holds none.
    """
    places = [folder] if NAME.fullmatch(folder.name) else [*folder.glob("v*"), *folder.glob("*/v*")]
    every = {path: match for path in places if path.is_dir() and (match := NAME.fullmatch(path.name))}
    right = [path for path, match in every.items() if int(match[1]) == LAYOUT]
    if not right:
        there = ", ".join(sorted(path.name for path in every)) or "no checkpoint"
        raise StateError(f"{folder} {f'holds {there}' if folder.is_dir() else 'is no folder'}; {EXPECTED}")
    return sorted(right, key=lambda path: (path / "commits").stat().st_mtime if _begun(path) else 0.0)[::-1]


def read(path: Path) -> CheckpointRead:
    """What one of `found` holds.

    Raises:
        StateError: it has no complete batch, or is damaged.
    """
    match, commits = NAME.fullmatch(path.name), numbers_in(path / "commits")
    assert match is not None
    if not commits:
        raise StateError(f"{path} has no complete batch; expected one in commits/ (its job begins anew)")
    batch, begun = commits[-1], numbers_in(path / "offsets")[-1:]
    told, offsets = offsets_of(path / "offsets" / str(batch))
    unread = why_not(told["conf"])
    notes = Notes(path.parent / f"{path.name}.pid", ProcessIdentity.here())
    shards = [] if unread else list(_shards(path, batch + 1, int(match[2]), int(match[3])))
    return CheckpointRead(
        path=path, layout=int(match[1]), note=notes.read(), batch=batch,
        batch_ms=int(told["batchTimestampMs"]),
        next_batch=begun[0] if begun and begun[0] > batch else None, offsets=offsets, unread=unread,
        shards=sorted(shards, key=lambda one: (one.candidate, one.law, one.shard)),
    )  # fmt: skip


def _begun(path: Path) -> bool:
    return (path / "commits").is_dir()


def offsets_of(file: Path) -> tuple[dict[str, Any], dict[str, dict[str, int]]]:
    """What Spark's log of offsets says of a batch: its metadata, and where each topic is read on.

    Raises:
        StateError: it cannot be read.
    """
    try:
        version, told, *sources = file.read_bytes().splitlines()
        if version != b"v1":
            raise ValueError(f"it is of version {version[:20]!r}, expected b'v1'")
        offsets = {}
        for source in sources:
            for topic, partitions in (orjson.loads(source) if source != b"-" else {}).items():
                offsets[topic] = {str(int(number)): int(offset) for number, offset in partitions.items()}
        about = {"conf": {}, **orjson.loads(told)}
        if not 0 <= int(about["batchTimestampMs"]) <= TS_MAX_MS or not isinstance(about["conf"], dict):
            raise ValueError("its batch has no time or no configuration")
        return about, offsets
    except (OSError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise StateError(f"{file} cannot be read ({error}); the checkpoint is damaged") from error


def _sizes(folder: Path) -> dict[str, int]:
    """The segments of a shard, by name."""
    found = {}
    for file in folder.glob(f"*{SUFFIX}"):
        # A job that runs deletes old ones meanwhile.
        with suppress(FileNotFoundError):
            found[file.stem] = file.stat().st_size
    return found


def _shards(path: Path, version: int, shards: int, tasks: int) -> Iterator[ShardRead]:
    stores = FileBlobStore(segments_folder(path), 0)
    for key, made, raw in states(path / "state" / "0", version, tasks):
        if made > STATE_VERSION:
            raise StateError(
                f"{path}: a state of version {made}, written by a later Weir; expected up to {STATE_VERSION}"
            )
        try:
            candidate, law, shard = law_of_key(key, shards, tasks)
        except (ValueError, StopIteration) as error:
            raise StateError(f"{path}: no law has the number {key}; the checkpoint is damaged") from error
        store = stores.of(law, shard)
        body = SpilledBody.of(raw, store).body
        resting = ColdRows(body.notes.get(COLD), store)
        files = _sizes(store.folder)
        for name in resting.segments:
            store.get(name, remember=False)
        yield ShardRead(
            law=law, shard=shard, candidate=0 if candidate is None else candidate + 1, state_bytes=len(raw),
            subjects=len(next(iter(body.columns.values()), ())),
            resting=len(resting),
            segments=len(files) if candidate is None else 0,
            segment_bytes=sum(files.values()) if candidate is None else 0,
        )  # fmt: skip
