"""What is worked out once of a set of policies."""

from streaming.policy.derived import Derived
from streaming.policy.policy_set import PolicySet


def test_sets_with_the_same_entries_share_it() -> None:
    """Another version does not matter, equal entries of somebody else do."""
    entries = {"broker": {}}
    derived = Derived(lambda policies: object(), 2)
    first = derived(PolicySet(entries, 1))
    assert derived(PolicySet(entries, 2)) is first
    assert derived(PolicySet(dict(entries), 1)) is not first


def test_so_many_are_kept() -> None:
    """The one used longest ago leaves."""
    made: list[int] = []
    derived = Derived(lambda policies: made.append(policies.version), 2)
    sets = [PolicySet({"broker": {"n": number}}, number) for number in range(3)]
    for number in (0, 1, 0, 2, 0, 1):
        derived(sets[number])
    assert made == [0, 1, 2, 1]
