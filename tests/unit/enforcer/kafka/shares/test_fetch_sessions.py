"""Fetch sessions that are metered: which topics hold a request and make it smaller."""

import pytest
from meter_kit import GROUPS, TOPIC, Desk, Line, sessions, whole
from traffic_kit import batch, fetch_request, fetch_response, key_of

from enforcer.kafka.part import FETCH_LIMIT_MAX
from enforcer.kafka.share_sessions import SHARE_TOPICS_MAX
from enforcer.wire.kafka.traffic import STEP_PARTS, UNKNOWN_SESSION, session_of
from streaming.policy.policy_set import PolicySet

REFUSED = 71
"""INVALID_FETCH_SESSION_EPOCH."""


@pytest.fixture
def desk() -> Desk:
    """Its topics are in groups."""
    desk = Desk(GROUPS)
    desk.frames.names.update({key_of(TOPIC, True): TOPIC, key_of("plain", True): "plain"})
    return desk


@pytest.fixture
def line(desk: Desk) -> Line:
    """A connection."""
    return Line(desk)


def test_the_table_of_a_session_is_bounded(line: Line) -> None:
    """Further topics do not make its responses smaller; of very many partitions nobody knows which left."""
    names = {f"plain-{number}": 1 for number in range(SHARE_TOPICS_MAX)}
    assert sessions(line, 11, {**names, TOPIC: 1}, epoch=0) == FETCH_LIMIT_MAX
    assert len(line.connection_meter._session) == SHARE_TOPICS_MAX
    assert sessions(line, 11, {TOPIC: STEP_PARTS}, epoch=0) == 5_000
    assert sessions(line, 11, {TOPIC: 1}, epoch=1, forgotten={TOPIC: [0]}) == 5_000


@pytest.mark.parametrize("version", [7, 12, 16])
def test_a_topic_that_a_session_has_no_more_limits_it_no_more(line: Line, version: int) -> None:
    """A consumer that pauses a topic, whose group may owe, goes on with the others as they are."""
    assert sessions(line, version, {TOPIC: 2, "plain": 1}, epoch=0) == 5_000
    assert sessions(line, version, {}, epoch=1, forgotten={TOPIC: [0]}) == 5_000
    assert sessions(line, version, {}, epoch=2, forgotten={TOPIC: [1]}) == FETCH_LIMIT_MAX


@pytest.mark.parametrize("version", [7, 12, 16])
def test_a_full_fetch_without_topics_forgets_the_last_session(line: Line, version: int) -> None:
    """It opens a session that is empty, or ends one: nobody's debt holds it back any more."""
    for epoch in (0, -1):
        assert sessions(line, version, {TOPIC: 2}, epoch=0) == 5_000
        assert sessions(line, version, {}, epoch=epoch) == FETCH_LIMIT_MAX


def test_a_session_that_went_on_unread_has_unknown_topics(desk: Desk, line: Line) -> None:
    """All groups were taken away and set again: nobody waits for a topic that it may have no more."""
    assert sessions(line, 12, {TOPIC: 2}, epoch=0) == 5_000
    for policies in ({}, GROUPS):
        desk.meter.set_policies(PolicySet(dict(policies)))
    assert sessions(line, 12, {}, epoch=7) == FETCH_LIMIT_MAX
    assert sessions(line, 12, {TOPIC: 2}, epoch=8) == 5_000


@pytest.mark.parametrize("version", [7, 12, 16])
def test_what_the_broker_refused_lets_no_topic_go(line: Line, version: int) -> None:
    """Its session goes on with that; what it brought beyond the share kept others of the group waiting."""
    assert sessions(line, version, {TOPIC: 1, "plain": 1}, epoch=0) == 5_000
    for error, left in ((REFUSED, 5_000), (0, FETCH_LIMIT_MAX)):
        answer = fetch_response(version, {}, error_code=error)
        forgets = sessions(line, version, {}, epoch=9, answer=answer, forgotten={TOPIC: [0]})
        assert forgets == FETCH_LIMIT_MAX and sessions(line, version, {}, epoch=1) == left


def test_a_request_of_another_kind_hides_no_topic_of_a_session(line: Line) -> None:
    """It is outside of sessions, or names topics by id in one that has names: there the broker refuses it."""
    assert sessions(line, 12, {TOPIC: 1}, epoch=0) == 5_000
    for version, epoch in ((12, -1), (16, 1)):
        sessions(line, version, {"plain": 1}, epoch, fetch_response(version, {}, error_code=REFUSED))
        assert sessions(line, 12, {}, epoch=1) == 5_000


def test_a_session_that_began_unread_is_known_by_what_it_brings(line: Line) -> None:
    """As all that were there before a first group: each answer brought more than others of that get."""
    answer = fetch_response(12, {TOPIC: [batch(1)]})
    assert sessions(line, 12, {}, epoch=7, answer=answer) == FETCH_LIMIT_MAX
    assert sessions(line, 12, {}, epoch=8) == 5_000
    sessions(line, 12, {}, epoch=9, forgotten={TOPIC: [0]})
    assert sessions(line, 12, {}, epoch=10) == FETCH_LIMIT_MAX


def test_a_session_of_other_topics_goes_on_no_more(line: Line) -> None:
    """It began before, or elsewhere, and brought them out of turn; until the answer no number is known."""
    meter = line.connection_meter

    def goes_as(session: int, epoch: int) -> int:
        frame, header = fetch_request(12, {"plain": 1}, epoch=epoch, session=session)
        admitted = meter.fetch(frame, header, "bob")
        assert admitted is not None and len(admitted[0]) == len(frame)
        return int(session_of(admitted[0], header)[1])

    assert [goes_as(6, 5), goes_as(0, 0)] == [6, 0]
    begins, (_, header) = meter.asking, fetch_request(12, {})
    assert goes_as(6, 6) == UNKNOWN_SESSION
    whole(meter.fetched(fetch_response(12, {}, session_id=7), header, "bob", asking=begins))
    assert [goes_as(6, 6), goes_as(7, 1)] == [UNKNOWN_SESSION, 7]
