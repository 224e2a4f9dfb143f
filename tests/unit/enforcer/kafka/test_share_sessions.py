"""Share sessions of a connection: what is remembered of them is bounded, whatever is asked for."""

import pytest
from share_frames import Waiting, share_request

from enforcer.kafka.share_sessions import (
    SHARE_NAME_MAX,
    SHARE_PARTS_MAX,
    SHARE_TOPICS_MAX,
    ShareSession,
    ShareSessions,
    may_acknowledge,
)
from enforcer.wire.kafka.traffic import sharing


def asked_for(sessions: ShareSessions, topics: range, parts: range, **fields: object) -> ShareSession:
    """The session of a request for partitions of topics."""
    rows = [{"PartitionIndex": number} for number in parts]
    named = [{"TopicId": number.to_bytes(16, "big"), "Partitions": rows} for number in topics]
    return sessions.of(sharing(*share_request(Topics=named, **fields)))  # type: ignore[arg-type]


@pytest.mark.parametrize(("topics", "parts"), [(1, SHARE_PARTS_MAX), (SHARE_TOPICS_MAX, 5)])
def test_one_that_is_too_large_grows_no_more(topics: int, parts: int) -> None:
    """Its topics stay, since somebody may owe for them; the next session begins from nothing."""
    sessions = ShareSessions()
    session = asked_for(sessions, range(topics), range(parts), epoch=0)
    assert not session.overflown
    for times in range(1, 4):
        asked_for(sessions, range(topics + times), range(times * parts, (times + 1) * parts))
        session.learn([b"%016d" % times])
        assert session.overflown and len(session.topics) <= SHARE_TOPICS_MAX
        assert not any(session.topics.values())
    asked_for(sessions, range(0), range(0), forgotten="t")
    assert len(session.topics) >= topics
    assert len(asked_for(sessions, range(3), range(2), epoch=0).topics) == 3 and not session.overflown


def test_a_long_name_is_not_kept() -> None:
    """Nor is a session known by it, so it gets a record at a time."""
    sessions = ShareSessions()
    for fields in ({"group": "g" * SHARE_NAME_MAX}, {"MemberId": b"m" * SHARE_NAME_MAX}):
        first, second = (asked_for(sessions, range(1), range(1), epoch=0, **fields) for _ in range(2))
        assert first.overflown and first is not second and not first.topics


def test_what_gives_way_to_whom() -> None:
    """A held request to all that may acknowledge or cannot be looked through, but to nobody else's fetch."""
    held, other = share_request()[0], share_request(MemberId=b"n")[0]
    for frames in ([], [other], [other] * 3):
        assert not may_acknowledge(Waiting(held, *frames))
    acknowledges, ends = share_request(acknowledged="t")[0], share_request(epoch=-1)[0]
    alone = b"\0\x4f" + other[2:]
    for frame in (acknowledges, ends, alone, other[:-9], b"", other + bytes(1 << 16)):
        assert may_acknowledge(Waiting(held, frame)) and may_acknowledge(Waiting(held, other, frame))
    assert may_acknowledge(Waiting(held, *[other] * 10))
