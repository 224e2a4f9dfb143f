"""Policies over time: what a log of policy events means."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streaming.contract.events import VERSION_MAX
from streaming.policy import timeline as module
from streaming.policy.timeline import FOLD_PARTS, KEPT_BYTES, MAX_CACHED_SETS, PolicyTimeline

TIMES = st.integers(0, 12)
VALUES = st.none() | st.integers(1, 3).map(lambda rate: {"controller_mutation_rate": rate})
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["quotas[user=a]", "quotas[user=b]", "broker"]),
        VALUES,
        TIMES,
        st.none() | st.integers(1, 9),
    ),
    max_size=12,
)


def timeline_of(changes: list[Any]) -> PolicyTimeline:
    """A timeline that starts with one entry."""
    timeline = PolicyTimeline({"quotas[user=a]": {"controller_mutation_rate": 9}})
    for change in changes:
        timeline.apply(*change)
    return timeline


def reference(changes: list[Any], ts: int) -> tuple[dict[str, Any], int]:
    """Entries and version at a time, by going through everything from the start."""
    entries: dict[str, Any] = {"quotas[user=a]": {"controller_mutation_rate": 9}}
    newest = 1
    for path, value, at, version in sorted(changes, key=lambda change: change[2]):
        if at <= ts:
            newest = version if version is not None and version > newest else newest + 1
            entries.pop(path, None)
            if value is not None:
                entries[path] = value
    return entries, newest


@given(CHANGES, TIMES)
def test_at_equals_the_slow_reference(changes: list[Any], ts: int) -> None:
    """In whatever order changes come and times are asked for."""
    timeline = timeline_of(changes)
    for at in (ts, 12, 0, ts):
        found = timeline.at(at)
        assert timeline.since(at) == max((change[2] for change in changes if change[2] <= at), default=-1)
        assert (dict(found.entries), found.version) == reference(changes, at)
    assert timeline.newest_version == reference(changes, 12)[1]


@given(CHANGES, TIMES, TIMES)
def test_asking_between_changes_does_not_matter(changes: list[Any], first: int, ts: int) -> None:
    """A cached set never survives a change that concerns it."""
    timeline = PolicyTimeline({"quotas[user=a]": {"controller_mutation_rate": 9}})
    for change in changes:
        timeline.at(first)
        timeline.apply(*change)
    found = timeline.at(ts)
    assert (dict(found.entries), found.version) == reference(changes, ts)


@given(CHANGES, TIMES)
def test_forgetting_changes_nothing_from_then_on(changes: list[Any], ts: int) -> None:
    """Changes up to a time become the initial set; later ones keep their versions."""
    timeline, forgetful = timeline_of(changes), timeline_of(changes)
    forgetful.forget_before(ts)
    assert forgetful.changes(-1, ts) == []
    for at in range(ts, 13):
        assert dict(forgetful.at(at).entries) == dict(timeline.at(at).entries)
        assert forgetful.at(at).version == timeline.at(at).version
    assert forgetful.newest_version == timeline.newest_version


@given(CHANGES, TIMES)
def test_json_gives_an_equal_timeline_back(changes: list[Any], ts: int) -> None:
    """Byte for byte, after forgetting too, and it goes on alike."""
    timeline = timeline_of(changes)
    timeline.forget_before(ts)
    copy = PolicyTimeline.from_json(*timeline.to_json())
    assert copy.to_json() == timeline.to_json()
    for each in (timeline, copy):
        each.apply("broker", {"preciseBacklogSize": True}, 5)
    assert copy.to_json() == timeline.to_json()
    for of_copy, own in ((copy.at(at), timeline.at(at)) for at in range(13)):
        assert (dict(of_copy.entries), of_copy.version) == (dict(own.entries), own.version)


@given(CHANGES, st.sets(st.sampled_from(["quotas[user=a]", "quotas[user=b]", "broker"])), TIMES)
def test_changes_that_only_count_make_the_same_versions(
    changes: list[Any], counted: set[str], ts: int
) -> None:
    """Whoever does not keep some entries still knows every version, before and after it is written down."""
    whole, part = timeline_of(changes), PolicyTimeline({"quotas[user=a]": {"controller_mutation_rate": 9}})
    for path, value, at, version in changes:
        if path in counted:
            part.count(at, version)
        else:
            part.apply(path, value, at, version)
    assert part.changes(-1, 12) == whole.changes(-1, 12)
    assert part.changed(-1, 12) == [(at, path) for at, path in whole.changed(-1, 12) if path not in counted]
    part.forget_before(ts)
    part = PolicyTimeline.from_json(*part.to_json())
    for at in range(ts, 13):
        assert part.at(at).version == whole.at(at).version
        for path in {change[0] for change in changes} - counted:
            assert part.at(at).entries.get(path) == whole.at(at).entries.get(path)
    assert part.newest_version == whole.newest_version


def test_changes_that_only_count_take_no_room() -> None:
    """A hundred thousand at a time are one; they leave the entries alone, the very same table."""
    timeline = PolicyTimeline({"broker": {}})
    before = timeline.at(0).entries
    for number in range(1000):
        timeline.count(10, 5 + number)
    assert len(timeline._changes) == 1
    assert timeline.at(10).version == 1004
    assert timeline.at(10).entries is before
    timeline.forget_before(10)
    assert not timeline._changes
    assert timeline.at(10).version == 1004


def test_few_changes_leave_the_many_entries_as_they_were_written() -> None:
    """They are what is written again; once they are many, all is written anew."""
    timeline = PolicyTimeline({f"quotas[user={number}]": {"n": 0} for number in range(100)})
    entries, _ = timeline.to_json()
    for number in range(100 // FOLD_PARTS):
        timeline.apply(f"quotas[user={number}]", {"n": 1}, number)
        timeline.forget_before(number)
        assert timeline.to_json()[0] is entries
        assert timeline.at(0).entries[f"quotas[user={number}]"] == {"n": 1}
        assert timeline.changes(-1, 1000) == []
    timeline.apply("broker", {}, 200)
    timeline.forget_before(200)
    assert timeline.to_json()[0] != entries
    assert not timeline._changes


def test_what_was_written_is_not_parsed_again() -> None:
    """Whoever reads the same bytes has the same sets."""
    timeline = timeline_of([("broker", {"n": 1}, 10, None)])
    found = timeline.at(10)
    assert PolicyTimeline.from_json(*timeline.to_json()).at(10) is found


@given(CHANGES, TIMES, TIMES)
def test_changes_lists_distinct_times_in_a_half_open_span(changes: list[Any], after: int, upto: int) -> None:
    """Open at its start, closed at its end, ascending."""
    expected = sorted({at for _, _, at, _ in changes if after < at <= upto})
    assert timeline_of(changes).changes(after, upto) == expected


def test_the_same_set_is_given_again() -> None:
    """Its cache of quotas stays warm between changes."""
    timeline = timeline_of([("broker", {}, 10, None)])
    assert timeline.at(10) is timeline.at(500)
    before = timeline.at(3)
    timeline.apply("broker", {"n": 1}, 20)
    assert timeline.at(9) is before


def test_cached_sets_are_bounded() -> None:
    """Asking for every time of a long log keeps only the newest few."""
    timeline = timeline_of([("broker", {"n": ts}, ts, None) for ts in range(10 * MAX_CACHED_SETS)])
    for ts in range(10 * MAX_CACHED_SETS):
        assert timeline.at(ts).entries["broker"] == {"n": ts}
        assert len(timeline._sets) <= MAX_CACHED_SETS


def test_policies_beyond_the_bound_are_kept_alone() -> None:
    """Otherwise the largest would be read again in each batch."""
    module._entries.clear()
    for name, size in ((b"a", 1), (b"b", KEPT_BYTES + 1)):
        module._entries[name] = bytes(size), {}
    assert list(module._entries) == [b"b"]
    rest = PolicyTimeline().to_json()[1]
    large = PolicyTimeline.from_json(b"{}" + b" " * KEPT_BYTES, rest)
    assert list(module._timelines.values())[-1]._json == large._json and len(module._timelines) == 1
    assert PolicyTimeline.from_json(b"{}", rest).at(0).entries == {} and len(module._timelines) == 1


def test_timelines_read_from_the_same_bytes_do_not_share_changes() -> None:
    """Parsing is shared, what happens afterwards is not."""
    raw = timeline_of([("broker", {"n": 1}, 10, None)]).to_json()
    first, second = PolicyTimeline.from_json(*raw), PolicyTimeline.from_json(*raw)
    first.apply("broker", {"n": 2}, 20)
    first.forget_before(30)
    assert first.at(30).entries["broker"] == {"n": 2}
    assert second.at(30).entries["broker"] == {"n": 1}
    assert second.to_json() == raw
    assert PolicyTimeline.from_json(*raw).to_json() == raw


def test_versions_that_an_older_release_took_leave_room_to_count() -> None:
    """A kept timeline whose version is the end of all numbers goes on from the greatest that counts."""
    stuck = PolicyTimeline({"broker": {}})
    stuck._version = 2**63 - 1
    stuck.apply("broker", None, 10, 2**63 - 1)
    raw = stuck.to_json()
    # Without those that were kept in memory, as after a restart.
    module._timelines.clear()
    read = PolicyTimeline.from_json(*raw)
    read.apply("broker", {}, 20)
    assert [read.at(ts).version for ts in (0, 10, 20)] == [VERSION_MAX, VERSION_MAX + 1, VERSION_MAX + 2]
