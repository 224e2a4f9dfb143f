"""The reference traces of the laws that replay files, through the engine that people replay them with."""

import gzip
import math
from pathlib import Path
from typing import Any

import orjson
from traces_kit import TRACES, of_traces

from streaming.replay import replay_local


@of_traces(*TRACES)
def test_a_trace_is_decided_as_its_reference_says(policies: Path, log: Path) -> None:
    """Every expected field of every decision, in order; more fields are fine."""
    expected_file = policies.with_name(policies.name.replace("policies.yaml", "expected.jsonl.gz"))
    expected = [orjson.loads(line) for line in gzip.decompress(expected_file.read_bytes()).splitlines()]
    replayed = replay_local(str(policies), [str(log)])
    assert len(replayed.decisions) == len(expected) > 0
    for number, (wanted, line) in enumerate(zip(expected, replayed.decisions, strict=True), start=1):
        found = orjson.loads(line)
        for key, value in wanted.items():
            assert agrees(found[key], value), f"line {number}: {key} of {found} instead of {value}"
    assert replayed.dead_letters == []


def agrees(found: Any, wanted: Any) -> bool:
    """Doubles within 1e-6 relative, all else exactly."""
    if isinstance(wanted, float):
        return math.isclose(found, wanted, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(agrees(found[key], wanted[key]) for key in wanted)
    return bool(found == wanted)
