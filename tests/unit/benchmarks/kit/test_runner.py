"""The benchmarks' runner and what it keeps; that the benchmarks work is shown from end to end."""

import importlib
import io
import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks import __main__ as command
from benchmarks.kit import result as kit
from benchmarks.kit import runner
from benchmarks.kit.machine import cpu_s, machine, process_tree, resident_bytes, versions
from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row
from benchmarks.kit.runner import Options, known, run_all

ROOT = Path(__file__).resolve().parents[4]
ALL_MAX_S = 40 * 60
RUN = {
    "date": "2026-11-21 19:45 UTC",
    "seconds": 61.4,
    "smoke": False,
    "machine": {"cpu": "Some CPU", "cores": 2, "memory_gib": 15.6, "kernel": "6.1.0", "loop_ms": [61.2, 60]},
    "versions": {"python": "3.11.1", "weir": "0123456789"},
}
FOUND = Result(
    name="throughput",
    title="Throughput of the job",
    rows=[
        Row(
            what="job", value=260_000.4, unit="events/s", baseline=6_500, baseline_what="the idiom",
            target=">= 250,000", met=True,
        ),
        Row(what="shuffle", value=1.234, unit="us", target="< 1", met=False),
        Row(what="batches", value=4, unit="", baseline_what="batches that were not to be had"),
    ],
    notes=["One warm-up batch is left out."],
    series={"batch, ms": [3.0, 1.0, 2.0, 4.0], "nothing, ms": []},
    skipped=["gubernator: no go"],
)  # fmt: skip
TABLE = """\
# Throughput of the job

2026-11-21 19:45 UTC, 61 s, on Some CPU, 2 cores, 15.6 GiB, Linux 6.1.0 (a million additions in Python: \
61.2 ms before, 60 ms after); python 3.11.1, weir 0123456789.

| What | Value | Beside | Target |
| --- | --- | --- | --- |
| job | 260,000 events/s | 40 x 6,500: the idiom | >= 250,000, met |
| shuffle | 1.23 us |  | < 1, missed |
| batches | 4 |  |  |

| Samples of | Count | p50 | p90 | p99 | p99.9 | greatest |
| --- | --- | --- | --- | --- | --- | --- |
| batch, ms | 4 | 2 | 4 | 4 | 4 | 4 |

- One warm-up batch is left out.
- Not run: gubernator: no go
"""
MODULE = """\
import sys, time
from benchmarks.kit.result import Result, Row
TITLE, DURATION_S = "Fake", 1
def run(smoke, progress):
    progress.step("half", 0.5)
    {action}
    return Result(name="{name}", title=TITLE, rows=[Row(what="smoke", value=float(smoke), unit="")])
"""
ACTIONS = {"breaks": "raise ValueError('by design')", "hangs": "time.sleep(600)", "works": "pass"}


def test_table_and_json_line(tmp_path: Path) -> None:
    """Both files say the same, ratios and percentiles included, and the last run replaces the one before."""
    line = kit.to_line(FOUND, RUN)
    kit.write(tmp_path, {**line, "title": "an older one"})
    kit.write(tmp_path, line)
    assert (tmp_path / "throughput.md").read_text() == TABLE
    text = (tmp_path / "throughput.jsonl").read_bytes()
    assert text.count(b"\n") == 1 and orjson.loads(text) == line
    assert kit.read(tmp_path) == {"throughput": line}
    assert line["rows"][0]["ratio"] == pytest.approx(40.0, abs=0.001)
    assert line["quantiles"]["batch, ms"][0] == [0.0, 1.0]
    assert line["quantiles"]["batch, ms"][-1] == [100.0, 4.0]
    assert line["machine"] == RUN["machine"] and line["date"] == RUN["date"]


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)])
def test_percentiles_are_samples(percent: float, value: float) -> None:
    """Nearest rank: the value below or at which so many percent of the samples are."""
    assert kit.percentile([float(n) for n in range(1, 101)], percent) == value


def test_no_percentile_of_nothing() -> None:
    """Rather an error than an invented number."""
    with pytest.raises(ValueError, match="no samples"):
        kit.percentile([], 50)


@pytest.mark.parametrize("words", [["nothing"], ["--what"], ["--keep"]])
def test_bad_usage_is_said_in_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2, nothing is run."""
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and said.err.startswith("benchmarks: ") and not said.out


def test_every_benchmark_states_what_it_is() -> None:
    """A title, a duration in whole seconds and a function to run; all of them take half an hour at most."""
    modules = [importlib.import_module(f"benchmarks.{name}") for name in known()]
    for module in modules:
        assert isinstance(module.TITLE, str) and isinstance(module.DURATION_S, int) and callable(module.run)
    assert sum(module.DURATION_S for module in modules) <= ALL_MAX_S


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with one benchmark that works, one that breaks and one that hangs."""
    package = tmp_path / "fake_benchmarks"
    package.mkdir()
    (package / "__init__.py").touch()
    for name, action in ACTIONS.items():
        (package / f"{name}.py").write_text(MODULE.format(name=name, action=action))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    return package.name


@pytest.mark.soak
def test_a_failure_is_named_and_the_others_run(
    fakes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that raises and one that hangs cost nothing but themselves."""
    said: list[str] = []
    options = Options(smoke=False, results=tmp_path / "results", keep=None, package=fakes)
    monkeypatch.setattr(runner, "_limit_s", lambda name, _options: 1.0 if name == "hangs" else 60.0)
    assert known(fakes) == ["breaks", "hangs", "works"]
    assert run_all(known(fakes), options, said.append) == ["breaks", "hangs"]
    assert said[0].startswith("benchmark breaks failed: it ended with status 1")
    assert said[1] == "benchmark hangs failed: it took longer than 1 s and was stopped"
    assert said[2].startswith("# Fake")
    assert list(kit.read(tmp_path / "results")) == ["works"]
    assert kit.read(tmp_path / "results")["works"]["rows"][0]["value"] == 0.0


@pytest.mark.soak
def test_smoke_runs_are_side_by_side(fakes: str, tmp_path: Path) -> None:
    """One of those that start Spark waits for one of the rest, and ends."""
    flag = tmp_path / "flag"
    wait = f"while not __import__('os').path.exists({str(flag)!r}): time.sleep(0.05)"
    (tmp_path / fakes / "scale.py").write_text(MODULE.format(name="scale", action=wait))
    (tmp_path / fakes / "ends.py").write_text(MODULE.format(name="ends", action=f"open({str(flag)!r}, 'w')"))
    results = tmp_path / "results"
    options = Options(smoke=True, results=results, keep=None, package=fakes)
    assert run_all(["scale", "ends"], options, print) == []
    assert [line["rows"][0]["value"] for line in kit.read(results).values()] == [1.0, 1.0]


@pytest.mark.soak
def test_a_failure_costs_its_process_nothing_else(fakes: str, tmp_path: Path) -> None:
    """In a smoke run several share one: those before and after the one that fails have results."""
    (tmp_path / fakes / "after.py").write_text(MODULE.format(name="after", action="pass"))
    options = Options(smoke=True, results=tmp_path / "results", keep=None, package=fakes)
    said: list[str] = []
    assert run_all(["works", "breaks", "after"], options, said.append) == ["breaks"]
    assert said[1].startswith("benchmark breaks failed: it ended with status 1")
    assert list(kit.read(tmp_path / "results")) == ["after", "works"]


def test_nothing_is_left_running_when_it_is_broken_off(fakes: str, tmp_path: Path) -> None:
    """Ctrl-C takes down what runs."""

    def say(text: str) -> None:
        raise KeyboardInterrupt

    (tmp_path / fakes / "scale.py").write_text(MODULE.format(name="scale", action="pass"))
    options = Options(smoke=True, results=None, keep=None, package=fakes)
    with pytest.raises(KeyboardInterrupt):
        run_all(["hangs", "scale"], options, say)
    assert not [pid for pid in process_tree(os.getpid()) if b"fake_benchmarks" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_exit_status_says_whether_all_worked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 or 1; a smoke run writes no results, --keep redirects them; only kept ones go into the pages."""
    seen: list[Any] = []
    outcome: list[str] = []

    def fake(names: list[str], options: Options, say: object) -> list[str]:
        seen.append((names, options.smoke, options.results, options.keep))
        return outcome

    monkeypatch.setattr(command, "run_all", fake)
    monkeypatch.setattr(command, "known", lambda: ["one", "two"])
    monkeypatch.setattr(command, "update", lambda: seen.append("pages"))
    assert command.main([]) == 0
    assert command.main(["two", "--smoke"]) == 0
    outcome.append("two")
    assert command.main(["--keep", str(tmp_path)]) == 1
    assert command.main(["--readme"]) == 0
    assert seen == [
        (["one", "two"], False, ROOT / "benchmarks" / "results", None),
        "pages",
        (["two"], True, None, None),
        (["one", "two"], False, tmp_path, tmp_path),
        "pages",
    ]


def test_progress_in_a_log_has_a_line_a_step() -> None:
    """No carriage returns where nobody looks at a terminal; a step said twice is written once."""
    stream = io.StringIO()
    with Progress(60, name="laws", stream=stream) as progress:
        progress.step("first", 0.0)
        progress.step("first", 0.25)
        progress.step("second", 0.5)
        progress.step("third", 2.0)
    lines = stream.getvalue().splitlines()
    assert [line.split("  ")[-1] for line in lines] == ["first", "second", "third"]
    assert lines[0] == "laws         0%    0 s of about 60 s  first"
    assert lines[1].startswith("laws        50% ") and lines[2].startswith("laws       100% ")
    assert "\r" not in stream.getvalue() and "\x1b" not in stream.getvalue()


def test_progress_on_a_terminal_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn over and over, whatever a step is called."""
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    with Progress(60, name="laws", stream=stream) as progress:
        progress.step("topic [a-z]", 0.5)
        progress.step("done", 1.0)
    shown = stream.getvalue()
    assert shown.count("\n") == 1 and "laws" in shown and "of about 60 s done" in shown


def test_the_machine_says_what_it_is() -> None:
    """Everything that a result is worthless without."""
    about = machine()
    assert about["cores"] >= 1 and about["memory_gib"] > 0 and about["cpu"] and about["kernel"]
    assert set(versions()) == {"python", "java", "kafka", "spark", "pyarrow", "numba", "weir"}
    assert all(versions().values())
    assert os.getpid() in process_tree(os.getpid())
    assert cpu_s(os.getpid()) > 0 and resident_bytes(os.getpid()) > 1_000_000
