"""The local replay engine and its command: reading files, order, dead letters, summary."""

import base64
import gzip
from pathlib import Path

import orjson
import pytest
from law_kit import T0, policy, quota, refund, request
from plan_kit import file_of, policies_of

from streaming.log.deciding import Replay
from streaming.log.reading import Line, read_lines
from streaming.replay import Drafts, read_timeline, replay_local, replaying, summarise
from weir.cli import main


@pytest.fixture
def policies(tmp_path: Path) -> str:
    entry = {"entity": {"user": "alice"}, "controller_mutation_rate": 1}
    return policies_of(tmp_path, "policies.yaml", quotas=[entry])


def test_the_whole_input_is_ordered_by_time_then_file_then_line(tmp_path: Path, policies: str) -> None:
    """Charged in that order; written by (ts, type, id)."""
    first = file_of(tmp_path, "b.jsonl", request("late", 2000, 1), request("z", 1000, 11))
    second = file_of(tmp_path, "a.jsonl", request("a", 1000, 1), request("y", 0, 0))
    decisions = [orjson.loads(line) for line in replay_local(policies, [first, second]).decisions]
    assert [(d["id"], d["tokens"]) for d in decisions] == [
        ("y", 11.0),
        ("a", -1.0),
        ("z", 0.0),
        ("late", -1.0),
    ]


def test_events_without_id_are_named_by_file_and_line(tmp_path: Path, policies: str) -> None:
    """Base name as given, packed or not; empty lines are skipped and counted."""
    event = {key: value for key, value in request("x", 0, 1).items() if key != "id"}
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n  \n" + orjson.dumps(event) + b"\n\n"))
    (decision,) = replay_local(policies, [str(path)]).decisions
    assert orjson.loads(decision)["id"] == "log.jsonl.gz:3"


def test_broken_lines_become_dead_letters_with_their_position_and_bytes(
    tmp_path: Path, policies: str
) -> None:
    """Base name as topic, partition 0, line number from 1, the line's bytes without the newline."""
    broken = b'{"type":"request","items":[]}'
    events = file_of(tmp_path, "e.jsonl", request("a", 0, 1), b"\xff\xfe garbage\r\n", b"\n", broken + b"\n")
    replayed = replay_local(policies, [events])
    letters = [orjson.loads(line) for line in replayed.dead_letters]
    assert [(d["topic"], d["partition"], d["offset"]) for d in letters] == [
        ("e.jsonl", 0, 2),
        ("e.jsonl", 0, 4),
    ]
    assert base64.b64decode(letters[0]["value_base64"]) == b"\xff\xfe garbage\r"
    assert letters[1]["reason"].startswith("ts: missing")
    assert len(replayed.decisions) == 1


def test_policies_of_the_log_count_versions_from_one(tmp_path: Path, policies: str) -> None:
    """The file is version 1; each policy event makes one more, wherever it stands in the files."""
    change = policy(1000, "quotas[user=alice]", quota(2))
    bob = policy(500, "quotas[user=bob]", quota(3))
    broken = policy(600, "quotas[user=bob]", {"controller_mutation_rate": 0})
    requests = [request("a", 0, 0), request("b", 700, 0), request("c", 1000, 0)]
    events = file_of(tmp_path, "e.jsonl", *requests, change, broken, bob)
    decisions = [orjson.loads(line) for line in replay_local(policies, [events]).decisions]
    assert [(d["policy_version"], d["limit"]) for d in decisions] == [(1, 1.0), (2, 1.0), (3, 2.0)]


def test_subjects_are_resolved_whatever_the_event_says(tmp_path: Path, policies: str) -> None:
    """Replay trusts the policies, not the stamp."""
    events = file_of(
        tmp_path, "e.jsonl", request("a", 0, 0, subject="user=mallory"), request("b", 0, 0, user="bob")
    )
    decisions = [orjson.loads(line) for line in replay_local(policies, [events]).decisions]
    assert [d["subject"] for d in decisions] == ["user=alice", ""]


def test_a_dumped_late_mark_is_obeyed(tmp_path: Path, policies: str) -> None:
    """A dump carries over what only the live clock knew."""
    late = request("b", 100, 5, deadline_ms=10, late=True)
    events = file_of(tmp_path, "e.jsonl", request("a", 0, 12), late)
    decision = orjson.loads(replay_local(policies, [events]).decisions[1])
    assert (decision["outcome"], decision["late"], decision["rejected"]) == ("throttle", True, [])


def test_the_summary_counts_events_and_charged_mutations(tmp_path: Path, policies: str) -> None:
    """Per subject: events by outcome, mutations admitted and charged, the longest throttle; dry runs 0."""
    events = file_of(
        tmp_path, "e.jsonl", request("a", 0, 12, 5), request("b", 0, 7, strict=False),
        request("c", 0, 3, validate_only=True), request("d", 20_000, 2), refund(20_000, 0, 4),
        request("e", 0, 3, user="bob"),
    )  # fmt: skip
    summary = summarise(replay_local(policies, [events]).decisions)
    alice = {
        "events": 4, "allowed": 1, "throttled": 1, "rejected": 2, "mutations": 21,
        "longest_throttle_ms": 8000,
    }  # fmt: skip
    assert summary["subjects"]["user=alice"] == alice
    assert summary["subjects"][""]["mutations"] == 3


def test_sums_of_the_summary_stop_at_64_bits(tmp_path: Path, policies: str) -> None:
    """JSON has no larger ones."""
    events = file_of(tmp_path, "e.jsonl", *(request(name, 0, 2**63 - 1, user="bob") for name in "abc"))
    words = ["replay", "--policies", policies, "--events", events, "--out", "/dev/null"]
    assert main([*words, "--summary", str(tmp_path / "s.json")]) == 0
    summary = orjson.loads((tmp_path / "s.json").read_bytes())
    assert summary["subjects"][""]["mutations"] == 2**63 - 1


BACKLOG = {"topic": "t"}


@pytest.mark.parametrize(
    ("kind", "decisions", "expected"),
    [
        (
            "share",
            [
                {"group": "g", "broker": "b", "limits": {"publishRateInMsgs": 5.0}},
                {"group": "g", "broker": "b", "limits": None, "removed": "idle"},
            ],
            {"g/b": {"events": 2, "removed": 1, "last_limits": None}},
        ),
        (
            "dispatch",
            [{"topic": "t", "subscription": "s"} | {"throttle_time_ms": wait} for wait in (0, 900, 400)],
            {"t/s": {"events": 3, "throttled": 2, "longest_throttle_ms": 900}},
        ),
        (
            "limit",
            [{"partition": "p", "limit": limit} for limit in (20, 9, 12)],
            {"p": {"events": 3, "least_limit": 9, "greatest_limit": 20, "last_limit": 12}},
        ),
        (
            "backlog",
            [
                BACKLOG | {"exceeded": ["destination_storage"], "evict": [{}, {}], "backlogSize": 70.0},
                BACKLOG | {"exceeded": [], "evict": [], "backlogSize": 10.0},
            ],
            {"t": {"events": 2, "exceeded": 1, "evictions": 2, "greatest_size": 70.0}},
        ),
    ],
)
def test_the_summary_adds_up_what_each_law_says(
    kind: str, decisions: list[dict[str, object]], expected: dict[str, object]
) -> None:
    """Per subject, in the words of its law."""
    lines = [orjson.dumps({"type": kind, **decision}) for decision in decisions]
    assert summarise(lines) == {"subjects": expected}


def test_the_command_writes_all_files(
    tmp_path: Path, policies: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """--out, --dead-letters and --summary; exit status 0, what was written on stderr."""
    events = file_of(tmp_path, "e.jsonl", request("a", 0, 1), b"nonsense\n")
    out, letters, summary = tmp_path / "out.jsonl", tmp_path / "dead.jsonl", tmp_path / "summary.json"
    words = ["replay", "--policies", policies, "--events", events, "--out", str(out)]
    assert main([*words, "--dead-letters", str(letters), "--summary", str(summary)]) == 0
    assert len(out.read_bytes().splitlines()) == 1
    assert len(letters.read_bytes().splitlines()) == 1
    assert orjson.loads(summary.read_bytes())["subjects"]["user=alice"]["events"] == 1
    assert "1 decisions written" in capsys.readouterr().err


@pytest.mark.parametrize("also", [[], ["--against"]])
def test_an_interrupted_replay_leaves_nothing(
    also: list[str], tmp_path: Path, policies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while it decides: status 1, and no file that was not there before."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    events = file_of(tmp_path, "e.jsonl", request("a", 0, 1))
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(Replay, "decide", interrupted)
    words = ["replay", "--policies", policies, "--events", events, "--out", str(tmp_path / "out.jsonl")]
    assert main([*words, "--summary", str(tmp_path / "s.json"), *also, *([policies] if also else [])]) == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_policy_is_one_however_its_type_is_written() -> None:
    """Both engines have the same policies; JSON may write any letter by its number."""
    change = orjson.dumps(policy(0, "quotas[user=bob]", quota(1)))
    for value in (change, change.replace(b"policy", b"\\u0070olicy")):
        line = Line(file=0, base="e.jsonl", number=1, value=value)
        assert "quotas[user=bob]" in read_timeline({}, [line]).at(T0).entries


def test_two_outputs_are_two_files(tmp_path: Path, policies: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Else the dead letters would take the place of the decisions; nobody reads what goes to /dev/null."""
    events, out = file_of(tmp_path, "e.jsonl", request("a", 0, 1)), str(tmp_path / "out.jsonl")
    words = ["replay", "--policies", policies, "--events", events]
    assert main([*words, "--out", out, "--dead-letters", str(tmp_path / "." / "out.jsonl")]) == 1
    assert "two options name it" in capsys.readouterr().err and not Path(out).exists()
    assert main([*words, "--out", "/dev/null", "--dead-letters", "/dev/null"]) == 0


def test_progress_tells_rate_and_part(tmp_path: Path, policies: str) -> None:
    """As lines of files are read; files of a log that is not in order are read once before."""
    told: list[tuple[int, float]] = []
    files = [file_of(tmp_path, name, request(name, 0, 1), request(f"{name}2", 9, 1)) for name in ("a", "b")]
    with replaying(policies, files[:1], tell=lambda *said: told.append(said)):
        pass
    with replaying(policies, files, tell=lambda *said: told.append(said)):
        pass
    assert told == [(2, 1.0), (4, 1.0)]


def test_the_timeline_of_a_log_is_the_same_for_every_reader(tmp_path: Path) -> None:
    """The Spark engine resolves against it before grouping; broken policies are passed over."""
    change = policy(1000, "quotas[user=alice]", quota(2))
    events = file_of(tmp_path, "e.jsonl", b'{"type":"policy"}\n', change)
    timeline = read_timeline({}, read_lines([events]))
    assert timeline.at(T0 + 999).entries == {}
    assert timeline.at(T0 + 1000).version == 2


def test_want_of_room_names_the_folder(
    tmp_path: Path, policies: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of the file of decisions, beside which a replay writes: a write that fails does not say where."""

    def full(_: Drafts) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Drafts, "finish", full)
    events, out = file_of(tmp_path, "log.jsonl", request("a", 0, 1)), str(tmp_path / "out.jsonl")
    assert main(["replay", "--policies", policies, "--events", events, "--out", out]) == 1
    assert f"weir: {tmp_path}: No space left on device\n" in capsys.readouterr().err
    assert not list(tmp_path.glob(".weir-replay-*"))
