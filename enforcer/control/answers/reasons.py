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
        outcomes.append(f"{held['refused']} were refused in the last minute")
    if not outcomes:
        outcomes.append("it does not wait")
    since = f", since {held['since']}" if held["since"] else ""
    shadow = " (in shadow: nobody is held back)" if row["shadow"] is not None else ""
    left = row["burst_left"]
    balance = f"; {_number(left)} left at once" if law is Law.MUTATION and left is not None else ""
    return f"{said}{balance}: {' and '.join(outcomes)}{since}{shadow}."


def _wait(law: Law, waiting_ms: int) -> str:
    if law is Law.SHARES:
        return f"traffic was held back for {waiting_ms} ms of the last round"
    if law is Law.BACKLOG:
        return f"producers have been held for {waiting_ms} ms"
    if law is Law.CONCURRENCY:
        return f"requests wait for a slot, which takes some {waiting_ms} ms"
    return f"it waits {waiting_ms} ms more"


def _number(value: float) -> str:
    return f"{value:,.6g}"
