"""Spark's state of an operator, read from its files without Spark.

Sources: `HDFSBackedStateStoreProvider` of Spark 4.1 (a snapshot or a delta a version; lengths and bytes of
key and value, -1 for one that is removed and at the end), `LZ4BlockOutputStream` of lz4-java (the blocks that
these files are cut into), `UnsafeRow` (a word a field after eight bytes of flags: a number, or where bytes
lie and how many).
"""

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from streaming.contract.errors import StateError

READABLE: Final = {
    "spark.sql.streaming.stateStore.providerClass": "HDFSBackedStateStoreProvider",
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
    "spark.sql.streaming.stateStore.rowChecksum.enabled": "false",
}
"""How the state must be kept, by the end of what a batch's configuration says; a key may be missing."""
SUFFIXES: Final = (".snapshot", ".delta")
_MAGIC: Final = b"LZ4Block"
_BLOCK: Final = struct.Struct("<8sBiii")
_RAW, _METHOD, _SIZE, _LEAST_SIZE = 0x10, 0xF0, 0x0F, 10
_LENGTH: Final = struct.Struct(">i")
_WORD: Final = 8


def why_not(configured: Mapping[str, str]) -> str:
    """What of a batch's configuration keeps its state from being read here; empty: nothing."""
    found = ((key, str(configured.get(key, end)), end) for key, end in READABLE.items())
    return ", ".join(f"{key} is {value}" for key, value, end in found if not value.endswith(end))


def numbers_in(folder: Path, suffix: str = "") -> list[int]:
    """Numbers that are names of files in a folder, with this suffix; none if it is not there."""
    names = os.listdir(folder) if folder.is_dir() else []
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdecimal())


def is_whole(path: Path) -> bool:
    """Whether a snapshot or a delta can be read to its end.

    Raises:
        OSError: it is not there, or the disk does not give it.
    """
    data = path.read_bytes()
    try:
        return all(True for _ in _changes(_plain(data)))
    # Of a damaged block Arrow says OSError, as of a disk that does not answer.
    except (OSError, ValueError, struct.error):
        return False


def loadable(paths: Iterable[Path]) -> set[int]:
    """Versions of a task's state that these files are enough for."""
    found = {0}
    numbers = {(int(path.stem), path.suffix) for path in paths}
    for version, suffix in sorted(numbers):
        if suffix == ".snapshot" or version - 1 in found:
            found.add(version)
    return found


def states(folder: Path, version: int, tasks: int) -> Iterator[tuple[int, int, bytes]]:
    """What an operator of `schemas.STATE` remembers: number of the group, version and body.

    Args:
        folder: of the operator, with a folder for each of its tasks.
        version: of the state: the batch's number and one.
        tasks: of the operator.

    Raises:
        StateError: a file is missing or damaged.
    """
    for task in (folder / str(number) for number in range(tasks)):
        for key, value in _rows(task, version).items():
            try:
                (number,) = struct.unpack_from("<i", key, _WORD)
                state = _field(value, 0)
                yield number, struct.unpack_from("<i", state, _WORD)[0], _field(state, 1)
            except struct.error as error:
                raise StateError(f"{task} has a row that is none of a state of Weir's") from error


def _rows(task: Path, version: int) -> dict[bytes, bytes]:
    """The rows of a task: those of its last snapshot, and what changed since."""
    found: dict[bytes, bytes] = {}
    first = max((whole for whole in numbers_in(task, ".snapshot") if whole <= version), default=0)
    names = [f"{first}.snapshot"] if first else []
    for name in [*names, *(f"{number}.delta" for number in range(first + 1, version + 1))]:
        path = task / name
        try:
            for key, value in _changes(_plain(path.read_bytes())):
                if value is None:
                    found.pop(key, None)
                else:
                    found[key] = value
        except (OSError, ValueError, struct.error) as error:
            reason = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
            raise StateError(f"{path} {reason}; the checkpoint is damaged") from error
    return found


def _changes(data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    at = 0

    def taken() -> bytes | None:
        nonlocal at
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size + max(size, 0)
        if at > len(data):
            raise ValueError("it ends too early")
        return None if size < 0 else data[at - size : at]

    while (key := taken()) is not None:
        yield key, taken()


def _plain(data: bytes) -> bytes:
    """The content of lz4-java's blocks."""
    codec, found, at = pa.Codec("lz4_raw"), [], 0
    while at < len(data):
        magic, token, packed, size, _ = _BLOCK.unpack_from(data, at)
        at += _BLOCK.size + packed
        largest = 1 << _LEAST_SIZE + (token & _SIZE)
        if magic != _MAGIC or not 0 <= packed <= len(data) or not 0 <= size <= largest or at > len(data):
            raise ValueError("it has no blocks of LZ4")
        block = data[at - packed : at]
        if size:
            found.append(block if token & _METHOD == _RAW else codec.decompress(block, size).to_pybytes())
    return b"".join(found)


def _field(row: bytes, number: int) -> bytes:
    """The bytes of a field that is no number."""
    place, size = struct.unpack_from("<ii", row, _WORD * (1 + number))[::-1]
    return row[place : place + size]
