"""Limits proposed from one made-up day, tried on the next: who behaves is not refused, the runaway is held.

On the second day it runs away again, and the tenant that grows asks for twice as much as on the first.
"""

from pathlib import Path
from typing import Any

import orjson
import pytest
from plan_kit import policies_of

from benchmarks.load.day import write
from weir.cli import main

RUNAWAY = "user=etl"
SLOWED = "broker-1"
"""Whom the runaway slows down for all: there they wait for a slot."""


def tried_on_the_next_day(folder: Path, seed: int, *, calm: bool) -> dict[str, Any]:
    """What `weir replay --against --summary` says."""
    days = folder / "first", folder / "next"
    for day, place in enumerate(days, 1):
        place.mkdir()
        write(place, seed, day=day, calm=calm and day == 1)
    log, following = (str(place / "day.jsonl.gz") for place in days)
    limits, summary = str(folder / "proposed.yaml"), folder / "summary.json"
    assert main(["propose", "--events", log, "--headroom", "2", "--out", limits]) == 0
    words = ["--policies", policies_of(folder, "none.yaml"), "--events", following, "--against", limits]
    assert main(["replay", *words, "--out", str(folder / "out.jsonl"), "--summary", str(summary)]) == 0
    told: dict[str, Any] = orjson.loads(summary.read_bytes())
    return told


@pytest.mark.soak
@pytest.mark.parametrize("calm", [True, False])
@pytest.mark.parametrize("seed", range(1, 6))
def test_the_next_day(tmp_path: Path, seed: int, calm: bool) -> None:
    """Only the runaway is refused, nearly always; a few of the others wait; as recorded and if they wait.

    From a day with the runaway in it, and from one on which nobody ran away: there it has the default.
    """
    told = tried_on_the_next_day(tmp_path, seed, calm=calm)
    for rows in (told["entities"], told["clients_that_wait"]["entities"]):
        assert [row["whose"] for row in rows if row["against"]["rejected"]] == [RUNAWAY]
        for row in rows:
            allowed, throttled = (row["against"][name] for name in ("allowed", "throttled"))
            of = allowed + throttled + row["against"]["rejected"]
            if row["whose"] == RUNAWAY:
                assert allowed + throttled < 0.06 * of and of > 20_000
            elif row["whose"] != SLOWED:
                assert throttled < 0.03 * of
