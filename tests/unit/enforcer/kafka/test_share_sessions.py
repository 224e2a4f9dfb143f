"""Share sessions of a connection: what is remembered of them is bounded, whatever is asked for."""

from typing import Any

import pytest
from share_frames import Waiting, id_of, share_request

from enforcer.kafka.share_sessions import (
    SHARE_NAME_MAX,
    SHARE_PARTS_MAX,
    SHARE_SESSION_NOT_FOUND,
    SHARE_SESSIONS_MAX,
    SHARE_TOPICS_MAX,
    Asking,
    Known,
    ShareSession,
    ShareSessions,
    may_acknowledge,
)
from enforcer.wire.kafka.traffic import sharing

REFUSED = 123
"""INVALID_SHARE_SESSION_EPOCH."""


def ask(sessions: ShareSessions, topics: str = "", **fields: Any) -> Asking:
    """A request for partition 0 of topics."""
    return sessions.of(sharing(*share_request(tuple(topics), **fields)), 0)


def answer(asking: Asking, error: int = 0) -> ShareSession:
    """It is answered, with nothing."""
    asking.hear(error)
    return asking.session


def asked_for(
    sessions: ShareSessions, topics: range, parts: range, error: Any = 0, **fields: Any
) -> ShareSession:
    """The session of a request for partitions of topics, which is answered."""
    rows = [{"PartitionIndex": number} for number in parts]
    named = [{"TopicId": number.to_bytes(16, "big"), "Partitions": rows} for number in topics]
    return answer(sessions.of(sharing(*share_request(Topics=named, **fields)), 0), error)


@pytest.mark.parametrize(("topics", "parts"), [(1, SHARE_PARTS_MAX), (SHARE_TOPICS_MAX, 5)])
def test_one_that_is_too_large_grows_no_more(topics: int, parts: int) -> None:
    """Its topics stay, since somebody may owe for them; the next session begins from nothing."""
    sessions = ShareSessions(Known())
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


@pytest.mark.parametrize(
    "fields", [{"forgotten": "t"}, {"topics": "u", "epoch": 0}, {"epoch": -1}, {"topics": "u", "epoch": -7}]
)
def test_what_a_request_lets_go_stays_until_it_is_accepted(fields: dict[str, Any]) -> None:
    """A broker that refuses it goes on with that; only the request itself brings nothing of it."""
    sessions = ShareSessions(Known())
    answer(ask(sessions, "tu", epoch=0))
    for error in (REFUSED, 0):
        asking = ask(sessions, **fields)
        assert id_of("t") not in asking.session.wanted
        assert id_of("t") in ask(sessions).session.wanted
        answer(asking, error)
        assert (id_of("t") in ask(sessions).session.wanted) is bool(error)


def test_partitions_leave_one_by_one() -> None:
    """Each with the request that was accepted."""
    sessions, topic = ShareSessions(Known()), bytes(16)
    asked_for(sessions, range(1), range(3), epoch=0)
    for part, error in ((0, 0), (1, REFUSED), (2, 0)):
        gone = [{"TopicId": topic, "Partitions": [part]}]
        session = asked_for(sessions, range(0), range(0), error, ForgottenTopicsData=gone)
    assert session.topics == {topic: {1}}


def test_what_is_named_again_stays() -> None:
    """A client need not await an answer to ask again: each request takes back what is its own."""
    sessions = ShareSessions(Known())
    answer(ask(sessions, "t", epoch=0, forgotten="t"))
    steps: list[tuple[dict[str, Any], int]] = [({"forgotten": "t"}, 1), ({"epoch": -1}, 0)]
    for goes, comes in steps:
        both = ask(sessions, **goes), ask(sessions, "t", epoch=comes)
        for asking in both:
            assert answer(asking) is ask(sessions).session
            assert asking.session.wanted == [id_of("t")]
    both = ask(sessions, forgotten="t"), ask(sessions, forgotten="t")
    for asking, error in zip(both, (0, REFUSED), strict=True):
        answer(asking, error)
        assert ask(sessions).session.wanted == [id_of("t")]


def test_where_two_sessions_have_no_room_none_is_known_until_the_answer() -> None:
    """The bounds hold for both together; a request that begins one sees that alone."""
    sessions = ShareSessions(Known())
    for topics, parts in ((SHARE_TOPICS_MAX, 1), (2, SHARE_PARTS_MAX // 2)):
        session = asked_for(sessions, range(topics), range(parts), epoch=0)
        assert len(session.wanted) == topics and not ask(sessions).session.overflown
        for error in (REFUSED, 0):
            asked_for(sessions, range(5_000, 5_003), range(1), error, epoch=0)
            assert not session.overflown and len(session.topics) == 3
            assert ask(sessions).session.overflown is bool(error)


def test_a_session_whose_begin_is_refused_has_not_begun() -> None:
    """It might be one that began elsewhere."""
    sessions = ShareSessions(Known())
    for error in (REFUSED, 0):
        session = asked_for(sessions, range(1), range(1), error, epoch=0)
        assert session.begun and not session.unheard
        ask(sessions)
        assert session.unheard is bool(error) is not session.begun


def test_a_topic_that_came_though_it_was_let_go_stays() -> None:
    """In a session that began unread: of what partitions it has, the request may have named none."""
    sessions, topic = ShareSessions(Known()), id_of("t")
    gone = [{"TopicId": topic, "Partitions": [99]}]
    for _ in range(3):
        ask(sessions).session.learn([topic])
        asking = ask(sessions, ForgottenTopicsData=gone)
        again = topic in asking.session.wanted
        assert (topic in answer(asking).topics) is again
    assert again
    answer(ask(sessions, "t", epoch=0))
    assert not answer(ask(sessions, forgotten="t")).topics


def test_one_that_is_over_makes_room() -> None:
    """But where its end is refused it goes on, unless the broker has none."""
    sessions = ShareSessions(Known())
    for number in range(SHARE_SESSIONS_MAX):
        answer(ask(sessions, "t", epoch=0, MemberId=b"%d" % number))
    for error in (REFUSED, 0):
        assert ask(sessions, "t", epoch=0, MemberId=b"more").session.overflown
        answer(ask(sessions, epoch=-1, MemberId=b"0"), error)
    assert ask(sessions, epoch=-1, MemberId=b"none").number == 0
    assert not ask(sessions, "t", epoch=0, MemberId=b"more").session.overflown
    answer(ask(sessions, epoch=-1, MemberId=b"1"), SHARE_SESSION_NOT_FOUND)
    assert not ask(sessions, "t", epoch=0, MemberId=b"last").session.overflown


def test_what_another_connection_lets_come_is_known() -> None:
    """A broker goes by group and member alone; but nobody is told what another user's requests name."""
    known = Known()
    one, other, full = (ShareSessions(known) for _ in range(3))
    answer(ask(one, "u", epoch=0))
    answer(ask(other, "t", epoch=0))
    assert ask(one).session.wanted == [id_of("t")]
    answer(ask(other, epoch=-1))
    answer(ask(other, "v", epoch=0))
    assert ask(one).session.wanted == [id_of("v")]
    for number in range(SHARE_SESSIONS_MAX):
        ask(full, epoch=0, MemberId=b"%d" % number)
    answer(ask(full, "w", epoch=0))
    assert ask(one).session.wanted == [id_of("w")]
    assert one.of(sharing(*share_request()), 0, "somebody else").session.unheard
    assert one.of(sharing(*share_request()), 1).session.unheard and not one.partitions


def test_a_long_name_is_not_kept() -> None:
    """Nor is a session known by it, so it gets a record at a time."""
    sessions = ShareSessions(Known())
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
