"""A log decided some at a time: the same bytes as all at once, however it is cut and whatever its order."""

import gzip
import os
import random
import subprocess
from collections import Counter
from pathlib import Path

import orjson
import pytest
from law_kit import T0, policy, quota, replay_all, request
from traces_kit import of_traces

from streaming.laws.law import StepContext
from streaming.log import reading, sorted_decisions, stretches
from streaming.log.deciding import Replay
from streaming.log.reading import read_records
from streaming.log.writing import write_lines
from streaming.policy.files import load_policies
from streaming.replay import ReplayResult, in_order, replay_local


@pytest.fixture(autouse=True)
def cut_small(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Few lines at a time, and hardly anything late is kept in memory."""
    # What is in no order costs runs times stretches: a trace has twenty of each at the larger size, too.
    size = 12_000 if "log" in request.fixturenames else 3_000
    for part in (reading, stretches):
        monkeypatch.setattr(part, "READ_AT_ONCE", size)
        monkeypatch.setattr(part, "ROWS_AT_ONCE", 40)
    monkeypatch.setattr(stretches, "SAMPLED", 8)
    monkeypatch.setattr(sorted_decisions, "LATE_MAX", 5)
    monkeypatch.setattr(sorted_decisions, "AT_ONCE", 3)


def lines_of(log: Path) -> list[bytes]:
    return gzip.decompress(log.read_bytes()).splitlines()


def file_of(path: Path, lines: list[bytes]) -> str:
    path.write_bytes(b"\n".join(lines) + b"\n")
    return str(path)


def at_once(policies: str, files: list[str]) -> ReplayResult:
    """The whole log in one step of each law."""
    records = read_records(files)
    context = StepContext(initial=load_policies(policies), replay=True, fail_fast=True, as_decided=False)
    return in_order(records, replay_all(records, context))


@of_traces("mutation/both-defaults", "shares/minute")
def test_a_trace_in_stretches(policies: Path, log: Path) -> None:
    assert replay_local(str(policies), [str(log)]) == at_once(str(policies), [str(log)])


@of_traces("shares/minute")
def test_a_trace_in_any_order_and_number_of_files(policies: Path, log: Path, tmp_path: Path) -> None:
    """Dealt out to three files of the same time, and to two in which nothing is where it was."""
    lines, draw = lines_of(log), random.Random(29)
    dealt = [file_of(tmp_path / f"{number}.jsonl", lines[number::3]) for number in range(3)]
    assert replay_local(str(policies), dealt) == at_once(str(policies), dealt)
    draw.shuffle(lines)
    half = len(lines) // 2
    mixed = [file_of(tmp_path / "a.jsonl", lines[:half]), file_of(tmp_path / "b.jsonl", lines[half:])]
    assert replay_local(str(policies), mixed) == at_once(str(policies), mixed)


@of_traces("dispatch/precise")
def test_a_trace_as_columns_in_any_order(policies: Path, log: Path, tmp_path: Path) -> None:
    events = [orjson.loads(line) for line in lines_of(log) if line.strip()]
    files = [str(tmp_path / "in.parquet"), str(tmp_path / "mixed.parquet"), str(tmp_path / "more.jsonl")]
    write_lines(files[0], map(orjson.dumps, events))
    random.Random(30).shuffle(events)
    write_lines(files[1], map(orjson.dumps, events[::2]))
    file_of(Path(files[2]), [orjson.dumps(event) for event in events[1::2]])
    for some in ([files[0]], files[1:]):
        assert replay_local(str(policies), some) == at_once(str(policies), some)


@pytest.mark.parametrize("as_columns", [True, False])
def test_fields_may_be_called_as_what_runs_keep_beside_them(as_columns: bool, tmp_path: Path) -> None:
    policies = file_of(tmp_path / "policies.yaml", [b"version: 1"])
    names = {"weir.at": 1, "weir.file": 2, "weir.line": 3}
    events = [orjson.dumps(request(f"r{n}", 900 - n, 1) | names) for n in range(300)]
    log = str(tmp_path / ("log.parquet" if as_columns else "log.jsonl"))
    write_lines(log, events)
    assert replay_local(policies, [log]) == at_once(policies, [log])


def test_pipes_are_read_once_whatever_their_order(tmp_path: Path) -> None:
    """As `--events <(zcat a) <(zcat b)` gives them: what is out of order cannot be read again."""
    policies = file_of(tmp_path / "policies.yaml", [b"version: 1"])
    lines = [orjson.dumps(request(f"r{n}", 900 - n, 1)) for n in range(300)]
    files = [file_of(tmp_path / "a.jsonl", lines[::2]), file_of(tmp_path / "b.jsonl", lines[1::2])]
    pipes = [str(tmp_path / "a"), str(tmp_path / "b")]
    for pipe in pipes:
        os.mkfifo(pipe)
    writers = [subprocess.Popen(["cp", file, pipe]) for file, pipe in zip(files, pipes, strict=True)]
    replayed = replay_local(policies, pipes)
    assert [writer.wait(10) for writer in writers] == [0, 0]
    assert replayed == at_once(policies, files) and len(replayed.decisions) == 300


def test_a_change_of_policy_holds_for_all_of_its_time(tmp_path: Path) -> None:
    """It stands behind what it decides, beyond the end of a stretch."""
    policies = tmp_path / "policies.yaml"
    policies.write_text("version: 1\nquotas:\n  - entity: {user: u1}\n    controller_mutation_rate: 1\n")
    lines = [orjson.dumps(request(f"r{number}", 7, 1, user="u1")) for number in range(60)]
    changes = [policy(7, "quotas[user=u1]", quota(2)), policy(5, "quotas[user=u1]", quota(3))]
    log = file_of(tmp_path / "log.jsonl", [*lines, *map(orjson.dumps, changes)])
    replayed = replay_local(str(policies), [log])
    assert replayed == at_once(str(policies), [log])
    assert {orjson.loads(line)["policy_version"] for line in replayed.decisions} == {3}


def test_what_is_applied_late_is_written_in_its_place(tmp_path: Path) -> None:
    """Applied in the order of the log, and of times that are past."""
    policies = tmp_path / "policies.yaml"
    policies.write_text("version: 1\nquotas:\n  - entity: {user: u1}\n    controller_mutation_rate: 1\n")
    events = [
        request(f"r{number}", 900 - number, 1, user="u1", applied_ts=T0 + 1000 + number)
        for number in range(300)
    ]
    log = file_of(tmp_path / "log.jsonl", list(map(orjson.dumps, events)))
    replayed = replay_local(str(policies), [log])
    assert replayed == at_once(str(policies), [log])
    times = [orjson.loads(line)["ts"] for line in replayed.decisions]
    assert times == sorted(times) and len(times) == 300


@pytest.mark.parametrize("order", [stretches.as_it_comes, stretches.by_time])
def test_no_stretch_is_large(order: stretches.Order, tmp_path: Path) -> None:
    """However the log is ordered, what is held at once is bounded; what nobody can use comes once."""
    lines: list[bytes] = []
    for number in range(1000):
        # In order of time, some at the same; and what cannot be used.
        lines.append(orjson.dumps(request(f"r{1000 - number}", number // 3, 1, user=f"u{number % 7}")))
        lines += [b"rubbish %d" % number] if number % 10 == 0 else []
    if order is stretches.by_time:
        random.Random(31).shuffle(lines)
    log, letters = file_of(tmp_path / "log.jsonl", lines), Counter[str]()
    replay = Replay(StepContext(replay=True))
    found = order([log], replay, lambda _, outputs: letters.update(outputs.type), tmp_path)
    sizes = [len(stretch.records) for stretch in found]
    assert max(sizes) < 120
    assert len(sizes) > 20
    assert letters == {"dead_letter": 100}
