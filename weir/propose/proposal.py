"""A proposal while it is made: entries of policies, and what stands behind each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log10
from typing import Any, Final

from streaming.contract.errors import BadEvent
from streaming.contract.fields import INT64_MAX
from streaming.policy.files import check_entry
from streaming.policy.policy_set import Section, parse_path
from weir.propose.demand import Demand, Kind
from weir.propose.usual import Far, Seen, Usual

OWN_MAX: Final = 50
"""Entries of their own that one kind of limit has at most."""
_MEMBERS: Final = (Section.TENANTS, Section.NAMESPACES)
Asked = Mapping[tuple[Kind, str], Demand]
"""What was asked for, by measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What stands behind a limit.

    Attributes:
        measure: what is limited.
        of: whom, in words.
        names: some of them, in order.
        count: how many they are.
        window_ms: length of the windows.
        seen: what those held.
        far: who of them had hours that were left out, and the worst of these.
    """

    measure: str
    of: str
    names: list[str]
    count: int
    window_ms: int
    seen: Seen
    far: list[tuple[str, Far]]


@dataclass(slots=True)
class Proposal:
    """Entries of policies, and why.

    Attributes:
        headroom: how many times what is usual limits are.
        entries: path -> value.
        notes: by path.
    """

    headroom: float
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: dict[str, list[Note]] = field(default_factory=dict)

    def whole(self, amount: float, most: int = INT64_MAX) -> int:
        """A limit that is a whole number."""
        return int(min(most, max(1, ceil(self.ample(amount)))))

    def ample(self, amount: float) -> float:
        """With the headroom."""
        return rounded_up(self.headroom * amount)

    def keep_members(self, policies: Mapping[str, Any]) -> None:
        """Take over who belongs to which resource group, and groups of which nothing was seen."""
        for path, value in policies.items():
            if parse_path(path).section in _MEMBERS and "resourcegroup" in value:
                group = value["resourcegroup"]
                self.entries.setdefault(path, {})["resourcegroup"] = group
                entry = f"{Section.RESOURCE_GROUPS}.{group}"
                self.entries.setdefault(entry, policies[entry])

    def note(self, path: str, measure: str, of: str, usual: Usual, subjects: Sequence[int]) -> None:
        """Say what stands behind an entry's limit for some subjects, and whom of them it leaves out."""
        names = usual.demand.names
        some = [number for number in subjects if usual.peak[number] > 0.0]
        far = sorted((names[number], usual.far[number]) for number in subjects if number in usual.far)
        self.notes.setdefault(path, []).append(Note(
            measure=measure, of=of, names=sorted(names[number] for number in some), count=len(some),
            window_ms=usual.window_ms, seen=usual.seen(some), far=far,
        ))  # fmt: skip


def rounded_up(amount: float) -> float:
    """To two digits.

    >>> [rounded_up(amount) for amount in (0.01801, 7.0, 123.0, 9.95)]
    [0.019, 7, 130, 10]
    """
    if amount <= 0.0:
        return 0.0
    exponent = floor(log10(amount)) - 1
    digits = amount / 10.0**exponent
    # What a division adds or takes in its last bits is no digit.
    rounded = float(f"{ceil(digits - 1e-9)}e{exponent}")
    return int(rounded) if rounded.is_integer() and rounded <= INT64_MAX else rounded


def may_be(path: str, value: Any = None) -> bool:
    """Whether policies can hold an entry of this path, and with this value; None: with any."""
    try:
        check_entry(path, value)
    except BadEvent:
        return False
    return True
