"""The reference traces of the backlog law, compared as their README says."""

import gzip
from pathlib import Path

import orjson
import pytest
from broker_law_kit import replay

from streaming.policy.files import load_policies

FOLDER = Path(__file__).parent / "backlog"
NAMES = sorted(path.name.removesuffix(".policies.yaml") for path in FOLDER.glob("*.policies.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_is_judged_as_its_reference_says(name: str) -> None:
    """Every expected field of every decision, in order; sizes within 1e-6 relative, more fields are fine."""
    with gzip.open(FOLDER / f"{name}.events.jsonl.gz") as stream:
        events = [orjson.loads(line) for line in stream]
    with gzip.open(FOLDER / f"{name}.expected.jsonl.gz") as stream:
        expected = [orjson.loads(line) for line in stream]
    found = replay(events, load_policies(str(FOLDER / f"{name}.policies.yaml")))
    assert len(found) == len(expected) > 0
    for number, (want, got) in enumerate(zip(expected, found, strict=True), start=1):
        size = want.pop("backlogSize")
        assert got["backlogSize"] == pytest.approx(size, rel=1e-6, abs=1e-9), f"{name} line {number}"
        assert {key: got[key] for key in want} == want, f"{name} line {number}"
