"""The mute of one connection, and topics changed a moment ago: pure, with times as arguments."""

from enforcer.core.mute import Mute
from enforcer.kafka.protocol.topic_counts import RecentTopics, TopicCounts


def test_a_short_mute_ends() -> None:
    """Nothing passes until the time is over."""
    mute = Mute(split_ms=1_000)
    assert mute.may_pass and not mute.pass_one()
    mute.begin(0, 400)
    assert mute.active and not mute.may_pass and mute.wake_ms == 400
    mute.advance(399)
    assert not mute.may_pass
    mute.advance(400)
    assert mute.may_pass and not mute.active and not mute.pass_one()


def test_a_long_mute_lets_one_pass_after_each_split() -> None:
    """One request after each split, however long the next one takes to come, and the mute goes on."""
    mute = Mute(split_ms=1_000)
    mute.begin(0, 2_500)
    mute.advance(1_000)
    assert mute.active and mute.may_pass
    assert mute.pass_one() and not mute.may_pass
    mute.advance(2_000)
    assert mute.pass_one() and mute.wake_ms == 2_500
    mute.advance(2_500)
    assert not mute.active


def test_a_mute_only_grows() -> None:
    """A second throttle cannot shorten the first; it starts the split anew."""
    mute = Mute(split_ms=1_000)
    mute.begin(0, 5_000)
    mute.advance(1_000)
    mute.begin(1_100, 100)
    assert not mute.may_pass and mute.wake_ms == 2_100
    mute.begin(1_200, 9_000)
    mute.advance(5_000)
    assert mute.active


def lookup(**by_name: int | None) -> TopicCounts:
    """What the broker's metadata says."""
    return TopicCounts(by_name=by_name, by_id={b"i" * 16: 7}, names={}, broker_count=1)


def test_recent_changes_win_for_a_while() -> None:
    """Created, grown and deleted topics are known before the metadata; then the metadata counts again."""
    recent = RecentTopics(keep_ms=100, topics_max=10)
    recent.note("new", None, 3, 0)
    recent.note("gone", b"i" * 16, None, 0)
    seen = recent.over(lookup(new=None, gone=5, other=2), 99)
    assert seen.by_name == {"new": 3, "gone": None, "other": 2}
    assert seen.by_id == {b"i" * 16: None}
    assert recent.over(lookup(new=None, gone=5), 100).by_name == {"new": None, "gone": 5}


def test_recent_topics_are_bounded() -> None:
    """The oldest goes first."""
    recent = RecentTopics(keep_ms=100, topics_max=2)
    for name in ("a", "b", "c"):
        recent.note(name, None, 1, 0)
    assert recent.over(lookup(a=None, b=None, c=None), 1).by_name == {"a": None, "b": 1, "c": 1}
