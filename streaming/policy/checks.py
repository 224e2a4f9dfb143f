"""Building blocks for checking values that people wrote: policies and settings.

A check is a function of (report, path, value) that adds every problem it finds to the report; it never stops
at the first. Messages read `what is wrong; what was expected` (contract section 2).
"""

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streaming.contract.errors import Problem
from streaming.policy.yaml_lines import Path

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
# A name is a record key and a metric label: longer ones are a mistake.
MAX_NAME_LENGTH = 1024
# Of a wrong value a message shows this much.
MAX_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem before it is known in which file and line it stands."""

    path: Path
    message: str


@dataclass(slots=True)
class Report:
    """Collects what the checks find."""

    findings: list[Finding] = field(default_factory=list)

    def spared(self, since: int, path: Path, names: Iterable[str]) -> bool:
        """True if no finding from number `since` on is about `path` itself or one of these keys of it."""
        keys = {(), *((name,) for name in names)}
        own = (item.path for item in self.findings[since:] if item.path[: len(path)] == path)
        return not any(found[len(path) :] in keys for found in own)

    def add(self, path: Path, message: str) -> None:
        """Add `what is wrong; what was expected` about the key at `path`."""
        self.findings.append(Finding(path=path, message=message))


Check = Callable[[Report, Path, Any], None]


def rate(*, whole: bool, minimum: float = 0.0, maximum: float = math.inf) -> Check:
    """A limit per second: -1 for none, else positive; `whole` where Pulsar and Kafka keep an integer.

    `minimum` and `maximum` keep the arithmetic of a law finite.
    """
    kind = "a positive whole number" if whole else "a positive number"
    expected = f"{kind}, or -1 for no limit"

    def check(report: Report, path: Path, value: Any) -> None:
        if not _is_number(report, path, value, expected, whole=whole):
            return
        # Kafka refuses 0, for Pulsar it is no limit: nobody may have to guess.
        if value == 0:
            report.add(
                path,
                "is 0, which is ambiguous (nothing allowed, or no limit?); "
                f"expected {kind} to limit, and for no limit -1 or no such key at all",
            )
        elif value < 0 and value != -1:
            report.add(path, f"is {value}; expected {expected}")
        elif value > 0 and not minimum <= value <= maximum:
            report.add(
                path, f"is {value}; expected at least {minimum} and at most {maximum}, or -1 for no limit"
            )

    return check


def number(
    *,
    above: float | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    whole: bool = False,
) -> Check:
    """A finite number within bounds; `above` and `below` are exclusive, the other two inclusive."""
    words = (("above", above), ("at least", minimum), ("at most", maximum), ("below", below))
    bounds = " and ".join(f"{word} {bound}" for word, bound in words if bound is not None)
    expected = f"a {'whole ' if whole else ''}number{' ' if bounds else ''}{bounds}"

    def check(report: Report, path: Path, value: Any) -> None:
        if not _is_number(report, path, value, expected, whole=whole):
            return
        low = (above is not None and value <= above) or (minimum is not None and value < minimum)
        high = (below is not None and value >= below) or (maximum is not None and value > maximum)
        if low or high:
            report.add(path, f"is {value}; expected {expected}")

    return check


def flag(report: Report, path: Path, value: Any) -> None:
    """True or false."""
    if not isinstance(value, bool):
        report.add(path, f"is {shown(value)}; expected true or false")


def choice(names: Iterable[str]) -> Check:
    """One of a closed set of texts."""
    known = tuple(names)

    def check(report: Report, path: Path, value: Any) -> None:
        if isinstance(value, str) and value not in known:
            report.add(path, f"is {shown(value)}; expected {suggestion(value, known)}")
        elif not isinstance(value, str):
            report.add(path, f"is {shown(value)}; expected one of {', '.join(known)}")

    return check


def text(report: Report, path: Path, value: Any) -> None:
    """A name: not empty, of sensible length."""
    if not isinstance(value, str):
        report.add(path, f"is {shown(value)}; expected a name (in quotes if it looks like a number)")
    elif not 0 < len(value) <= MAX_NAME_LENGTH:
        report.add(path, f"has {len(value)} characters; expected 1 to {MAX_NAME_LENGTH}")


def fields(known: Mapping[str, Check], required: Iterable[str] = (), hint: str = "") -> Check:
    """A mapping with these keys and no other; `hint` shows how one may look."""
    needed = tuple(required)
    expected = hint or f"a mapping with {', '.join(known)}"

    def check(report: Report, path: Path, value: Any) -> None:
        if not isinstance(value, dict):
            report.add(path, f"is {shown(value)}; expected {expected}")
            return
        for name, item in value.items():
            if name in known:
                known[name](report, (*path, name), item)
            else:
                report.add((*path, name), f"is not a known key; expected {suggestion(name, known)}")
        for name in needed:
            if name not in value:
                report.add((*path, name), f"is missing; expected {name} beside the other keys")

    return check


def table(name_check: Check, value_check: Check, expected: str) -> Check:
    """A mapping whose keys are names; each name and each value is checked."""

    def check(report: Report, path: Path, value: Any) -> None:
        if not isinstance(value, dict):
            report.add(path, f"is {shown(value)}; expected {expected}")
            return
        for name, item in value.items():
            name_check(report, (*path, name), name)
            value_check(report, (*path, name), item)

    return check


def _is_number(report: Report, path: Path, value: Any, expected: str, *, whole: bool) -> bool:
    """False, and a finding, for what is no number that a 64-bit integer or double can hold."""
    # In Python true is a number, 1; in a policy it is a mistake.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        report.add(path, f"is {shown(value)}; expected {expected}")
    elif not is_finite(value):
        what = "is not finite" if isinstance(value, float) else "is too large for a double"
        report.add(path, f"{what}; expected {expected}")
    elif whole and not isinstance(value, int):
        report.add(path, f"is {value}; expected {expected}, without a decimal point")
    elif isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        report.add(path, f"is {value}, which does not fit into 64 bits; expected {expected}")
    else:
        return True
    return False


def suggestion(name: str, known: Iterable[str]) -> str:
    """What was likely meant by an unknown key: its nearest known one, or all of them."""
    names = sorted(known)
    # Misspelt names differ by a letter or two; others would be suggested at random.
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if not near:
        # messageAge for message_age, CLIENTID for client-id
        folded = {known_name.lower(): known_name for known_name in names}
        near = [folded[found] for found in difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)]
    return f"{near[0]} (did you mean that?)" if near else f"one of {', '.join(names)}"


def sorted_problems(problems: Sequence[Problem]) -> list[Problem]:
    """Problems in the order of the file, one per key: the first that was found."""
    # What is wrong with a key twice over has one cause most times: the first.
    first: dict[tuple[int, str], Problem] = {}
    for problem in problems:
        first.setdefault((problem.line, problem.path), problem)
    return sorted(first.values(), key=lambda problem: (problem.line, problem.path))


def is_finite(value: float) -> bool:
    """False also for a whole number that no double can hold."""
    # A file may hold 400 digits, and float() of them does not give inf but an error.
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def shown(value: Any) -> str:
    """A value as a message names it."""
    if isinstance(value, str):
        return f"the text {value if len(value) <= MAX_SHOWN else value[:MAX_SHOWN] + '...'!r}"
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "empty"
    return "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else str(value)
