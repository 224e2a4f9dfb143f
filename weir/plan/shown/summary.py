"""Plans as JSON (docs/contract.md 4 and 6, docs/plan.md)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from weir.plan.comparison import HOUR_MS, SIDES, Comparison, Counts, Row, flips
from weir.plan.delays import NO_DELAYS
from weir.plan.sides import Plan

_OUTCOMES: Final = ("allowed", "throttled", "rejected")


def summary(plans: Sequence[Plan], proven: int | None) -> dict[str, Any]:
    """One or several plans of one log: the first is `against`, the others stand under their names beside it.

    Args:
        plans: one at least, of the same log.
        proven: how many recorded decisions came out again; None: none were given.
    """
    first, *others = plans
    found = [_subjects(plan) for plan in plans]
    told: dict[str, Any] = {"subjects": {}}
    for name in sorted({name for subjects in found for name in subjects}):
        # Whom a plan does not know, neither of its sides limits.
        before = next(subjects[name] for subjects in found if name in subjects)["policies"]
        unknown = {"flips": _flips(0, 0), "policies": before, "against": before}
        own, *rest = (subjects.get(name, unknown) for subjects in found)
        told["subjects"][name] = own | {
            plan.name: sides["against"] | {"flips": sides["flips"]}
            for plan, sides in zip(others, rest, strict=True)
        }
    told |= {"proven": proven, **_plan(first)}
    if others:
        told["plans"] = {plan.name: _plan(plan) for plan in plans}
    return told


def _plan(plan: Plan) -> dict[str, Any]:
    first = plan.recorded.first
    return {
        "name": plan.name,
        **_run(plan.recorded, plan.rows),
        "first_difference": None if first is None else first._asdict(),
        "entities": [_entity(row) for row in plan.rows],
        "clients_that_wait": {
            **_run(plan.waiting, list(plan.waiting_rows.values())), "beyond": plan.beyond,
            "entities": [_entity(row) for row in plan.waiting_rows.values()],
        },
    }


def _run(comparison: Comparison, rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "flips": _flips(*flips(rows)),
        "delay_ms": {name: comparison.delay_ms(side) for side, name in enumerate(SIDES)},
        "hours": _hours(comparison.hours()),
    }


def _entity(row: Row) -> dict[str, Any]:
    told: dict[str, Any] = {"whose": row.whose, "law": row.law, "fate": row.fate}
    for side, name in enumerate(SIDES):
        told[name] = {
            "entries": row.entries[side], **_outcomes(row.counts, side), "delay_ms": row.delay_ms[side],
            "waited_ms": row.waited_ms[side],
        }  # fmt: skip
        if row.law == "shares":
            told[name]["overshoot"] = row.overshoot[side]
    flipped = _flips(row.counts.refused, row.counts.allowed)
    return told | {"flips": flipped, "most_added_delay_ms": row.worst_ms, "hours": _hours(row.hours)}


def _hours(known: Mapping[int, Counts]) -> list[dict[str, Any]]:
    return [
        {"ts": hour * HOUR_MS, **{name: _outcomes(counts, side) for side, name in enumerate(SIDES)},
         "flips": _flips(counts.refused, counts.allowed)}
        for hour, counts in known.items()
    ]  # fmt: skip


def _subjects(plan: Plan) -> dict[str, Any]:
    """Both sides' totals of each subject, and how often it flipped."""
    delays = [plan.recorded.delays_by_subject(side) for side in range(len(SIDES))]
    told: dict[str, Any] = {}
    for name in plan.totals[0] | plan.totals[1]:
        told[name] = {"flips": _flips(0, 0)}
        for side, totals in enumerate(plan.totals):
            known = totals.get(name) or _nothing(plan.totals[1 - side][name])
            told[name][SIDES[side]] = known | {"delay_ms": delays[side].get(name, NO_DELAYS)}
    for row in plan.rows:
        if row.whose in told:
            own = told[row.whose]["flips"]
            own["allow_to_refuse"] += row.counts.refused
            own["refuse_to_allow"] += row.counts.allowed
    return told


def _nothing(other: dict[str, Any]) -> dict[str, Any]:
    """Totals of a subject that only the other side has."""
    return {name: 0 if isinstance(value, int | float) else None for name, value in other.items()}


def _outcomes(counts: Counts, side: int) -> dict[str, int]:
    return dict(zip(_OUTCOMES, counts.outcomes[side].tolist(), strict=True))


def _flips(refused: int, allowed: int) -> dict[str, int]:
    return {"allow_to_refuse": refused, "refuse_to_allow": allowed}
