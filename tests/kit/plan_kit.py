"""What the tests of plans share: a log and policies as files, and what comes of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import yaml

from weir.plan.run import Planned, plan
from weir.plan.sides import Plan

Event = Mapping[str, Any]


def file_of(folder: Path, name: str, *lines: Event | bytes) -> str:
    """A file of events or decisions."""
    path = folder / name
    path.write_bytes(b"".join(one if isinstance(one, bytes) else orjson.dumps(one) + b"\n" for one in lines))
    return str(path)


def policies_of(folder: Path, name: str, **sections: Any) -> str:
    """A policy file."""
    path = folder / name
    path.write_text(yaml.safe_dump({"version": 1, **sections}))
    return str(path)


def quotas_of(**rates: float) -> dict[str, Any]:
    """A token bucket for each of some users; its burst is 10."""
    entry = {"controller_mutation_burst": 10}
    return {"quotas": [
        {"entity": {"user": user}, "controller_mutation_rate": rate, **entry} for user, rate in rates.items()
    ]}  # fmt: skip


def dispatched(rate: int) -> dict[str, Any]:
    """So many messages a second to each subscription of acme/orders."""
    limit = {"dispatchThrottlingRateInMsg": rate}
    return {"namespaces": {"acme/orders": {"subscriptionDispatchRate": limit}}}


def grouped(rate: int) -> dict[str, Any]:
    """So many messages a second for the group rg1, shared out each second."""
    rounds = {"resourceUsagePublishIntervalInSecs": 1}
    return {"resourcegroups": {"rg1": {"publishRateInMsgs": rate}}, "broker": rounds}


def planned(
    folder: Path, events: Sequence[Event], before: Mapping[str, Any], *after: Mapping[str, Any],
    **options: Any,
) -> Planned:  # fmt: skip
    """What comes of a log under some policies, and under others."""
    log = file_of(folder, "log.jsonl", *events)
    own = policies_of(folder, "before.yaml", **before)
    others = [policies_of(folder, f"after{number}.yaml", **each) for number, each in enumerate(after)]
    with plan(own, [log], others, **options) as found:
        return found


def plan_of(
    folder: Path, events: Sequence[Event], before: Mapping[str, Any], after: Mapping[str, Any]
) -> Plan:
    """The one plan of that."""
    return planned(folder, events, before, after).plans[0]


def outcomes(plan: Plan, whose: str, *, waiting: bool = False) -> list[list[int]]:
    """Let through, throttled and refused of somebody, before and after."""
    rows = plan.waiting_rows.values() if waiting else plan.rows
    found: list[list[int]] = next(row for row in rows if row.whose == whose).counts.outcomes.tolist()
    return found
