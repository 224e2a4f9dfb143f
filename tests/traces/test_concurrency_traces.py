"""The limits of Netflix concurrency-limits, sample by sample (parameters in concurrency/README)."""

import csv
from pathlib import Path
from typing import Any

import pytest
from event_kit import T0, Event
from usage_kit import limit_policy, replay

FOLDER = Path(__file__).parent / "concurrency"
AIMD = {"initialLimit": 100, "minLimit": 1, "maxLimit": 1000, "backoffRatio": 0.9, "requestTimeout": "200ms"}
VEGAS = {"alpha": 3, "beta": 6, "initialLimit": 20, "maxLimit": 1000, "smoothing": 1.0}
VEGAS_NO_PROBE = VEGAS | {"probeMultiplier": 2_147_483_647}
VEGAS_ROOTS = VEGAS_NO_PROBE | {"alpha": "3*log10", "beta": "6*log10", "threshold": "log10"}
GRADIENT = {"minLimit": 10, "initialLimit": 20, "maxLimit": 1000, "rttTolerance": 2.0, "probeInterval": -1}
GRADIENT2 = {"minLimit": 10, "initialLimit": 20, "maxLimit": 200, "rttTolerance": 2.0, "longWindow": 600}
PARAMETERS: dict[str, tuple[str, dict[str, Any]]] = {
    "fixed": ("fixed", {"limit": 20}),
    "aimd_plain": ("aimd-plain", AIMD),
    "aimd_plain_netflix_bounds": (
        "aimd-plain",
        AIMD | {"initialLimit": 20, "minLimit": 20, "maxLimit": 200, "requestTimeout": "100ms"},
    ),
    "aimd_zeebe": ("aimd", AIMD),
    "aimd_zeebe_tight": (
        "aimd",
        {"initialLimit": 30, "minLimit": 5, "maxLimit": 60, "backoffRatio": 0.75, "requestTimeout": "60ms"},
    ),
    "vegas_zeebe_noprobe": ("vegas", VEGAS_NO_PROBE),
    "vegas_zeebe_probe": ("vegas", VEGAS | {"probeMultiplier": 4, "probeJitter": 0.75}),
    "vegas_zeebe_probe30": ("vegas", VEGAS | {"probeMultiplier": 30, "probeJitter": 0.5}),
    "vegas_netflix_noprobe": ("vegas", VEGAS_ROOTS),
    "vegas_netflix_smooth_noprobe": (
        "vegas",
        VEGAS_ROOTS | {"initialLimit": 150, "maxLimit": 260, "smoothing": 0.3},
    ),
    "gradient_zeebe": ("gradient", GRADIENT),
    "gradient_zeebe_probe60": ("gradient", GRADIENT | {"probeInterval": 60}),
    "gradient_netflix": ("gradient", GRADIENT | {"minLimit": 1, "initialLimit": 50}),
    "gradient2_zeebe": ("gradient2", GRADIENT2),
    "gradient2_short": ("gradient2", GRADIENT2 | {"rttTolerance": 1.0, "longWindow": 50}),
    "gradient2_netflix": ("gradient2", GRADIENT2 | {"minLimit": 20, "rttTolerance": 1.5}),
    "windowed_aimd_zeebe": ("aimd", AIMD),
    "windowed_aimd_zeebe_over": ("aimd", AIMD),
    "windowed_vegas_zeebe_noprobe": ("vegas", VEGAS_NO_PROBE),
    "windowed_gradient_zeebe": ("gradient", GRADIENT),
    "windowed_gradient2_zeebe": ("gradient2", GRADIENT2),
    "windowed_aimd_plain_drops": ("aimd-plain", AIMD),
}


def event_of(row: dict[str, str]) -> Event:
    """A row of a trace as an event; the windowed ones name their start."""
    event = {
        "type": "latency",
        "id": row["i"],
        "ts": T0 + int(row["i"]),
        "partition": "p",
        "rtt_ns": int(row["rtt_ns"]),
        "inflight": int(row["inflight"]),
        "did_drop": row["did_drop"] == "1",
    }
    return event | ({"start_ns": int(row["start_ns"])} if "start_ns" in row else {})


def test_every_trace_has_its_parameters() -> None:
    """No file is left out."""
    assert {path.stem for path in FOLDER.glob("*.csv")} == set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_limit_is_the_librarys(name: str) -> None:
    """Row by row; the first difference is named."""
    algorithm, keys = PARAMETERS[name]
    policies = limit_policy(algorithm=algorithm, useWindowed=name.startswith("windowed"), **{algorithm: keys})
    with (FOLDER / f"{name}.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    found = [decision["limit"] for decision in replay([event_of(row) for row in rows], policies)]
    expected = [int(row["limit"]) for row in rows]
    different = [i for i, (got, want) in enumerate(zip(found, expected, strict=True)) if got != want]
    assert not different, f"row {different[0]}: {found[different[0]]} instead of {expected[different[0]]}"
