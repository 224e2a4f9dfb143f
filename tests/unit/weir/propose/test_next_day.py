"""Limits proposed from one made-up day, tried on the next: who behaves is not refused, the runaway is held.

On the second day it runs away again, and the tenant that grows asks for twice as much as on the first.
"""

from pathlib import Path

import pytest
from plan_kit import policies_of

from benchmarks.load.day import write
from weir.plan.comparison import Row
from weir.plan.run import plan
from weir.plan.verdicts import ALLOWED, REFUSED, THROTTLED
from weir.propose.run import run
from weir.propose.told import policies_of as text_of

HEADROOM = 2.0
RUNAWAY = "user=etl"
SLOWED = "broker-1"
"""Whom the runaway slows down for all: there they wait for a slot."""


def rows_of_the_next_day(folder: Path, seed: int, *, calm: bool) -> tuple[list[Row], list[Row]]:
    """Who is hurt, as recorded and if clients wait."""
    days = folder / "first", folder / "next"
    for day, place in enumerate(days, 1):
        place.mkdir()
        write(place, seed, day=day, calm=calm and day == 1)
    log, following = (str(place / "day.jsonl.gz") for place in days)
    (folder / "proposed.yaml").write_text(text_of(run([log], HEADROOM, None)))
    found = plan(policies_of(folder, "none.yaml"), [following], [str(folder / "proposed.yaml")]).plans[0]
    return found.rows, list(found.waiting_rows.values())


def check(rows: list[Row]) -> None:
    """Only the runaway is refused, nearly always; a few of the others wait."""
    assert [row.whose for row in rows if row.counts.outcomes[1][REFUSED]] == [RUNAWAY]
    for row in rows:
        of, own = int(row.counts.outcomes[1].sum()), row.counts.outcomes[1]
        if row.whose == RUNAWAY:
            assert own[ALLOWED] + own[THROTTLED] < 0.06 * of and of > 20_000
        elif row.whose != SLOWED:
            assert own[THROTTLED] < 0.03 * of


def test_the_next_day(tmp_path: Path) -> None:
    """From a day with the runaway in it."""
    for rows in rows_of_the_next_day(tmp_path, 1, calm=False):
        check(rows)


@pytest.mark.soak
@pytest.mark.parametrize("calm", [True, False])
@pytest.mark.parametrize("seed", range(2, 6))
def test_the_next_day_of_others(tmp_path: Path, seed: int, calm: bool) -> None:
    """Other traffic, and from a day on which nobody ran away: the runaway is new, and has the default."""
    for rows in rows_of_the_next_day(tmp_path, seed, calm=calm):
        check(rows)
