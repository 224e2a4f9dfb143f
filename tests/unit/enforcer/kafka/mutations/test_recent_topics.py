"""Topics changed a moment ago are known better than the brokers know them."""

import pytest

from enforcer.kafka.mutations.mutation import RecentTopics
from enforcer.wire.kafka.messages import RECENT_TOPIC_MS, TopicCounts


class Recent:
    """What was changed through us, with a clock that a test sets."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.topics = RecentTopics(lambda: self.now_ms)

    def over(self, **by_name: int | None) -> TopicCounts:
        """What the broker's metadata says, corrected."""
        return self.topics.over(TopicCounts(by_name=by_name, by_id={b"i" * 16: 7}, names={}, broker_count=1))


def test_recent_changes_win_for_a_while() -> None:
    """Created, grown and deleted topics are known before the metadata; then the metadata counts again."""
    recent = Recent()
    recent.topics.note("new", None, 3)
    recent.topics.note("gone", b"i" * 16, None)
    recent.now_ms = RECENT_TOPIC_MS - 1
    seen = recent.over(new=None, gone=5, other=2)
    assert seen.by_name == {"new": 3, "gone": None, "other": 2}
    assert seen.by_id == {b"i" * 16: None}
    recent.now_ms = RECENT_TOPIC_MS
    seen = recent.over(new=None, gone=5)
    assert (seen.by_name, seen.by_id) == ({"new": None, "gone": 5}, {b"i" * 16: 7})


def test_recent_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes first."""
    monkeypatch.setattr("enforcer.kafka.mutations.mutation.RECENT_TOPICS_MAX", 2)
    recent = Recent()
    for name in ("a", "b", "c"):
        recent.topics.note(name, None, 1)
    assert recent.over(a=None, b=None, c=None).by_name == {"a": None, "b": 1, "c": 1}
