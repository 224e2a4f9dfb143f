"""The reference traces of the mutation law, compared as their README says."""

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest

from streaming.replay import replay_local

FOLDER = Path(__file__).parent / "mutation"
NAMES = sorted(path.name.removesuffix(".policies.yaml") for path in FOLDER.glob("*.policies.yaml"))


def assert_same(expected: Any, found: Any, where: str) -> None:
    """Doubles within 1e-6 relative, all else exactly."""
    if isinstance(expected, float) and isinstance(found, float | int):
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-9), where
    else:
        assert found == expected, where


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_is_decided_as_its_reference_says(name: str) -> None:
    """Every expected field of every decision, in order; more fields are fine."""
    replayed = replay_local(str(FOLDER / f"{name}.policies.yaml"), [str(FOLDER / f"{name}.events.jsonl.gz")])
    with gzip.open(FOLDER / f"{name}.expected.jsonl.gz") as stream:
        expected = [orjson.loads(line) for line in stream]
    assert len(expected) == len(replayed.decisions)
    for number, (want, line) in enumerate(zip(expected, replayed.decisions, strict=True), start=1):
        found = orjson.loads(line)
        for key, value in want.items():
            assert_same(value, found.get(key), f"{name} line {number} {key}")
    assert replayed.dead_letters == []
