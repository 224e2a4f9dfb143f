"""Figures of runs: the schema of `--json`, and the table."""

from typing import Any

import orjson
import pytest

from weir.simulate.figures import contender, contenders, figures, run_figures, table
from weir.simulate.run import Outcome, Second
from weir.simulate.scenario import Scenario

SHORT = Scenario(seconds=9, slow_at=3, slow_for=3)
PHASE = {
    "latency_ms", "p99_ms", "rtt_ms", "limit", "inflight",
    "arrived_per_s", "completed_per_s", "rejected_per_s",
}  # fmt: skip


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    """All algorithms, and somebody's own settings."""
    return figures(
        SHORT, [*contenders(), contender({"algorithm": "fixed", "fixed": {"limit": 7}}, "broker-1")]
    )


def test_every_algorithm_is_there(result: dict[str, Any]) -> None:
    """With its window and without, a fixed limit once, and the partition."""
    names = [(run["algorithm"], run["windowed"], run["partition"]) for run in result["runs"]]
    others = ("aimd", "aimd-plain", "vegas", "gradient", "gradient2")
    assert len(names) == 12 and names[-1] == ("fixed", False, "broker-1")
    assert set(names[:-1]) == {("fixed", False, None)} | {
        (name, windowed, None) for name in others for windowed in (True, False)
    }


def test_the_schema_of_the_figures(result: dict[str, Any]) -> None:
    """As docs/contract.md 4 says, and plain JSON."""
    assert orjson.loads(orjson.dumps(result)) == result
    assert result.keys() == {"scenario", "phases", "runs"}
    assert result["phases"] == {"calm": [0, 3], "slow": [3, 6], "recovery": [6, 9]}
    for run in result["runs"]:
        assert run.keys() == {
            "algorithm", "windowed", "partition", "phases", "recovered_s", "total", "series",
        }  # fmt: skip
        assert [*run["phases"]] == [*result["phases"]]
        assert all(phase.keys() == PHASE for phase in run["phases"].values())
        assert all(len(values) == 9 for values in run["series"].values())
        total = run["total"]
        ended = total["completed"] + total["rejected"] + total["inflight"] + total["waiting"]
        assert total["arrived"] == ended == sum(run["series"]["arrived"])


def test_phases_are_means_of_their_seconds(result: dict[str, Any]) -> None:
    """Of the series, which anybody can check."""
    run = result["runs"][-1]
    slow = run["phases"]["slow"]
    assert slow["completed_per_s"] == pytest.approx(sum(run["series"]["completed"][3:6]) / 3, abs=0.001)
    assert slow["inflight"] == pytest.approx(sum(run["series"]["inflight"][3:6]) / 3, abs=0.001)
    assert slow["limit"] == 7 and slow["p99_ms"] >= slow["latency_ms"] >= slow["rtt_ms"]


@pytest.mark.parametrize(("count", "p99_ms"), [(1, 1), (99, 99), (100, 99), (101, 100), (200, 198)])
def test_the_p99_is_by_nearest_rank(count: int, p99_ms: int) -> None:
    """What 99 of 100 do not exceed; it was the maximum."""
    second = Second(latencies_ns=[ms * 10**6 for ms in range(count, 0, -1)])
    calm = Scenario(seconds=1, slow_at=0, slow_for=0)
    phases = run_figures(calm, contender({}), Outcome([second], 0, 0, 0))["phases"]
    assert phases["calm"]["p99_ms"] == p99_ms


def test_nothing_completed_is_null() -> None:
    """A broker that stands still has no latency, and never comes back while it does."""
    still = Scenario(seconds=6, slow_at=1, slow_for=5, slow_factor=1e6)
    result = figures(still, [contender({})])
    assert result["runs"][0]["series"]["latency_ms"][-1] is None
    assert result["runs"][0]["recovered_s"] is None
    nothing = figures(Scenario(seconds=1, slow_at=0, slow_for=0, arrival_rate=0.001), [contender({})])
    assert nothing["runs"][0]["phases"]["calm"]["latency_ms"] is None
    assert "-" in table(nothing)[1]


def test_the_table_has_a_line_for_each_run(result: dict[str, Any]) -> None:
    """All of one width, below one head; a long number stands apart all the same."""
    lines = table(result)
    assert len(lines) == 1 + len(result["runs"]) and len({len(line) for line in lines}) == 1
    assert lines[-1].startswith("broker-1: fixed")
    large = figures(SHORT, [contender({"algorithm": "fixed", "fixed": {"limit": 10**9}})])
    assert table(large)[1].split().count("1000000000") == 3
