"""What `weir doctor` finds, and how that is shown (docs/contract.md 4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import orjson

from streaming.contract.printable import printable, printable_array


class Status(StrEnum):
    """How bad it is; the worst first."""

    ERROR = "error"
    WARNING = "warning"
    OK = "ok"


_ORDER: Final = tuple(Status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was seen.

    Attributes:
        status: how bad it is.
        what: was seen.
        mend: the command or setting that mends it; empty: nothing is to be done.
    """

    status: Status
    what: str
    mend: str = ""


def ok(what: str) -> Finding:
    """All is well."""
    return Finding(status=Status.OK, what=what)


def warning(what: str, mend: str) -> Finding:
    """Somebody should look."""
    return Finding(status=Status.WARNING, what=what, mend=mend)


def error(what: str, mend: str) -> Finding:
    """Limits do not hold, or will not."""
    return Finding(status=Status.ERROR, what=what, mend=mend)


Named = tuple[str, Finding]
"""The check, and one of the things that it found."""


def as_json(found: Sequence[Named]) -> str:
    """An array with an object for each, in order of the checks."""
    objects = [
        {"check": name, "status": str(each.status), "what": each.what, "mend": each.mend}
        for name, each in found
    ]
    return printable_array(map(orjson.dumps, objects))


def as_lines(found: Sequence[Named]) -> list[str]:
    """For people: the worst first, each with what mends it below; the last line counts."""
    width = max((len(name) for name, _ in found), default=0)
    lines = []
    for name, each in sorted(found, key=lambda one: _ORDER.index(one[1].status)):
        lines.append(f"{each.status.upper():<7}  {name:<{width}}  {printable(each.what)}")
        if each.mend:
            lines.append(f"{'':<7}  {'':<{width}}  -> {printable(each.mend)}")
    counts = [(sum(each.status is status for _, each in found), status) for status in _ORDER]
    return [*lines, ", ".join(f"{count} {status}" for count, status in counts)]
