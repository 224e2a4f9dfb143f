"""What is said of an entity: why it waits, and the least limit under which it would not have waited."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from enforcer.control.entities.details import ASKED_SLOT_MS, HOUR_MS, Detail
from enforcer.control.entities.laws import MEASURES, Entity, Law
from streaming.policy.policy_set import DEFAULT_BURST_SECONDS

_VERBS: Final = {
    Law.MUTATION: "has used",
    Law.SHARES: "uses",
    Law.DISPATCH: "was delivered",
    Law.CONCURRENCY: "has in flight",
    Law.BACKLOG: "has a backlog of",
}


def reason(entity: Entity, measure: int, row: Mapping[str, Any]) -> str:
    """What is so, why, and for how long, of what it is nearest to the limit of; `row` as the list has it."""
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


_SLOT_S: Final = ASKED_SLOT_MS / 1000
_TIMES_MAX: Final = 2.0**64
_STEPS: Final = 50
_DIGITS: Final = 3


def what_would_help(
    entity: Entity, measure: int, limit: float, burst: float | None, detail: Detail | None, now_ms: int
) -> dict[str, Any] | None:
    """`{"limit", "burst", "text"}`; None: it did not wait in the last hour, or no setting ends its waits.

    `burst` is null where that of the policy suffices.

    Args:
        entity: who waited.
        measure, limit: what holds it back, a second where that is its unit.
        burst: that its policy sets; None: by default so many seconds of its rate.
        detail: what it asked for.
        now_ms: ms since the epoch.
    """
    if detail is None or detail.asked is None or detail.waited_ts <= now_ms - HOUR_MS:
        return None
    if entity.law is Law.CONCURRENCY:
        return None  # its limit is found by measuring, not set
    asked = detail.asked.slots(now_ms)
    most, unit, room = max(asked), MEASURES[entity.law][measure].unit, None
    if most <= 0:
        return None
    if entity.law is Law.MUTATION:
        # No rate helps where more is asked for at once than a burst that is set.
        room = None if burst is None else max(burst, most)
        found = _least(limit, lambda rate: _would_wait(asked, rate, room))
        how = (
            f"it asked for {sum(asked):,.0f} mutations in the last hour, at most {most:,.0f} within"
            f" {_SLOT_S:.0f} s, walked in steps of {_SLOT_S:.0f} s with a burst of"
            f" {f'{DEFAULT_BURST_SECONDS} times the rate' if room is None else f'{room:,g}'}"
        )
    else:
        found, how = max(limit, most), f"{_WANTED[entity.law]} was {most:,.6g} {unit} in the last hour"
    found = _rounded_up(found)
    more = None if room == burst else room
    also = "" if more is None else f" and a burst of {more:,g} (now {burst:,g})"
    said = f"With {found:,g} {unit} (now {limit:,g}){also} it would not have waited: {how}."
    return {"limit": found, "burst": more, "text": said}


_WANTED: Final = {
    Law.SHARES: "the most that it used, the time that it was held back counted in,",
    Law.DISPATCH: "the most that was delivered to it and not paid off",
    Law.BACKLOG: "its greatest backlog",
}


def _would_wait(asked: Sequence[float], rate: float, burst: float | None) -> bool:
    """Whether a bucket would be in debt at the end of some step; what is asked in one comes at its start."""
    room = DEFAULT_BURST_SECONDS * rate if burst is None else burst
    tokens = room
    for amount in asked:
        tokens -= amount
        if tokens < 0:
            return True
        tokens = min(room, tokens + rate * _SLOT_S)
    return False


def _least(limit: float, waits: Callable[[float], bool]) -> float:
    """The least rate, from the limit on, with which it does not wait."""
    low, high = limit, limit
    while waits(high) and high < limit * _TIMES_MAX:
        low, high = high, high * 2
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if waits(middle) else (low, middle)
    return high


def _rounded_up(value: float) -> float:
    """To three digits, not below it.

    >>> _rounded_up(1234.5), _rounded_up(0.05)
    (1240.0, 0.05)
    """
    if value <= 0 or not math.isfinite(value):
        return value
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - _DIGITS)
    steps = math.ceil(value / unit - 1e-9)
    return float(f"{steps * unit:.{_DIGITS}g}")
