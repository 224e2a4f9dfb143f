"""What laws make of policies: once of each set, and between changes of them."""

from weakref import WeakSet

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streaming.policy.derived import SETS_MAX, PolicyCache, stretches
from streaming.policy.policy_set import PolicySet
from streaming.policy.timeline import PolicyTimeline


def test_sets_with_the_same_entries_share_it() -> None:
    """Another version does not matter, equal entries of somebody else do."""
    entries = {"broker": {}}
    derived = PolicyCache(lambda policies: object())
    first = derived(PolicySet(entries, 1))
    assert derived(PolicySet(entries, 2)) is first
    assert derived(PolicySet(dict(entries), 1)) is not first


def test_so_many_are_kept() -> None:
    """The one used longest ago leaves."""
    made: list[int] = []
    derived = PolicyCache(lambda policies: made.append(policies.version))
    sets = [PolicySet({"broker": {"n": number}}, number) for number in range(SETS_MAX + 1)]
    for number in (*range(SETS_MAX), 0, SETS_MAX, 0, 1):
        derived(sets[number])
    assert made == [*range(SETS_MAX + 1), 1]


def test_policies_that_often_change_do_not_fill_a_worker() -> None:
    """Of each set a law may know the limits of all its rows, 37 MB for as many as it has at most."""
    derived = PolicyCache(lambda policies: policies)
    alive: WeakSet[PolicySet] = WeakSet()
    for minute in range(64):
        alive.add(derived(PolicySet({"broker": {"n": minute}})))
    assert len(alive) * 37 <= 300


@given(st.lists(st.integers(0, 9)), st.lists(st.integers(-1, 10)))
def test_events_are_told_apart_by_the_changes_between_them(times: list[int], changes: list[int]) -> None:
    """Each event once, with those of the same set of policies only, in order of time and of arrival."""
    timeline = PolicyTimeline()
    for number, ts in enumerate(changes):
        timeline.apply("broker", {"n": number}, ts)
    found = [(rows.tolist(), at) for rows, at in stretches(np.array(times, dtype=np.int64), timeline)]
    assert sorted(row for rows, _ in found for row in rows) == list(range(len(times)))
    versions = [timeline.at(at).version for _, at in found]
    assert versions == sorted(set(versions))
    for rows, at in found:
        assert rows == sorted(rows) and at == min(times[row] for row in rows)
        assert {timeline.at(times[row]).version for row in rows} == {timeline.at(at).version}
