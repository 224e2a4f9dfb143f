"""Units of systemd say what our own commands understand."""

from pathlib import Path

import pytest

from weir.cli import TAKEN_OVER, build_parser

UNITS = sorted((Path(__file__).resolve().parents[2] / "compose" / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_every_start_is_understood(unit: Path) -> None:
    """Without the words that /etc/weir/weir.env may add."""
    (line,) = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    program, *words = line.removeprefix("ExecStart=").split()
    assert program == "/opt/weir/bin/weir"
    assert words.pop().endswith("_ARGS")
    args = build_parser(words[0]).parse_args(words)
    assert args.command == words[0] == unit.stem.removeprefix("weir-").rstrip("@")
    # Units are copied from host to host, and two proxies of one name are one to all others.
    assert getattr(args, "id", None) in (None, "%H-%i")
    assert args.settings == "/etc/weir/weir.yaml" and args.ready_file is not None


def test_a_collector_that_was_taken_over_is_not_started_again() -> None:
    """Else two machines would take it from each other for ever."""
    unit = (UNITS[0].parent / "weir-collect.service").read_text().splitlines()
    assert f"RestartPreventExitStatus={TAKEN_OVER}" in unit
