"""What a power cut may leave of a checkpoint, and what a job makes of it."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from streaming.contract.errors import StateError
from streaming.job.checkpoint_name import LAYOUT
from streaming.job.process.whole_batches import YOUNG_S, go_back

NAME = f"v{LAYOUT}-shards2-partitions2-topicsab"
TASKS = (0, 1)
DAMAGED = b"LZ4Block" + struct.pack("<Biii", 0x2F, 20, 100, 0) + b"\xff" * 20
Tear = Callable[[Path], object]


def rows(*lengths: int) -> bytes:
    """A delta with one row of such lengths, as lz4-java writes a block that it did not pack."""
    content = b"".join(struct.pack(">i", size) + b"x" * size for size in lengths) + struct.pack(">i", -1)
    return b"LZ4Block" + struct.pack("<Biii", 0x1F, len(content), len(content), 0) + content


def offsets(provider: str = "HDFSBackedStateStoreProvider") -> bytes:
    """Of a batch whose state this provider keeps."""
    told = {"batchTimestampMs": 1, "conf": {"spark.sql.streaming.stateStore.providerClass": provider}}
    return b"\n".join((b"v1", orjson.dumps(told), b'{"weir.requests":{"0":5}}'))


def made(folder: Path, batches: int = 5, provider: str = "HDFSBackedStateStoreProvider") -> Path:
    """A checkpoint of so many whole batches, and one more that has begun; a snapshot of the third."""
    path = folder / NAME
    files = {"metadata": b'{"id":"a"}', "sources/0/0": b"\0v1\n{}", "state/0/_metadata/metadata": b"v1\n{}"}
    files["state/0/0/_metadata/schema"] = b"\0\2v2"
    for number in range(batches + 1):
        files[f"offsets/{number}"] = offsets(provider)
    for number in range(batches):
        files[f"commits/{number}"] = b'v1\n{"nextBatchWatermarkMs":0}'
        files |= {f"state/0/{task}/{number + 1}.delta": rows(4, 4) for task in TASKS}
    files |= {f"state/0/{task}/3.snapshot": rows(4, 4) for task in TASKS}
    for name, content in files.items():
        for file in (path / name, (path / name).with_name(f".{Path(name).name}.crc")):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    return path


def held(path: Path) -> dict[str, list[int]]:
    """The numbers of what is there of each kind, and that what is gone has left no sum."""
    names = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    plain = {name for name in names if not Path(name).name.startswith(".")}
    assert {str(Path(name).with_name(f".{Path(name).name}.crc")) for name in plain} == names - plain
    kinds = {"offsets": "offsets/*", "commits": "commits/*", "deltas": "*.delta", "snapshots": "*.snapshot"}
    return {
        kind: sorted({int(Path(name).stem) for name in plain if Path(name).match(pattern)})
        for kind, pattern in kinds.items()
    }


def torn(*names: str, content: bytes = b"") -> Tear:
    """These files hold this instead of what was written."""
    return lambda path: [(path / name).write_bytes(content) for name in names]


def told(path: Path, said: str) -> None:
    """It said that it went back, and what it leaves is whole."""
    assert said.startswith("TORN: ") and str(path) in said
    assert go_back(path) == ""


@pytest.mark.parametrize(
    "change",
    [
        lambda path: None,
        # Killed while a batch ran: after its state was written, and before.
        lambda path: [(path / f"state/0/{task}/6.delta").write_bytes(b"") for task in TASKS],
        lambda path: (path / "offsets/5").unlink(),
        lambda path: (path / "offsets/.6.tmp").write_bytes(b""),
        # Hadoop reads a file without the sum that it cannot read.
        torn("sources/0/.0.crc", "state/0/_metadata/.metadata.crc", "offsets/.5.crc"),
    ],
)
def test_what_a_kill_leaves_is_left_as_it_is(tmp_path: Path, change: Tear) -> None:
    """Spark goes on from there by itself."""
    path = made(tmp_path)
    change(path)
    before = sorted(path.rglob("*"))
    assert go_back(path) == "" and sorted(path.rglob("*")) == before


def test_nothing_there_is_nothing_torn(tmp_path: Path) -> None:
    """Nor is a first batch that was stopped."""
    assert go_back(tmp_path / NAME) == ""
    path = made(tmp_path, batches=0)
    assert go_back(path) == "" and path.exists()


@pytest.mark.parametrize(
    ("tear", "last"),
    [
        (torn("offsets/5"), 4),
        (torn("commits/4"), 3),
        (torn("offsets/4", "offsets/5"), 3),
        (torn("offsets/5", content=offsets()[:40]), 4),
        (torn("commits/4", content=b"\0" * 20), 3),
        (torn("state/0/1/5.delta"), 3),
        (torn("state/0/1/5.delta", content=rows(4, 4)[:-5]), 3),
        # Of whole length, and its block is not what was packed.
        (torn("state/0/1/5.delta", content=DAMAGED), 3),
        (torn("state/0/0/4.delta", "state/0/1/5.delta", content=b"\0" * 60), 2),
        # The snapshot is as good as the deltas before it, and they as it.
        (torn("state/0/0/2.delta", "commits/4"), 3),
        (torn("state/0/0/3.snapshot"), 4),
        (torn("state/0/0/3.snapshot", "state/0/0/2.delta", "state/0/1/3.snapshot"), 0),
        (lambda path: [(path / f"state/0/1/{name}").unlink() for name in ("5.delta", ".5.delta.crc")], 3),
    ],
)
def test_it_goes_back_to_the_last_whole_batch(tmp_path: Path, tear: Tear, last: int) -> None:
    """All that follows from a later one is gone, sums too."""
    path = made(tmp_path)
    tear(path)
    said = go_back(path)
    assert f" to batch {last} " in said
    told(path, said)
    left = held(path)
    assert left["commits"] == [*range(last + 1)] and left["offsets"][-1] in (last, last + 1)
    assert left["deltas"][-1] == last + 1


@pytest.mark.parametrize(
    "tear",
    [
        lambda path: [(path / "offsets" / str(number)).unlink() for number in range(6)],
        torn(*(f"offsets/{number}" for number in range(6))),
        torn(*(f"commits/{number}" for number in range(5))),
        torn("state/0/0/1.delta", "state/0/0/3.snapshot"),
        torn("metadata"),
        torn("sources/0/0"),
        torn("state/0/_metadata/metadata"),
        torn("state/0/0/_metadata/schema"),
    ],
)
def test_without_a_whole_batch_it_is_set_aside(tmp_path: Path, tear: Tear) -> None:
    """Once: the one that was set aside before is gone."""
    for number in range(2):
        path = made(tmp_path)
        (path / f"mark{number}").touch()
        tear(path)
        said = go_back(path)
        aside = path.with_name(f"{NAME}-torn")
        assert "has no whole batch" in said and str(aside) in said and "the job begins anew" in said
        assert not path.exists() and (aside / f"mark{number}").exists()
        assert [*tmp_path.iterdir()] == [aside]


def test_what_was_written_long_before_is_not_read(tmp_path: Path) -> None:
    """A state of gigabytes is not read at each start."""
    path = made(tmp_path)
    for name in ("state/0/0/2.delta", "commits/1"):
        torn(name)(path)
        newest = (path / "metadata").stat().st_mtime
        os.utime(path / name, (newest - YOUNG_S - 1,) * 2)
    assert go_back(path) == ""


def test_a_state_that_spark_alone_reads_is_taken_as_whole(tmp_path: Path) -> None:
    """Its logs are looked at all the same."""
    path = made(tmp_path, provider="RocksDBStateStoreProvider")
    for file in path.glob("state/0/[01]/*.*"):
        file.unlink()
    assert go_back(path) == ""
    torn("commits/4")(path)
    assert " to batch 3 " in go_back(path)


@pytest.mark.parametrize("name", ["offsets/5", "offsets/4", "commits/4", "state/0/0/5.delta"])
def test_what_cannot_be_read_is_no_torn_file(tmp_path: Path, name: str) -> None:
    """Nothing is deleted because a disk does not answer."""
    path = made(tmp_path)
    (path / name).unlink()
    (path / name).mkdir()
    before = sorted(path.rglob("*"))
    with pytest.raises(StateError, match=r"cannot be looked through: .*Is a directory"):
        go_back(path)
    assert sorted(path.rglob("*")) == before
