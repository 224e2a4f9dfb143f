"""Logs that are cut, mixed, endless or no logs: each unusable line is named, and none ends the rest."""

import gzip
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest
from import_kit import create

from weir.cli import main
from weir.imports import reading
from weir.imports.byte_usage import PUBLISHED, ByteUsage


def letters(path: Path) -> list[tuple[str, int, str]]:
    """File, line and reason of each."""
    read = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    return [(letter["topic"], letter["offset"], letter["reason"]) for letter in read]


def run(
    tmp_path: Path, *files: Path, status: int = 0, zone: str = "UTC"
) -> tuple[list[Any], list[tuple[str, int, str]]]:
    """Import them; returns events and dead letters."""
    out, dead = tmp_path / "out.jsonl.gz", tmp_path / "dead.jsonl"
    words = ["--out", str(out), "--dead-letters", str(dead), "--timezone", zone]
    assert main(["import", "kafka-request-log", *map(str, files), *words]) == status
    if status:
        assert not out.exists() and not dead.exists()
        return [], []
    events = gzip.decompress(out.read_bytes()).splitlines()
    return events, letters(dead)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a log."""
    return tmp_path / "r.log"


GOOD = create(0)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (GOOD[:300], "not JSON"),
        (GOOD.replace('"principal":"User:alice",', ""), "KeyError: 'principal'"),
        (GOOD.replace('"topics":[{"name":"t","num', '"topics":[["name","num'), "not JSON"),
        (GOOD.replace('"response":{"topics":', '"response":{"topics":3,"x":'), "TypeError"),
        (GOOD.replace('"requestApiKey":19', '"a":1'), "requestApiKey"),
        (GOOD.replace("2026-11-26 ", ""), "no date and time"),
        (GOOD.replace("2026-11-26", "2026-13-26"), "month must be"),
        (GOOD.replace('"name":"t"', '"name":"\udcff"'), "not JSON"),
    ],
)  # fmt: skip
def test_a_bad_line(tmp_path: Path, path: Path, bad: str, reason: str) -> None:
    """It stands among the dead letters; those around it count."""
    path.write_text("\n".join(("something else", GOOD, bad, GOOD)), errors="surrogateescape")
    events, ((file, number, why),) = run(tmp_path, path)
    assert (len(events), file, number) == (2, "r.log", 3)
    assert reason in why


@pytest.mark.parametrize("day", ["2026-02-30", "0001-01-01"])
def test_a_file_that_begins_with_no_time(tmp_path: Path, path: Path, day: str) -> None:
    """A day that there is not, or not in the log's zone, is said of that line; it was a traceback."""
    path.write_text("\n".join((GOOD.replace("2026-11-26", day), GOOD)))
    events, ((file, number, _),) = run(tmp_path, path, zone="Pacific/Auckland")
    assert (len(events), file, number) == (1, "r.log", 1)


def test_dead_letters_without_room_are_named(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A full disk: the file of events was named, on another disk."""
    path.write_text(f"{GOOD[:300]}\n" * 100 + GOOD)
    words = ["--out", str(path.with_name("out.jsonl")), "--dead-letters", "/dev/full", str(path)]
    assert main(["import", "kafka-request-log", *words]) == 1
    assert capsys.readouterr().err == "weir: /dev/full: cannot be written: No space left on device\n"


def test_dead_letters_are_packed_as_their_name_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plain lines stood in a `.gz`, which nobody could unpack, and in a `.parquet`."""
    path, dead = tmp_path / "r.log", tmp_path / "dead.jsonl.gz"
    path.write_text(f"{GOOD}\n{GOOD[:300]}")
    words = ["import", "kafka-request-log", str(path), "--out", str(tmp_path / "out.jsonl")]
    assert main([*words, "--dead-letters", str(dead)]) == 0
    assert orjson.loads(gzip.decompress(dead.read_bytes()))["offset"] == 2
    assert main([*words, "--dead-letters", str(tmp_path / "dead.parquet")]) == 1
    assert "dead.parquet: cannot be written: dead letters of an import are lines" in capsys.readouterr().err


def test_a_truncated_archive(tmp_path: Path) -> None:
    """What can be unpacked counts, and the next file is read."""
    whole = gzip.compress("\n".join([GOOD] * 5_000).encode(), 0)
    cut, other = tmp_path / "cut.log.gz", tmp_path / "other.log"
    cut.write_bytes(whole[: len(whole) // 2])
    other.write_text(GOOD)
    events, ((file, number, reason),) = run(tmp_path, cut, other)
    assert file == "cut.log.gz" and 2_000 < number < 3_000 and len(events) == number
    assert "cannot be read any further: Compressed file ended" in reason


def test_no_archive_at_all(tmp_path: Path) -> None:
    """A name that promises too much."""
    path, other = tmp_path / "r.log.gz", tmp_path / "other.log"
    for each in (path, other):
        each.write_text(GOOD)
    events, ((file, number, reason),) = run(tmp_path, path, other)
    assert (len(events), file, number) == (1, "r.log.gz", 1)
    assert "Not a gzipped file" in reason


def test_an_endless_line(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more of it is held than a line may have, and the next one counts."""
    monkeypatch.setattr(reading, "LINE_MAX", 10_000)
    path.write_text("\n".join((GOOD, "Completed request:" + "x" * 100_000, GOOD)))
    events, dead = run(tmp_path, path)
    assert len(events) == 2
    assert dead == [("r.log", 2, "the line is longer than 10000 bytes")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: Is a directory"),
        (b"", "is one of requests"),
        (b"\xff\xfe" + GOOD.encode("utf-16-le"), "is one of requests"),
        (b"127.0.0.1 - - GET /\n" * 3, "such were expected: [2026-11-26 10:42:11,840] DEBUG Completed"),
    ],
)
def test_no_such_log(
    tmp_path: Path, path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, said: str
) -> None:
    """One line that says so, and nothing is written."""
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    run(tmp_path, path, status=1)
    (text,) = capsys.readouterr().err.splitlines()
    assert said in text


def test_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named."""
    run(tmp_path, tmp_path / "no.log", status=1)
    assert "no.log: cannot be read: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_import_leaves_nothing(
    number: signal.Signals, tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither half a file nor a draft of one."""
    path.write_text(GOOD)
    read = reading.LogFiles.lines

    def interrupted(self: reading.LogFiles) -> Any:
        yield from read(self)
        signal.raise_signal(number)

    monkeypatch.setattr(reading.LogFiles, "lines", interrupted)
    # Tests in the background of a shell ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run(tmp_path, path, status=1)
    assert list(tmp_path.iterdir()) == [path]


def test_several_files_of_one_name(tmp_path: Path) -> None:
    """Ids tell them apart."""
    paths = [tmp_path / name / "r.log" for name in ("one", "two")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(GOOD)
    events, _ = run(tmp_path, *paths)
    assert [orjson.loads(event)["id"] for event in events] == ["r.log:1", "r.log#2:1"]


def test_sums_of_bytes_stop_where_json_does() -> None:
    """Sizes that no broker writes: the import ended in a traceback."""
    usage = ByteUsage(1000)
    for _ in range(2):
        assert not [*usage.add("b", 0, "g", PUBLISHED, 2**63 - 1)]
    (report,) = usage.rest()
    assert orjson.loads(orjson.dumps(report))["usage"]["g"]["publishedBytes"] == 2**63 - 1
