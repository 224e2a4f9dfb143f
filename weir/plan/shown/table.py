"""A plan in the terminal: who is hurt and who is helped, those who are hurt most first."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group
from rich.text import Text

from streaming.contract.printable import printable
from weir.plan.comparison import HELPED, HURT, SAME, Row, flips
from weir.plan.delays import PERCENTILES
from weir.plan.run import Planned
from weir.plan.shown.words import changed, duration, entries, headline, overshot, remarks
from weir.plan.sides import Plan
from weir.plan.verdicts import ALLOWED, REFUSED, THROTTLED
from weir.top.console import TableConsole, table_of

SHOWN: Final = 25
"""Rows of the table; the JSON and the page have more."""
_WIDE: Final = 140
"""Columns from which on there is room for the entries."""
_STYLES: Final = {HURT: "red", HELPED: "green", SAME: ""}
_COLUMNS: Final = (
    "", "who", "allowed", "throttled", "rejected", *PERCENTILES, "if they wait: rejected", "and p99", "by",
)  # fmt: skip
_NARROW: Final = ("", "who", "rejected", "p99", "if they wait: rejected")
_TEXTS: Final = {"": 4, "who": 14, "by": 12}
"""Columns of words, and how narrow they may get."""


def show(planned: Planned) -> None:
    """Print the plans."""
    console = TableConsole()
    for each in planned.plans:
        console.print(shown(each, planned.proven, console.width))


def shown(plan: Plan, proven: int | None, width: int) -> Group:
    """What to print of a plan.

    Args:
        plan: what differs.
        proven: how many recorded decisions came out again; None: none were given.
        width: of the terminal, columns.
    """
    rows = [row for row in plan.rows if row.fate != SAME]
    styled = ((_cells(row, plan), _STYLES[row.fate]) for row in rows[:SHOWN])
    table = table_of(_COLUMNS if width >= _WIDE else _NARROW, _TEXTS, styled)
    return Group(*map(Text, _lines(plan, proven, rows)), *([table] if rows else []), *_rest(rows))


def _lines(plan: Plan, proven: int | None, rows: Sequence[Row]) -> Iterator[str]:
    yield f"{printable(plan.name)}: {headline(plan)}"
    yield from map(printable, remarks(plan, proven))
    recorded, waiting = flips(plan.rows)[0], flips(plan.waiting_rows.values())[0]
    yield f"Newly refused: {recorded} as recorded, {waiting} if clients wait as told and try again."
    for row in rows:
        beyond = overshot(row)
        if beyond:
            yield printable(f"{row.whose}: {beyond}")


def _cells(row: Row, plan: Plan) -> dict[str, str]:
    """What stands in each column."""
    waiting = plan.waiting_rows.get((row.law, row.whose), row)
    counts = (changed(row.counts.outcomes[:, outcome].tolist()) for outcome in (ALLOWED, THROTTLED, REFUSED))
    delays = [changed((side[name] for side in row.delay_ms), duration) for name in PERCENTILES]
    waits = changed((side["p99"] for side in waiting.delay_ms), duration)
    refused = changed(waiting.counts.outcomes[:, REFUSED].tolist())
    who = f"{row.whose or '(not limited)'} {row.law}"
    return dict(zip(_COLUMNS, (row.fate, who, *counts, *delays, refused, waits, entries(row)), strict=True))


def _rest(rows: Sequence[Row]) -> list[Text]:
    if not rows:
        return [Text("Nobody is hurt, and nobody is helped.")]
    more = len(rows) - SHOWN
    return [Text(f"and {more} more, in --summary and --report")] if more > 0 else []
