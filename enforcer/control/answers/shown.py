"""The view as the API and `weir top` show it: pages of the list, one entity, and how all is."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import orjson

from enforcer.control.answers.help import reason, what_would_help
from enforcer.control.answers.ladder import entry_of, ladder
from enforcer.control.dispatch.table import DeliveryTable
from enforcer.control.entities.laws import MEASURES, NAMES, Entity, Law
from enforcer.control.entities.table import Slot, Snapshot
from enforcer.control.entities.view import EntityView, own_burst
from streaming.contract.names import INFLIGHT_GROUP_PREFIX
from streaming.policy.dispatch_limits import split_subscription
from streaming.policy.groups import INFLIGHT_PARTS, round_rules
from streaming.policy.policy_set import Decide, Section

if TYPE_CHECKING:
    from enforcer.control.answers.reach import Reach

BY: Final = ("used", "wait", "refused")
"""What the list may be sorted by."""
LIMIT: Final = 50
LIMIT_MAX: Final = 1_000
"""Rows of a page."""
NEAR: Final = 0.8
"""Share of a limit from which on Prometheus is told of an entity that does not wait,"""
PRESSED_MAX: Final = 200
"""and of so many in all: each is a series."""
_MUTATIONS_DIMENSION: Final = 0
_PAGES_MAX: Final = 32
"""First pages of one snapshot that are kept for others who ask."""
_BURSTS: Final = (Law.MUTATION, Law.DISPATCH, Law.CONCURRENCY, Law.BACKLOG)


def page(
    view: EntityView, now_ms: int, *, by: str, law: Law | None = None, name: str = "", offset: int = 0,
    limit: int = LIMIT, seen: "Reach | None" = None,
) -> tuple[list[dict[str, Any]], int]:  # fmt: skip
    """Rows of the list in their order, and how many there are in all.

    Args:
        view: what is known.
        now_ms: ms since the epoch.
        by: one of BY; ties by the share of the limit that is used.
        law: only its entities; None: all.
        name: only those whose name has this in it.
        offset, limit: which part.
        seen: what may be shown; None: all.
    """
    snapshot = view.snapshot(now_ms)
    key = None if offset else ("page", seen, by, law, name, limit)
    if key in view.told:
        kept: tuple[list[dict[str, Any]], int] = view.told[key]
        return kept
    keep = snapshot.listed if seen is None else snapshot.listed & seen.rows(view.table)
    if law is not None:
        keep = keep & (view.table.columns["law"][: len(view.table)] == law)
    rows = np.flatnonzero(keep)
    if name:
        named = [row for row in rows.tolist() if name in view.table.names[row].name]
        rows = np.array(named, dtype=np.int64)
    # In shadow nobody waits.
    real = ~snapshot.shadow[rows]
    first = {
        "used": snapshot.fraction[rows],
        "wait": snapshot.waiting_ms[rows] * real,
        "refused": snapshot.refused[rows] * real,
    }[by]
    order = rows[np.lexsort((-snapshot.fraction[rows], -first))]
    found = [row_of(view, snapshot, row) for row in order[offset : offset + limit].tolist()], len(rows)
    if key is not None and len(view.told) < _PAGES_MAX:
        view.told[key] = found
    return found


class Pressed(NamedTuple):
    """An entity as Prometheus is told of it.

    Attributes:
        labels: its law and its name.
        used: share of its limit.
        held_s: for how long it has waited or been refused, 0: it does not, or is not.
        empty_s: as in the list.
    """

    labels: tuple[str, str]
    used: float
    held_s: float
    empty_s: float | None


def pressed(view: EntityView, now_ms: int) -> tuple[list[Pressed], int]:
    """Who waits, is refused or uses NEAR of its limit: those held longest first, then by the share used; and
    how many more there are than PRESSED_MAX. Arguments as of page.
    """
    snapshot = view.snapshot(now_ms)
    near = (snapshot.since > 0) | (snapshot.fraction >= NEAR)
    rows = np.flatnonzero(snapshot.listed & ~snapshot.shadow & near)
    since = np.where(snapshot.since[rows] > 0, snapshot.since[rows], now_ms)
    order = np.lexsort((-snapshot.fraction[rows], since))[:PRESSED_MAX]
    told = []
    for row, began in zip(rows[order].tolist(), since[order].tolist(), strict=True):
        law, name = view.table.names[row]
        left = _burst_left(view, row, snapshot)
        empty_s = _empty_s(law, left, float(snapshot.limit[row]), view.table.history(row, now_ms))
        held_s = max(0.0, (now_ms - began) / 1000)
        told.append(Pressed((NAMES[law], name), float(snapshot.fraction[row]), held_s, empty_s))
    return told, len(rows) - len(told)


def row_of(view: EntityView, snapshot: Snapshot, row: int) -> dict[str, Any]:
    """One entity as the list shows it."""
    entity, measure = view.table.names[row], int(view.table.columns["measure"][row])
    used, limit = float(snapshot.used[row]), float(snapshot.limit[row])
    fraction = float(snapshot.fraction[row])
    held = {
        "waiting_ms": int(snapshot.waiting_ms[row]),
        "refused": int(snapshot.refused[row]),
        "since": iso(snapshot.since[row]),
    }
    shadow = bool(snapshot.shadow[row])
    left = _burst_left(view, row, snapshot)
    history = view.table.history(row, snapshot.now_ms)
    levels = ladder(view.policies, entity, measure)
    return {
        "entity": entity.name,
        "law": NAMES[entity.law],
        "limit": limit,
        "used": used,
        "fraction": fraction if np.isfinite(fraction) else None,
        **({"waiting_ms": 0, "refused": 0, "since": None} if shadow else held),
        "entry": entry_of(levels),
        "unit": MEASURES[entity.law][measure].unit,
        "dimension": MEASURES[entity.law][measure].dimension,
        "burst_left": left,
        "empty_s": _empty_s(entity.law, left, limit, history),
        "history": [amount for _, amount, _ in history],
        "shadow": held if shadow else None,
    }


def one(
    view: EntityView, deliveries: DeliveryTable | None, entity: Entity, now_ms: int
) -> dict[str, Any] | None:
    """All that is known of an entity, also who delivered to a subscription; None: nothing is."""
    row = view.table.rows.get(entity)
    if row is None:
        return None
    shown = row_of(view, view.snapshot(now_ms), row)
    measure, detail = int(view.table.columns["measure"][row]), view.details.get(entity)
    levels = ladder(view.policies, entity, measure)
    shares = _shares(view, deliveries, entity, measure, row, now_ms)
    held = [share["share"] for share in shares if share["share"] is not None]
    said = [] if detail is None else [orjson.loads(each) for each in reversed(detail.decisions)]
    burst = own_burst(view.policies, entity.name) if entity.law is Law.MUTATION else None
    return {
        **shown,
        "reason": reason(entity, measure, shown),
        "ladder": [level._asdict() for level in levels],
        "shares": shares,
        "share_sum": sum(held) if held else None,
        "decisions": said,
        "history": [list(slot) for slot in view.table.history(row, now_ms)],
        "candidates": {} if detail is None else {
            name: orjson.loads(each) for name, each in detail.candidates.items()
        },
        "help": what_would_help(entity, measure, shown["limit"], burst, detail, now_ms),
    }  # fmt: skip


def summary(view: EntityView, now_ms: int, seen: "Reach | None" = None) -> dict[str, Any]:
    """How many wait, for how long, and whether all parts live; arguments as of page."""
    snapshot = view.snapshot(now_ms)
    rows = np.flatnonzero(snapshot.listed if seen is None else snapshot.listed & seen.rows(view.table))
    real = rows[~snapshot.shadow[rows]]
    waiting = real[snapshot.waiting_ms[real] > 0]
    since = snapshot.since[waiting]
    policies = view.policies
    overshoot = [
        {
            "entity": entity.name,
            "law": NAMES[entity.law],
            "differences": difference.times,
            "over": difference.over,
            "bound": None if row is None else float(view.table.columns["burst"][row]),
        }
        for entity, difference in view.signs.differences.items()
        if seen is None or seen.has(entity)
        for row in (view.table.rows.get(entity),)
    ]
    return {
        "at": now_ms,
        "waiting": len(waiting),
        "oldest_ms": int(now_ms - since.min()) if len(since) else 0,
        "refused": int((snapshot.refused[real] > 0).sum()),
        "entities": len(rows),
        "parts": view.signs.parts(now_ms, round_rules(policies).interval_ms),
        "overshoot": overshoot,
        "mode": policies.written.get(Section.MODE, "enforce"),
    }


def iso(ts: float) -> str | None:
    """A time as ISO 8601 in UTC, None for 0."""
    if ts <= 0:
        return None
    return datetime.fromtimestamp(ts / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _burst_left(view: EntityView, row: int, snapshot: Snapshot) -> float | None:
    """What may be used at once: of a bucket what is in it, else what is left of the limit."""
    law = view.table.names[row].law
    if law is Law.MUTATION:
        columns = {name: float(column[row]) for name, column in view.table.columns.items()}
        refilled = columns["limit"] * (snapshot.now_ms - columns["level_at"]) / 1000
        return min(columns["burst"], columns["level"] + refilled)
    return max(0.0, float(snapshot.limit[row] - snapshot.used[row])) if law in _BURSTS else None


def _empty_s(law: Law, left: float | None, limit: float, history: list[Slot]) -> float | None:
    """Seconds until nothing is left if it goes on so; None: it does not come to that, or nobody can tell."""
    if left is None:
        return None
    if law is Law.MUTATION:
        recent = [amount or 0.0 for _, amount, _ in history[-4:-1]]
        drain = sum(recent) / len(recent) - limit
    elif law is Law.BACKLOG:
        known = [(ts, amount) for ts, amount, _ in history if amount is not None]
        if len(known) < 2:
            return None
        drain = (known[-1][1] - known[0][1]) / ((known[-1][0] - known[0][0]) / 1000)
    else:
        return None
    if left <= 0:
        return 0.0
    return left / drain if drain > 0 else None


def _shares(
    view: EntityView, deliveries: DeliveryTable | None, entity: Entity, measure: int, row: int, now_ms: int
) -> list[dict[str, Any]]:
    """What each proxy may use and uses; a share is None where the whole is not divided."""
    if entity.law is Law.MUTATION:
        return _bucket_shares(view, entity, row, now_ms)
    if entity.law is Law.SHARES:
        found = view.members.of(entity.name, measure, now_ms)
        return [{"proxy": name, "share": share, "used": used} for name, share, used in found]
    if entity.law is Law.CONCURRENCY:
        group = INFLIGHT_GROUP_PREFIX + entity.name
        whole = float(view.table.columns["limit"][row]) / INFLIGHT_PARTS
        return [
            {"proxy": name, "share": None if share is None else share * whole, "used": used * whole}
            for name, share, used in view.members.of(group, _MUTATIONS_DIMENSION, now_ms)
        ]
    if entity.law is Law.DISPATCH and deliveries is not None:
        topic, subscription = split_subscription(entity.name)
        place = MEASURES[Law.DISPATCH][measure].dimension == "bytes"
        return [
            {"proxy": key.proxy or key.broker, "broker": key.broker, "share": None,
             "used": each.rates[place]}
            for key, each in deliveries.of_topic(topic, now_ms)
            if key.subscription == subscription
        ]  # fmt: skip
    return []


def _bucket_shares(view: EntityView, entity: Entity, row: int, now_ms: int) -> list[dict[str, Any]]:
    """The part of the rate that each proxy decides by, where they decide (docs/contract.md 3.1)."""
    used, alive = view.details.rates(entity, now_ms), view.signs.alive(now_ms)
    quota = view.policies.mutation_quota_of_subject(entity.name)
    part = None
    if alive and (quota is None or quota.decide != Decide.STRICT):
        part = float(view.table.columns["limit"][row]) / len(alive)
    return [
        {"proxy": name, "share": part if name in alive else None, "used": used.get(name, 0.0)}
        for name in sorted({*alive, *used})
    ]
