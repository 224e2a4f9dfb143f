"""The command `weir simulate failures`, on some minutes of the made-up day."""

from pathlib import Path
from xml.etree import ElementTree

import orjson
import pytest

from benchmarks.load.day import MIDNIGHT_MS, RUNAWAY_MS, TOMORROW, Day
from streaming.laws.registry import LAWS
from weir.cli import main
from weir.simulate.command import NAMES
from weir.simulate.failures.scenario import SCENARIOS, SPANS

AT_MS = MIDNIGHT_MS + RUNAWAY_MS[0] + 60_000
BEFORE_MS, AFTER_MS = 90_000, 150_000
POLICIES = TOMORROW.replace("producer_request_hold}", "producer_request_hold, actions: true}")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute and a bit of each law: reports come each minute."""
    for law in LAWS.by_name:
        monkeypatch.setitem(SPANS, law, (20, 40, 20))


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command, with a few minutes of the day while the runaway runs, and a line that is none."""
    folder = tmp_path_factory.mktemp("day")
    events = [event for event in Day(1, tenants=2).events() if -BEFORE_MS <= event["ts"] - AT_MS < AFTER_MS]
    lines = [*map(orjson.dumps, events), b"{"]
    (folder / "day.jsonl").write_bytes(b"\n".join(lines))
    (folder / "policies.yaml").write_text(POLICIES)
    words = ["simulate", "failures", "--policies", str(folder / "policies.yaml")]
    return [*words, "--events", str(folder / "day.jsonl"), "--at", str(AT_MS), "--away", "40"]


def test_the_names_are_those_of_the_scenarios() -> None:
    """The command knows them without loading a law."""
    assert NAMES == SCENARIOS


def test_all_laws_and_scenarios_have_a_row(
    day: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a picture, if one is asked for."""
    words = [*day, "--json", "--only", "job-away", "clocks-apart"]
    assert main([*words, "--out", str(tmp_path / "out.svg")]) == 0
    first = capsys.readouterr()
    assert first.err == "1 lines could not be used\n"
    result = orjson.loads(first.out)
    told = [(row["scenario"], row["law"]) for row in result["rows"]]
    assert told == [(one, law) for one in ("job-away", "clocks-apart") for law in LAWS.by_name]
    assert {row["verdict"] for row in result["rows"]} <= {"holds", "not touched", "nothing limited"}
    assert result["rows"][0]["whose"] == "user=etl" and result["unusable_lines"] == 1
    svg = (tmp_path / "out.svg").read_text()
    assert ElementTree.fromstring(svg).tag.endswith("svg") and "job away 40 s" in svg


@pytest.mark.soak
def test_a_seed_says_all(day: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same bytes each time, whether drawn or not; another seed gives others."""
    told = []
    for more in ([], ["--out", str(tmp_path / "out.svg")], ["--seed", "2"]):
        assert main([*day, "--json", "--only", "job-away", "clocks-apart", *more]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1] != told[2]


@pytest.mark.soak
def test_a_table(day: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For people, with where the picture is."""
    assert main([*day, "--only", "none", "--out", str(tmp_path / "out.svg")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(LAWS.by_name) + 2 and lines[-1] == f"drawn as {tmp_path / 'out.svg'}"
    assert lines[1].startswith("nothing fails             mutation    user=etl ")


def test_what_is_wrong_is_named(day: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not there, and a folder."""
    assert main([*day, "--out", str(tmp_path / "none" / "out.svg")]) in (1, 2)
    assert main([*day[:4], "--events", str(tmp_path / "none.jsonl")]) == 1
    assert "none.jsonl: cannot be read" in capsys.readouterr().err


def test_an_empty_log(day: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is limited where nothing happened, and a picture says so."""
    (tmp_path / "empty.jsonl").write_bytes(b"\n")
    words = [*day[:4], "--events", str(tmp_path / "empty.jsonl"), "--out", str(tmp_path / "out.svg")]
    assert main(words) == 0
    assert capsys.readouterr().out.count("nothing limited: ") == 33
