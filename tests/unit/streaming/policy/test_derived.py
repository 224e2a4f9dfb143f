"""What laws make of policies: once of each set, and between changes of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streaming.policy.derived import PolicyCache, stretches
from streaming.policy.policy_set import PolicySet
from streaming.policy.timeline import PolicyTimeline


def test_sets_with_the_same_entries_share_it() -> None:
    """Another version does not matter, equal entries of somebody else do."""
    entries = {"broker": {}}
    derived = PolicyCache(lambda policies: object(), 2)
    first = derived(PolicySet(entries, 1))
    assert derived(PolicySet(entries, 2)) is first
    assert derived(PolicySet(dict(entries), 1)) is not first


def test_so_many_are_kept() -> None:
    """The one used longest ago leaves."""
    made: list[int] = []
    derived = PolicyCache(lambda policies: made.append(policies.version), 2)
    sets = [PolicySet({"broker": {"n": number}}, number) for number in range(3)]
    for number in (0, 1, 0, 2, 0, 1):
        derived(sets[number])
    assert made == [0, 1, 2, 1]


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
