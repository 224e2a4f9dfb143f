"""The command `weir simulate concurrency`."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from plan_kit import policies_of

from weir.cli import main
from weir.simulate.command import DEFAULT_OUT

SHORT = ["simulate", "concurrency", "--seconds", "3", "--slow-at", "1", "--slow-for", "1"]


def test_the_same_options_give_the_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    """And another seed gives others."""
    printed = []
    for seed in ("5", "5", "6"):
        assert main([*SHORT, "--json", "--seed", seed]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]
    assert orjson.loads(printed[0])["scenario"]["seed"] == 5


def test_a_table_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The picture lies in the current folder if nothing else is said."""
    monkeypatch.chdir(tmp_path)
    assert main(SHORT) == 0
    assert capsys.readouterr().out.endswith(f"drawn as {DEFAULT_OUT}\n")
    assert (tmp_path / DEFAULT_OUT).read_bytes().startswith(b"\x89PNG")


def test_json_alone_draws_nothing(tmp_path: Path) -> None:
    """Nor does it load what draws, in an interpreter of its own."""
    code = "import sys; from weir.cli import main; main(sys.argv[1:]);assert 'matplotlib' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", code, *SHORT, "--json"],
        cwd=tmp_path, env={"PYTHONPATH": str(Path(__file__).parents[4])}, check=True, capture_output=True,
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_a_partitions_own_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stand last."""
    limits = {"partitions": {"broker-1": {"algorithm": "vegas"}}}
    policies = policies_of(tmp_path, "policies.yaml", backpressure=limits)
    assert main([*SHORT, "--json", "--policies", policies, "--partition", "broker-1"]) == 0
    last = orjson.loads(capsys.readouterr().out)["runs"][-1]
    assert (last["partition"], last["algorithm"], last["windowed"]) == ("broker-1", "vegas", True)
