"""Segments as files."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from streaming.contract.errors import StateError
from streaming.job.blobs.local import FileBlobStore
from streaming.job.blobs.places import stores_of
from streaming.job.spark.settings import JobSettings
from streaming.state.body import packed

ROWS = pa.RecordBatch.from_pydict({"subject": ["a", "b"], "tokens": [0.1, float("inf")]})
SPARK: Any = SimpleNamespace(sparkContext=None)
"""Its configuration is asked for those that are far away alone."""


def test_a_segment_comes_back_from_another_process_blob_store(tmp_path: Path) -> None:
    """Named after its content: the same rows are one file, whoever writes them."""
    blobs = FileBlobStore(tmp_path / "new" / "folder", 100)
    name = blobs.put(packed(ROWS))
    assert blobs.put(packed(ROWS)) == name
    assert FileBlobStore(tmp_path / "new" / "folder", 100).get(name).equals(ROWS)
    assert [file.name for file in blobs.folder.iterdir()] == [f"{name}.arrow"]


def test_dropping_twice_does_no_harm(tmp_path: Path) -> None:
    """A batch that is run again drops again."""
    blobs = FileBlobStore(tmp_path, 100)
    name = blobs.put(packed(ROWS))
    blobs.drop(name)
    blobs.drop(name)
    assert list(tmp_path.iterdir()) == []


def test_a_deleted_segment_is_mapped_no_more(tmp_path: Path) -> None:
    """By whichever worker it was deleted, or the disk would not get its room back."""
    shards = FileBlobStore(tmp_path, 100)
    blobs, others = shards.of("mutation", 0), shards.of("mutation", 1)
    names = [each.put(packed(ROWS.slice(row))) for row, each in enumerate((blobs, others))]
    for name, each in zip(names, (blobs, others), strict=True):
        assert each.get(name).num_rows
    assert open_maps(tmp_path) == 2
    (others.folder / f"{names[1]}.arrow").unlink()
    blobs.drop(names[0])
    assert open_maps(tmp_path) == 0


def open_maps(folder: Path) -> int:
    """How many files in a folder this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len({line.partition("/")[2] for line in lines if str(folder) in line})


def test_what_killed_workers_left_is_deleted(tmp_path: Path) -> None:
    """When the job starts; what is being written by another stays."""
    shards = FileBlobStore(tmp_path / "segments", 100)
    shards.tidy()
    blobs = shards.of("mutation", 0)
    name = blobs.put(packed(ROWS))
    old, new = (blobs.folder / f".{name}.{number}" for number in range(2))
    for path in (old, new, blobs.folder / f"{name}.arrow"):
        path.write_bytes(path.read_bytes() if path.exists() else b"half")
        os.utime(path, (0, 0) if path != new else None)
    shards.tidy()
    assert sorted(path.name for path in blobs.folder.iterdir()) == [new.name, f"{name}.arrow"]


def test_what_is_renamed_meanwhile_keeps_nothing_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What killed workers had left stayed until the next start."""
    folder = tmp_path / "mutation-0"
    folder.mkdir()
    left = folder / ".left"
    left.touch()
    os.utime(left, (0, 0))
    monkeypatch.setattr(Path, "glob", lambda *_: iter([folder / ".renamed", left]))
    FileBlobStore(tmp_path, 100).tidy()
    assert not left.exists()


def test_a_missing_segment_is_named_as_such(tmp_path: Path) -> None:
    """The query must end: deciding without the rows would forget debts."""
    for name in ("0" * 32, "0\0"):
        with pytest.raises(StateError, match="missing"):
            FileBlobStore(tmp_path, 100).get(name)


@pytest.mark.parametrize("damage", [b"", b"\0" * 800, packed(ROWS)[:-8], packed(ROWS)[:-9] + b"\1" * 9])
def test_a_damaged_segment_is_named_as_such(tmp_path: Path, damage: bytes) -> None:
    """Half a file, or other bytes: the name tells."""
    blobs = FileBlobStore(tmp_path, 100)
    name = blobs.put(packed(ROWS))
    (tmp_path / f"{name}.arrow").write_bytes(damage)
    with pytest.raises(StateError, match="damaged"):
        blobs.get(name)


def test_a_full_disk_is_named_as_such(tmp_path: Path) -> None:
    """Nothing half-written is left."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot be written"):
        FileBlobStore(tmp_path / "file", 100).put(packed(ROWS))


def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What is done from now on: (call, inode, size of a file or -1), in order."""
    seen: list[tuple[str, int, int]] = []
    replace, fsync = os.replace, os.fsync

    def noted_fsync(number: int) -> None:
        found = os.fstat(number)
        seen.append(("fsync", found.st_ino, -1 if stat.S_ISDIR(found.st_mode) else found.st_size))
        fsync(number)

    def noted_replace(old: Any, new: Any) -> None:
        found = os.stat(old)
        seen.append(("replace", found.st_ino, found.st_size))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    return seen


def test_what_cannot_be_deleted_ends_the_query(tmp_path: Path) -> None:
    """And buries no events: the batch is run again once that is mended."""
    blobs = FileBlobStore(tmp_path, 100)
    (tmp_path / "x.arrow").mkdir()
    with pytest.raises(StateError, match=r"x\.arrow"):
        blobs.drop("x")


def test_what_is_named_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut loses nothing that a checkpoint names: first the file, then its name, then `put` ends.

    Folders that are new are entries of their parents, which must last as well.
    """
    seen = watched(monkeypatch)
    folder = tmp_path / "new" / "folder"
    name = FileBlobStore(folder, 100).put(packed(ROWS))
    file = (folder / f"{name}.arrow").stat()
    own = ("fsync", file.st_ino, file.st_size), ("replace", file.st_ino, file.st_size)
    parents = [("fsync", path.stat().st_ino, -1) for path in (tmp_path, tmp_path / "new", folder)]
    assert seen == [*parents[:2], *own, parents[2]]


def test_a_name_that_is_there_already_is_made_to_last_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever put it may have been stopped before it had synced the folder."""
    blobs = FileBlobStore(tmp_path, 100)
    blobs.put(packed(ROWS))
    seen = watched(monkeypatch)
    blobs.put(packed(ROWS))
    assert seen == [("fsync", tmp_path.stat().st_ino, -1)]


@pytest.mark.parametrize("failing", ["file", "folder"])
def test_what_may_not_last_gets_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """The batch fails, and its body, which would name the file, is not written; the next try starts anew."""
    fsync = os.fsync

    def fail(number: int) -> None:
        if stat.S_ISDIR(os.fstat(number).st_mode) == (failing == "folder"):
            raise OSError(5, "Input/output error")
        fsync(number)

    blobs = FileBlobStore(tmp_path, 100)
    with monkeypatch.context() as broken, pytest.raises(StateError, match=r"cannot be written: .* error"):
        broken.setattr(os, "fsync", fail)
        blobs.put(packed(ROWS))
    if failing == "file":
        assert list(tmp_path.iterdir()) == []
    assert blobs.get(blobs.put(packed(ROWS))).equals(ROWS)


@pytest.mark.parametrize(
    ("checkpoint", "folder"),
    [
        ("/a b/c", "/a b/c/segments/mutation-3"),
        ("file:///a%20b/c", "/a b/c/segments/mutation-3"),
        ("a/b", f"{Path.cwd()}/a/b/segments/mutation-3"),
    ],
)
def test_segments_lie_in_the_checkpoint(checkpoint: str, folder: str) -> None:
    """Whoever copies the one has the other."""
    blob_stores = stores_of(checkpoint, 100, JobSettings(), SPARK)
    assert blob_stores is not None
    assert blob_stores.of("mutation", 3) == FileBlobStore(Path(folder), 100)


@pytest.mark.parametrize("checkpoint", ["gs://bucket/c", "abfs://host/c"])
def test_what_cannot_be_mapped_has_no_segments(checkpoint: str) -> None:
    """All rows then stay in Spark's state, as they were before there were segments."""
    assert stores_of(checkpoint, 100, JobSettings(), SPARK) is None
