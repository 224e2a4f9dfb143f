"""`weir propose`: the file that it writes, what that does when it is tried, and bad input."""

import gzip
from pathlib import Path

import orjson
import pytest
from event_kit import delivery, report, sample
from plan_kit import file_of, policies_of
from propose_kit import flat, hourly

from streaming.policy.files import load_policies
from weir.cli import main
from weir.logs.dump_lines import DumpSummary

ASKED = sorted(
    [
        *hourly("alice", *[3] * 24), *hourly("bob", *[0] * 7, 2), *(delivery(n * 1000, 30) for n in range(9)),
        sample("s", 0, 10, inflight=4), report(60_000, "b1", {"rg1": {"publishedMsg": 60}}, period_ms=60_000),
    ],
    key=lambda event: event["ts"],
)  # fmt: skip


def propose(folder: Path, log: str, *words: str) -> int:
    """The exit status."""
    return main(["propose", "--events", log, "--headroom", "2", "--out", str(folder / "p.yaml"), *words])


def test_the_file_says_why_and_what_if(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It loads, is the same bytes each time, and tells above each entry what was seen and what would be."""
    log = file_of(tmp_path, "log.jsonl", *ASKED)
    assert propose(tmp_path, log) == 0
    text = (tmp_path / "p.yaml").read_text()
    assert f"5 entries from 36 events written to {tmp_path / 'p.yaml'}" in capsys.readouterr().err
    assert "# Proposed by weir propose --headroom 2 from 36 events, 2026-11-20T" in text
    assert "# 2 users, alice, bob: partition mutations in 58 min: p50 3, p99 3, worst 3 (alice, 2026-" in text
    assert "# On this log, of 25 requests: none refused or delayed; whether clients wait or not." in text
    assert "# On this log nobody goes by it." in text.partition("broker:")[0].rpartition("acme")[2]
    assert main(["policy", "check", str(tmp_path / "p.yaml")]) == 0
    assert propose(tmp_path, log) == 0
    assert (tmp_path / "p.yaml").read_text() == text


def test_it_is_tried_on_another_log(tmp_path: Path) -> None:
    """As any file of policies, by `weir replay --against`."""
    assert propose(tmp_path, file_of(tmp_path, "log.jsonl", *ASKED)) == 0
    wild = file_of(tmp_path, "wild.jsonl", *ASKED, *hourly("carol", *[9] * 100, every_ms=1000))
    summary, none = tmp_path / "summary.json", policies_of(tmp_path, "none.yaml")
    words = ["--policies", none, "--events", wild, "--out", str(tmp_path / "out"), "--summary", str(summary)]
    assert main(["replay", *words, "--against", str(tmp_path / "p.yaml")]) == 0
    told = orjson.loads(summary.read_bytes())["entities"]
    assert [row["whose"] for row in told if row["against"]["rejected"]] == ["user=carol"]


def test_what_would_be_refused_is_told_with_who_is(tmp_path: Path) -> None:
    """Of a default, whoever it hurts most; a name forges no line and no entry."""
    crowd = [event for n in range(8) for event in hourly(f"team-{n}", *[4] * 24)]
    wild = hourly("x\n- entity: {user: y}\r\u2028é", *[50] * 100, every_ms=1000)
    assert propose(tmp_path, file_of(tmp_path, "log.jsonl", *crowd, *wild)) == 0
    text = flat((tmp_path / "p.yaml").read_text())
    assert ": 99 refused, 0 delayed, " in text and "(most of it x\\n- entity: {user: y}\\r" in text
    assert list(load_policies(str(tmp_path / "p.yaml"))) == ["quotas[user=<default>]"]


def test_bad_lines_are_buried_and_the_rest_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With file and line, as by other commands."""
    log = file_of(tmp_path, "log.jsonl", b"nonsense\n", *ASKED, b'{"type":"request"}\n', b"\xff\xfe\n")
    letters = tmp_path / "letters.jsonl"
    assert propose(tmp_path, log, "--dead-letters", str(letters)) == 0
    assert [orjson.loads(line)["offset"] for line in letters.read_bytes().splitlines()] == [1, 38, 39]
    assert propose(tmp_path, log) == 0
    assert "3 lines could not be used, written to nowhere; name a file" in capsys.readouterr().err


def test_events_that_can_be_used_in_part_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of their samples has a dead letter; the others are gone by."""
    samples = [{"rtt_ns": rtt, "inflight": 4} for rtt in (10, -2)]
    asked = [{"type": "latency", "ts": ts, "partition": "p", "samples": samples} for ts in range(3)]
    assert propose(tmp_path, file_of(tmp_path, "log.jsonl", *asked, b"nonsense\n")) == 0
    err = capsys.readouterr().err
    assert "1 entries from 3 events" in err and "4 lines could not be used" in err


@pytest.mark.parametrize(
    ("content", "also"),
    [
        (b"", ""), (b"\n\n", ""), (b'{"type":"tick","ts":1}\n', ""),
        (b"nonsense\n", "; 1 lines could not be used, the first log.jsonl:1: not JSON: "),
    ],
)  # fmt: skip
def test_a_log_of_nothing_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, also: str
) -> None:
    """Exit status 1, and nothing is written; what is no event file at all is told as such."""
    log = file_of(tmp_path, "log.jsonl", content)
    assert propose(tmp_path, log) == 1
    said = f"weir: {log}: nobody asks for anything, so there is nothing to propose"
    err = capsys.readouterr().err
    assert err.startswith(f"{said}{also}") if also else err == f"{said}\n"
    assert not (tmp_path / "p.yaml").exists()


def test_topics_of_nothing_are_named_by_their_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that they were read into is gone."""

    def dump(cluster: object, start: int, end: int, out: Path, **_: object) -> DumpSummary:
        out.touch()
        return DumpSummary()

    monkeypatch.setattr("weir.logs.dump.dump", dump)
    assert main(["propose", "--from-kafka", "kafka:9092", "--out", str(tmp_path / "p.yaml")]) == 1
    said = "weir: kafka:9092: nobody asks for anything, so there is nothing to propose"
    assert capsys.readouterr().err.splitlines()[-1] == said


def test_truncated_files_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 1, as by other commands."""
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(orjson.dumps(ASKED[0]))[:-9])
    assert propose(tmp_path, str(cut)) == 1
    assert "cut.jsonl.gz: cannot be read" in capsys.readouterr().err and not (tmp_path / "p.yaml").exists()
