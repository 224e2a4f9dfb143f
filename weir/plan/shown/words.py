"""What differs in words and numbers for people."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from weir.logs.times import moment
from weir.plan.comparison import HELPED, HURT, SAME, Row, flips
from weir.plan.sides import Plan

_SECOND_MS, _MINUTE_MS, _HOUR_MS = 1000, 60_000, 3_600_000
ARROW: Final = "->"
"""In ASCII: a terminal may know no more."""
_TENTHS_BELOW: Final = 10 * _SECOND_MS


def headline(plan: Plan) -> str:
    """Who is hurt, who is helped, and what flips."""
    fates = [row.fate for row in plan.rows]
    refused, allowed = flips(plan.rows)
    return (
        f"{fates.count(HURT)} hurt, {fates.count(HELPED)} helped, {fates.count(SAME)} as before;"
        f" {refused:,} let through before and refused now, {allowed:,} the other way round"
    )


def remarks(plan: Plan, proven: int | None) -> Iterator[str]:
    """How far it is to be trusted, and where it differs first.

    Args:
        plan: what differs.
        proven: how many recorded decisions came out again; None: none were given.
    """
    if proven is not None:
        yield f"The log is trusted: {proven:,} recorded decisions came out again."
    first = plan.recorded.first
    if first is not None:
        where = f"{first.law} {first.id} of {first.whose or 'nobody'}"
        yield f"The first decision that differs: {moment(first.ts)}, {where}."
    if plan.beyond:
        yield f"Too many waited at once: {plan.beyond} requests were given up, or deliveries made, for that."


def changed(sides: Iterable[int], form: Callable[[int], str] = "{:,}".format) -> str:
    """A number before and after, once if both read the same."""
    before, after = map(form, sides)
    return after if before == after else f"{before} {ARROW} {after}"


def duration(time_ms: int) -> str:
    """A time in the unit that suits it.

    >>> [duration(time_ms) for time_ms in (0, 40, 1250, 75_000, 5_400_000)]
    ['0', '40 ms', '1.2 s', '75 s', '90 min']
    """
    if time_ms == 0:
        return "0"
    if time_ms < _SECOND_MS:
        return f"{time_ms} ms"
    if time_ms < _TENTHS_BELOW:
        return f"{time_ms / _SECOND_MS:.1f} s"
    if time_ms < 3 * _MINUTE_MS:
        return f"{time_ms / _SECOND_MS:.0f} s"
    if time_ms < 3 * _HOUR_MS:
        return f"{time_ms / _MINUTE_MS:.0f} min"
    return f"{time_ms / _HOUR_MS:,.0f} h"


def entries(row: Row) -> str:
    """Which entries limit somebody, before and after if those are others."""
    before, after = (", ".join(side) or "none" for side in row.entries)
    return after if before == after else f"{before} {ARROW} {after}"


def overshot(row: Row) -> str:
    """How far a group went beyond its limit before sharing caught up; empty: it never did."""
    if not any(row.overshoot):
        return ""
    before, after = (f"{beyond:.0%}" for beyond in row.overshoot)
    return f"beyond the group's limit in its worst round: {before} before, {after} after"
