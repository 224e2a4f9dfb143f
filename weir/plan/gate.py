"""The gate: how much worse off anybody may be before the command says no."""

from collections.abc import Iterator

from weir.plan.comparison import flips
from weir.plan.sides import Plan


def objections(plan: Plan, new_refused_max: int | None, added_delay_max_s: float | None) -> Iterator[str]:
    """What is beyond the bounds, a line each, with who is worst off; of the log as recorded.

    Args:
        plan: what differs.
        new_refused_max: how many that are let through may be refused, of all together; None: any.
        added_delay_max_s: by how much one decision's delay may grow, s; None: by any.
    """
    refused, _ = flips(plan.rows)
    if new_refused_max is not None and refused > new_refused_max:
        worst = max(plan.rows, key=lambda row: row.counts.refused)
        yield (
            f"{plan.name}: {refused} newly refused, {new_refused_max} allowed by --max-new-refused;"
            f" worst: {worst.whose} ({worst.law}) with {worst.counts.refused}"
        )
    slowest = max(plan.rows, key=lambda row: row.worst_ms, default=None)
    if slowest is None or added_delay_max_s is None:
        return
    if slowest.worst_ms > added_delay_max_s * 1000:
        yield (
            f"{plan.name}: {slowest.worst_ms / 1000:g} s of delay added, {added_delay_max_s:g} s allowed by"
            f" --max-added-delay; worst: {slowest.whose} ({slowest.law}) at {slowest.worst_id}"
        )
