"""`weir proxy`: what it refuses before it starts anything."""

from pathlib import Path
from typing import Any

import pytest

from weir import cli


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workers", "0"], "--workers: expected 1 to 64"),
        (["--pulsar", "nonsense"], "--pulsar: 'nonsense' is not HOST:PORT"),
        (["--kafka", "nonsense", "--pulsar", "b:6650"], "--kafka: 'nonsense' is not HOST:PORT"),
        # Each would refuse clients that asked another one where their topic is.
        (["--pulsar", "b:6650", "--workers", "2"], "--workers with --pulsar needs pulsar.targets"),
    ],
)
def test_what_cannot_be(words: list[str], said: str, capsys: Any) -> None:
    """Status 2, and one line."""
    assert cli.main(["proxy", *words]) == 2
    assert said in capsys.readouterr().err


def test_wrong_settings_of_pulsar(tmp_path: Path, capsys: Any) -> None:
    """The section `pulsar` is read with the line of every mistake."""
    file = tmp_path / "weir.yaml"
    file.write_text("pulsar:\n  targets: none\n")
    assert cli.main(["proxy", "--pulsar", "b:6650", "--settings", str(file)]) == 2
    assert "weir.yaml:2: pulsar.targets" in capsys.readouterr().err
