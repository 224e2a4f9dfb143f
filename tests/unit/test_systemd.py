"""Units of systemd say what our own commands understand."""

from pathlib import Path

import pytest

from weir.cli import build_parser

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
