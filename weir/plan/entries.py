"""Which entries of the policies limit somebody, as `weir explain` looks for them."""

from typing import Final

from enforcer.control.answers.ladder import entry_of, ladder
from enforcer.control.entities.laws import MEASURES, NAMES, Entity, Law
from streaming.policy.policy_set import PolicySet

_LAWS: Final = dict(zip(NAMES, Law, strict=True))


def entries_of(policies: PolicySet, law: str, whose: str) -> list[str]:
    """Paths of the entries that set any of a law's limits for somebody; empty: nothing limits.

    Args:
        policies: in force.
        law: its name.
        whose: see `comparison`.
    """
    of, found = _LAWS[law], list[str]()
    for measure in range(len(MEASURES[of])):
        path = entry_of(ladder(policies, Entity(of, whose), measure))
        if path is not None and path not in found:
            found.append(path)
    return found
