"""Why an entity waits, as a sentence with numbers."""

from collections.abc import Mapping
from typing import Any, Final

from enforcer.control.entities.laws import MEASURES, Entity, Law

_VERBS: Final = {
    Law.MUTATION: "has used",
    Law.SHARES: "uses",
    Law.DISPATCH: "was delivered",
    Law.CONCURRENCY: "has in flight",
    Law.BACKLOG: "has a backlog of",
}


def reason(entity: Entity, measure: int, row: Mapping[str, Any]) -> str:
    """What is so, why, and for how long.

    Args:
        entity: whose.
        measure: what it is nearest to the limit of.
        row: as the list shows it.
    """
    law, unit = entity.law, MEASURES[entity.law][measure].unit
    used, limit = _number(row["used"]), _number(row["limit"])
    by = f" by {row['entry']}" if row["entry"] else ""
    said = f"{entity.name} {_VERBS[law]} {used} {unit} of {limit}{by}"
    held = row if row["shadow"] is None else row["shadow"]
    outcomes = []
    if held["waiting_ms"]:
        outcomes.append(_wait(law, held["waiting_ms"]))
    if held["refused"]:
        times = "once" if held["refused"] == 1 else f"{held['refused']} times"
        outcomes.append(f"it was refused {times} in the last minute")
    if not outcomes:
        outcomes.append("it does not wait")
    since = f", since {held['since'][:19].replace('T', ' ')} UTC" if held["since"] else ""
    shadow = " (in shadow: nobody is held back)" if row["shadow"] is not None else ""
    left = row["burst_left"]
    balance = f"; {_number(left)} left at once" if law is Law.MUTATION and left is not None else ""
    return f"{said}{balance}: {' and '.join(outcomes)}{since}{shadow}."


def _wait(law: Law, waiting_ms: int) -> str:
    if law is Law.SHARES:
        return f"traffic was held back for {_seconds(waiting_ms)} of the last round"
    if law is Law.BACKLOG:
        return f"producers have been held for {_seconds(waiting_ms)}"
    if law is Law.CONCURRENCY:
        return f"requests wait for a slot, which takes some {_seconds(waiting_ms)}"
    return f"it waits {_seconds(waiting_ms)}"


def _seconds(ms: int) -> str:
    """A time in the unit that is read fastest.

    >>> _seconds(340), _seconds(7190), _seconds(75_000)
    ('340 ms', '7.2 s', '75 s')
    """
    return f"{ms} ms" if ms < 1000 else f"{ms / 1000:.1f} s" if ms < 10_000 else f"{ms / 1000:.0f} s"


def _number(value: float) -> str:
    """Three digits, or all of a whole number's.

    >>> _number(1.65364), _number(20_000.4), _number(-0.231)
    ('1.65', '20,000', '-0.231')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
