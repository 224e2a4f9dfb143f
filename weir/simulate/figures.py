"""What runs come to in figures: those of each second and of each phase, as JSON and as a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Final

from streaming.contract.fields import INT64_MAX
from streaming.laws.concurrency.settings import LimitSettings
from streaming.policy.concurrency_schema import LimitAlgorithm
from weir.simulate.run import Outcome, Second, simulate
from weir.simulate.scenario import NS, Scenario

RECOVERED: Final = 0.9
"""The part of the calm throughput that counts as recovered."""
_NS_PER_MS: Final = 1e6
_DECIMALS: Final = 3
_TABLE: Final = {"p99_ms": 8, "completed_per_s": 8, "rejected_per_s": 8, "limit": 7}
"""Figures of a phase that stand in the table after its latency, and their widths."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Settings that are tried.

    Attributes:
        settings: all of them.
        windowed: whether a window gathers samples first.
        partition: whose they are; None: an algorithm's defaults.
    """

    settings: LimitSettings
    windowed: bool
    partition: str | None = None


def contenders() -> Iterator[Contender]:
    """Every algorithm at its defaults, with its window and then without; a fixed limit has none."""
    for algorithm in LimitAlgorithm:
        for windowed in (True, False):
            if windowed or algorithm != LimitAlgorithm.FIXED:
                yield contender({"algorithm": algorithm, "useWindowed": windowed})


def contender(value: Mapping[str, Any], partition: str | None = None) -> Contender:
    """One, of a checked entry of `backpressure.partitions`."""
    settings = LimitSettings.of(value)
    return Contender(settings, bool(settings.row["windowed"][0]), partition)


def figures(scenario: Scenario, tried: Sequence[Contender]) -> dict[str, Any]:
    """Run them all; the result is what `--json` prints (docs/contract.md 4)."""
    return {
        "scenario": asdict(scenario),
        "phases": {name: list(span) for name, span in scenario.phases().items()},
        "runs": [run_figures(scenario, each, simulate(scenario, each.settings)) for each in tried],
    }


def run_figures(scenario: Scenario, tried: Contender, outcome: Outcome) -> dict[str, Any]:
    """Those of one run."""
    seconds = outcome.seconds
    return {
        "algorithm": tried.settings.algorithm.value,
        "windowed": tried.windowed,
        "partition": tried.partition,
        "phases": {name: _phase(seconds[start:end]) for name, (start, end) in scenario.phases().items()},
        "recovered_s": _recovered(scenario, seconds),
        "total": {
            **{name: sum(counts) for name, counts in _counted(seconds)},
            "inflight": outcome.inflight,
            "waiting": outcome.waiting,
            "most_above_limit": outcome.most_above,
        },
        "series": {
            "limit": [second.limit for second in seconds],
            "inflight": [rounded(second.inflight_ns / NS) for second in seconds],
            "latency_ms": [_mean_ms(second.latencies_ns) for second in seconds],
            **dict(_counted(seconds)),
        },
    }


def _phase(seconds: Sequence[Second]) -> dict[str, float | None]:
    """Means over a phase, and p99 by nearest rank; times are null if nothing was completed in it."""
    length = len(seconds)
    latencies = sorted(latency for second in seconds for latency in second.latencies_ns)
    return {
        "latency_ms": _mean_ms(latencies),
        "p99_ms": rounded(latencies[-(-len(latencies) * 99 // 100) - 1] / _NS_PER_MS) if latencies else None,
        "rtt_ms": _mean_ms([rtt for second in seconds for rtt in second.rtts_ns]),
        **{f"{name}_per_s": rounded(sum(counts) / length) for name, counts in _counted(seconds)},
        "limit": rounded(fmean(second.limit for second in seconds)),
        "inflight": rounded(sum(second.inflight_ns for second in seconds) / NS / length),
    }


def _counted(seconds: Sequence[Second]) -> Iterator[tuple[str, list[int]]]:
    """What is counted of requests, and how many in each second."""
    for name in ("arrived", "completed", "rejected"):
        yield name, [getattr(second, name) for second in seconds]


def _recovered(scenario: Scenario, seconds: Sequence[Second]) -> int | None:
    """Seconds until a whole one had RECOVERED of the calm throughput again; null: none had, or no phase."""
    phases = scenario.phases()
    if phases.keys() != {"calm", "slow", "recovery"}:
        return None
    calm = fmean(second.completed for second in seconds[: scenario.slow_at])
    start, end = phases["recovery"]
    good = (at for at in range(start, end) if seconds[at].completed >= RECOVERED * calm)
    return next((at - start + 1 for at in good), None)


def _mean_ms(times_ns: Sequence[int]) -> float | None:
    return rounded(sum(times_ns) / len(times_ns) / _NS_PER_MS) if times_ns else None


def rounded(value: float) -> float:
    """As figures are told; they stop where JSON's numbers do."""
    return round(min(value, INT64_MAX), _DECIMALS)


def title(run: dict[str, Any]) -> str:
    """How a run is named: its algorithm, and the partition whose settings it has."""
    return run["algorithm"] if run["partition"] is None else f"{run['partition']}: {run['algorithm']}"


def table(result: dict[str, Any]) -> list[str]:
    """Lines of text: a run in each, its phases beside each other."""
    phases = list(result["phases"])
    width = max(len(title(run)) for run in result["runs"])
    head = "".join(f"  {name:<10}{'p99':>8}{'done/s':>8}{'rej./s':>8}{'limit':>7}" for name in phases)
    lines = [f"{'':<{width}}  samples {head}"]
    for run in result["runs"]:
        cells = "".join(
            f"  {_cell(each['latency_ms'], 7)} ms"
            + "".join(_cell(each[name], width) for name, width in _TABLE.items())
            for each in run["phases"].values()
        )
        lines.append(f"{title(run):<{width}}  {'windowed' if run['windowed'] else 'each':<8}{cells}")
    return lines


def _cell(value: float | None, width: int) -> str:
    return f" {'-' if value is None else format(value, '.0f'):>{width - 1}}"
