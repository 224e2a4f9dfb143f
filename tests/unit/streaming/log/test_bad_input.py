"""Files that are damaged, or not what their names say: dead letters with their lines, or one line of why."""

import base64
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from law_kit import request

from streaming.contract.errors import WeirError
from streaming.log import reading
from streaming.log.reading import read_lines
from streaming.replay import replay_local

LINES = [orjson.dumps(request(f"r{number}", number, 1)) for number in range(200)]
GOOD = b"\n".join(LINES) + b"\n"


def written(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


@pytest.fixture
def policies(tmp_path: Path) -> str:
    return written(tmp_path / "policies.yaml", b"version: 1\n")


def parquet(path: Path, table: pa.Table) -> str:
    pq.write_table(table, path)
    return str(path)


def half_of_a_parquet(path: Path) -> str:
    parquet(path, pa.table({"type": ["request"] * 9}))
    return written(path, path.read_bytes()[:-30])


def damaged_parquet(path: Path) -> str:
    parquet(path, pa.table({"type": ["request"] * 5000, "id": [os.urandom(8).hex() for _ in range(5000)]}))
    content = path.read_bytes()
    return written(path, content[:200] + bytes(400) + content[600:])


def no_text(path: Path) -> str:
    wrong = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    return parquet(path, pa.table({"type": ["request"], "ts": [1], "user": wrong}))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("cut.jsonl.gz", lambda path: written(path, gzip.compress(GOOD)[:-40])),
        ("no.jsonl.gz", lambda path: written(path, GOOD)),
        ("empty.parquet", lambda path: written(path, b"")),
        ("cut.parquet", half_of_a_parquet),
        ("damaged.parquet", damaged_parquet),
        ("bytes.parquet", no_text),
        ("twice.parquet", lambda path: parquet(path, pa.table([[1], [2]], names=["ts", "ts"]))),
    ],
)
def test_what_cannot_be_read_is_named(
    name: str, make: Callable[[Path], str], policies: str, tmp_path: Path
) -> None:
    with pytest.raises(WeirError, match=f"{name}: cannot be read: "):
        replay_local(policies, [make(tmp_path / name)])


@pytest.mark.parametrize(
    ("content", "lost", "first"),
    [
        (b"", 0, None),
        (GOOD.replace(b"\n", b"\r\n"), 0, None),
        (GOOD.replace(b'"r7"', b'"r\xe9"'), 1, 8),
        (GOOD + b"\0" * 5000 + b"\n" + GOOD, 1, 201),
        (b"\xef\xbb\xbf" + GOOD, 1, 1),
        (GOOD.decode().encode("utf-16"), 201, 1),
    ],
    ids=["empty", "carriage returns", "latin-1", "NUL", "a mark of UTF-8", "UTF-16"],
)
def test_lines_that_cannot_be_used_are_named(
    content: bytes, lost: int, first: int | None, policies: str, tmp_path: Path
) -> None:
    """Each with its bytes; the others are decided."""
    log = written(tmp_path / "log.jsonl", content)
    replayed = replay_local(policies, [log])
    letters = [orjson.loads(letter) for letter in replayed.dead_letters]
    assert len(letters) == lost
    assert len(replayed.decisions) == sum(1 for _ in read_lines([log])) - lost
    if letters:
        assert letters[0]["offset"] == first
        assert base64.b64decode(letters[0]["value_base64"]) == content.split(b"\n")[letters[0]["offset"] - 1]


@pytest.mark.parametrize("size", [999, 1000, 1999, 5000])
def test_a_line_that_never_ends_is_named(
    size: int, policies: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its number, whether lines are read one by one or many at once, and wherever it begins."""
    monkeypatch.setattr(reading, "LINE_MAX", 1000)
    monkeypatch.setattr(reading, "READ_AT_ONCE", 700)
    log = written(tmp_path / "log.jsonl", b"\n".join([*LINES[:5], b"x" * size, *LINES[5:]]))
    if size < reading.LINE_MAX:
        assert len(replay_local(policies, [log]).dead_letters) == 1
        assert sum(1 for _ in read_lines([log])) == 201
        return
    expected = "log.jsonl: cannot be read: line 6: a line is longer than 1000 bytes"
    with pytest.raises(WeirError, match=expected):
        replay_local(policies, [log])
    with pytest.raises(WeirError, match=expected):
        list(read_lines([log]))
