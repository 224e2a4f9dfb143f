"""What failures come to: each law in each scenario, against one proxy that nothing befalls, and its bound."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any, Final

from streaming.laws.registry import LAWS
from streaming.policy.timeline import PolicyTimeline
from weir.logs.times import moment
from weir.simulate.failures.backlogs import Backlogs
from weir.simulate.failures.deliveries import Deliveries
from weir.simulate.failures.demand import Demand
from weir.simulate.failures.excess import Found, S, furthest_behind
from weir.simulate.failures.mutations import Mutations
from weir.simulate.failures.scenario import ALONE, AWAY, LATE, NONE, Facts, Failures
from weir.simulate.failures.shares import Shares
from weir.simulate.failures.slots import Slots
from weir.simulate.failures.world import Setting, Traffic, World
from weir.simulate.figures import rounded

Tell = Callable[[str], None]
HOLDS, EXCEEDED, UNBOUND = "holds", "exceeded", "no bound"
NOT_TOUCHED, NOTHING = "not touched", "nothing limited"
UNITS: Final = {
    "mutation": "mutations", "shares": "records or bytes", "dispatch": "messages or bytes",
    "concurrency": "requests", "backlog": "bytes",
}  # fmt: skip
_BELOW_ALL: Final = "When something fails"
BOUND_OF: Final = dict.fromkeys(UNITS, _BELOW_ALL) | {"mutation": "Several proxies"}
"""The heading in docs/laws.md under which a law's bound stands."""
_MAKES: Final[Mapping[str, type[Traffic]]] = {
    "mutation": Mutations, "shares": Shares, "dispatch": Deliveries, "concurrency": Slots,
    "backlog": Backlogs,
}  # fmt: skip
_MANY: Final = 10_000_000
_NAME_MAX: Final = 28
_ROUNDED: Final = 1e-6
_CELLS: Final = (
    ("scenario", 26), ("law", 12), ("whose", 30), ("over", 20), ("bound", 11), ("", 20), ("beyond for", 11),
    ("missed", 16),
)  # fmt: skip


@dataclass(slots=True)
class _Tried:
    """A law in windows of time; `left_out`: events of one beyond those that are simulated."""

    demand: Demand
    initial: Mapping[str, Any]
    timeline: PolicyTimeline
    law: str
    left_out: int = 0

    def world(self, failures: Failures, scenario: str, at: int, window: tuple[int, int, int]) -> Traffic:
        """Simulate one scenario, in a window: its begin, the failure's end, and its own."""
        begin, ends, end = window
        events, left_out = self.demand.between(self.law, begin, end)
        self.left_out = max(self.left_out, left_out)
        traffic = _MAKES[self.law](events, Found(at), self.timeline)
        setting = Setting(
            initial=self.initial, changes=self.demand.changes, places=failures.places(scenario, at),
            begin=begin, end=end, seed=failures.seed,
            away=(at, ends) if scenario == AWAY else (-1, -1),
            late_ms=round(failures.late_s * S) if scenario == LATE else 0,
            late_from=at,
        )  # fmt: skip
        world = World(setting, traffic)
        world.go()
        for found in traffic.found.values():
            found.end(world.now)
        return traffic


def figures(
    demand: Demand, initial: Mapping[str, Any], failures: Failures, tell: Tell = lambda _: None
) -> dict[str, Any]:
    """Try them all; the result is what `--json` prints (docs/contract.md 4).

    Args:
        demand: the log.
        initial: policies in force at its start.
        failures: what is to be tried.
        tell: told what is done next, for people.
    """
    timeline = PolicyTimeline(initial)
    for change in demand.changes:
        timeline.apply(change.path, change.value, change.ts, change.version)
    begins: dict[str, str | None] = {}
    left_out: dict[str, int] = {}
    rows: list[dict[str, Any]] = []
    with _quiet():
        for law in LAWS.by_name:
            tried = _Tried(demand, initial, timeline, law)
            at = demand.worst_ms(law, 3_600 * S) if failures.at is None else failures.at
            begins[law] = moment(at, "s") if demand.of[law] else None
            rows += _rows(tried, failures, at, tell)
            left_out[law] = tried.left_out
    order = {name: place for place, name in enumerate(failures.tried)}
    rows.sort(key=lambda row: order[row["scenario"]])
    return {
        "failures": asdict(failures) | {"at": None if failures.at is None else moment(failures.at, "s")},
        "titles": failures.titles(), "fails_at": begins, "left_out": left_out,
        "unusable_lines": demand.unusable, "rows": rows,
    }  # fmt: skip


def steps(failures: Failures) -> int:
    """How often `figures` tells what it does, at most."""
    return len(LAWS.by_name) * 2 * len(failures.tried)


def _rows(tried: _Tried, failures: Failures, at: int, tell: Tell) -> Iterator[dict[str, Any]]:
    references: dict[tuple[int, int, int], Traffic] = {}
    for scenario in failures.tried:
        row = {"scenario": scenario, "law": tried.law, "unit": UNITS[tried.law]}
        row["bound_of"] = BOUND_OF[tried.law]
        why = failures.untouched(scenario, tried.law)
        if why is not None:
            yield _row(row, NOT_TOUCHED, why)
            continue
        window = failures.window(scenario, tried.law, at)
        if not tried.demand.between(tried.law, window[0], window[2])[0]:
            yield _row(row, NOTHING, "the log has no events of it then")
            continue
        if window not in references:
            tell(f"{tried.law}, one proxy")
            alone = replace(ALONE, seed=failures.seed)
            references[window] = tried.world(alone, NONE, at, window)
        tell(f"{tried.law}, {scenario}")
        traffic = tried.world(failures, scenario, at, window)
        if not traffic.found:
            yield _row(row, NOTHING, "no policy limits what came then")
            continue
        yield row | _against(traffic, references[window], failures.facts(scenario), at)


def _against(traffic: Traffic, alone: Traffic, facts: Facts, at: int) -> dict[str, Any]:
    """The worst of one run: who is nearest to its bound or furthest beyond, and who missed most."""
    bounds = {name: traffic.bound(name, facts) for name in traffic.found}
    nearest = max(
        sorted(traffic.found),
        key=lambda name: (traffic.found[name].over / max(bounds[name], _ROUNDED), traffic.found[name].passed),
    )
    found, bound = traffic.found[nearest], bounds[nearest]
    curves = {name: own.curve for name, own in traffic.found.items()}
    behind = {
        name: (furthest_behind(curves.get(name, {}), own.curve, at // S), own.passed)
        for name, own in alone.found.items()
        if own.passed
    }
    whose = max(sorted(behind), key=lambda name: behind[name][0], default=None)
    missed, passed = behind[whose] if whose is not None else (0.0, 0.0)
    verdict = UNBOUND if bound == inf else HOLDS if found.over <= bound + _ROUNDED else EXCEEDED
    return {
        "verdict": verdict, "why": None, "whose": nearest, "over": rounded(found.over),
        "over_percent": _percent(found.over, found.allowed),
        "bound": None if bound == inf else rounded(bound),
        "exceeded_by": rounded(found.over - bound) if verdict == EXCEEDED else None,
        "beyond_for_s": rounded(max(each.longest_ms for each in traffic.found.values()) / S),
        "missed": rounded(missed), "missed_percent": _percent(missed, passed), "missed_whose": whose,
    }  # fmt: skip


def _row(row: dict[str, Any], verdict: str, why: str) -> dict[str, Any]:
    none = dict.fromkeys(
        ("whose", "over", "over_percent", "bound", "exceeded_by", "beyond_for_s", "missed", "missed_percent",
         "missed_whose")
    )  # fmt: skip
    return row | {"verdict": verdict, "why": why} | none


def table(result: Mapping[str, Any]) -> list[str]:
    """Lines of text: a law in a scenario in each."""
    lines = ["".join(f"{name:<{width}}" for name, width in _CELLS).rstrip()]
    for row in result["rows"]:
        head = [result["titles"][row["scenario"]], row["law"]]
        if row["why"] is not None:
            cells = [*head, f"{row['verdict']}: {row['why']}"]
        else:
            bound, verdict = "none" if row["bound"] is None else number(row["bound"]), row["verdict"]
            if row["exceeded_by"] is not None:
                verdict += f" by {number(row['exceeded_by'])}"
            cells = [
                *head, _short(row["whose"]), _with(row["over"], row["over_percent"]), bound, verdict,
                f"{row['beyond_for_s']:.0f} s", _with(row["missed"], row["missed_percent"]),
            ]  # fmt: skip
        widths = [width - 1 for _, width in _CELLS[: len(cells) - 1]] + [0]
        lines.append(" ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)))
    told = ", ".join(f"{law}: {count}" for law, count in result["left_out"].items() if count)
    if told:
        lines.append(f"events left out, of those who want least: {told}")
    return [*lines, f"The bounds stand in docs/laws.md, {BOUND_OF['mutation']!r} and {_BELOW_ALL!r}."]


def number(value: float) -> str:
    """A count for people.

    >>> number(12.34), number(1234.0), number(0.0), number(1_234_567_890.1)
    ('12.3', '1,234', '0', '1,235 M')
    """
    if value >= _MANY:
        return f"{value / 1e6:,.0f} M"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _with(value: float, percent: float | None) -> str:
    return number(value) if percent is None else f"{number(value)} ({percent:.1f} %)"


def _short(name: str) -> str:
    return name if len(name) <= _NAME_MAX else f"..{name[2 - _NAME_MAX:]}"


def _percent(part: float, whole: float) -> float | None:
    """None: it is no part of nothing."""
    return rounded(100.0 * part / whole) if whole else None if part else 0.0


@contextmanager
def _quiet() -> Iterator[None]:
    """What proxies log of failures that are meant to happen is no news."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)
