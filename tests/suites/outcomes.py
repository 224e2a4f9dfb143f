"""What tests came to, and how two ways of running them differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What became of one test."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    MISSING = "missing"
    """It was not heard of again: the suite ended before it, or hung in it."""


Outcomes = Mapping[str, Outcome]
_RANK = {Outcome.PASSED: 0, Outcome.SKIPPED: 1, Outcome.FAILED: 2, Outcome.MISSING: 2}


@dataclass(frozen=True, slots=True)
class Difference:
    """A test that came to something worse.

    Attributes:
        test: its name.
        straight: what it came to without a proxy.
        through: what it came to through one.
    """

    test: str
    straight: Outcome
    through: Outcome


def differences(straight: Outcomes, through: Outcomes) -> list[Difference]:
    """The tests that came to something worse through a proxy, in order of their names.

    Skipped is worse than passed: the client saw that something is not there.
    """
    return [
        Difference(test, before, after)
        for test, before in sorted(straight.items())
        if _RANK[after := through.get(test, Outcome.MISSING)] > _RANK[before]
    ]


def counts(outcomes: Outcomes) -> str:
    """How many of each, in words."""
    found = {kind: list(outcomes.values()).count(kind) for kind in Outcome}
    return ", ".join(f"{count} {kind}" for kind, count in found.items() if count)
