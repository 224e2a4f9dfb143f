"""Fetches of very many topics and partitions, and of more groups than have accounts, metered all the same."""

import pytest
from kafka.protocol.consumer import FetchResponse
from kafka_kit import decode
from meter_kit import GROUPS, TOPIC, Desk, Line, many_groups, used, whole
from traffic_kit import batch, fetch_request, fetch_response, key_of

from enforcer.wire.kafka.frames import FETCH, RequestHeader
from enforcer.wire.kafka.traffic import fetching


def test_a_large_response_is_read_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have their turn between two; all of it is charged at the end."""
    monkeypatch.setattr("enforcer.wire.kafka.traffic.STEP_PARTS", 100)
    desk = Desk(GROUPS)
    topics = {f"t{number}": [b""] for number in range(200)} | {TOPIC: [batch(7)]}
    response = fetch_response(12, topics)
    steps = Line(desk).connection_meter.fetched(response, RequestHeader(FETCH, 12, 1, "c", 0), "bob")
    for _ in range(4):
        assert next(steps) is None and not used(desk.meter)
    assert whole(steps) == (response, 0) and used(desk.meter)["rg1"][2] == 7


@pytest.mark.parametrize("unread", [True, False])
def test_what_comes_of_topics_that_were_not_read(unread: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a session that began before there was a group, or of too many to be read: it is metered, too.

    The names of such topics are asked for once they bring something, which does not pass before.
    """
    monkeypatch.setattr("enforcer.wire.kafka.traffic.FETCH_PARTS_MAX", 2)
    desk = Desk(GROUPS)
    line, header = Line(desk), RequestHeader(FETCH, 16, 1, "c", 0)
    desk.frames.names.update({key_of(name, True): name for name in "ab"})
    frame, asked = fetch_request(16, dict.fromkeys(("a", "b", TOPIC), 1))
    if unread:
        frame, asked = fetch_request(16, {}, epoch=7, session=9)
    data = fetch_response(16, {"a": [b""], TOPIC: [batch(9)]}, session_id=9 * unread)
    assert fetching(frame, asked).more != unread
    assert line.connection_meter.fetch(frame, asked, "bob") is not None
    brought, _ = whole(line.connection_meter.fetched(data, header, "bob"))
    assert decode(FetchResponse, 16, bytes(brought)).responses == [] and not used(desk.meter)
    assert line.connection_meter.fetch(frame, asked, "bob") is None
    ((ids, done),) = line.asked
    assert ids == [key_of(TOPIC, True)]
    done({ids[0]: TOPIC})
    assert line.connection_meter.fetch(frame, asked, "bob") is not None
    assert whole(line.connection_meter.fetched(data, header, "bob"))[0] == data
    assert used(desk.meter)["rg1"][2] == 9 and desk.meter.unmetered == 0


def test_a_group_that_made_room_within_one_session_is_reserved_for_once() -> None:
    """Its topics stand for two accounts of one name then; what was reserved for them goes again."""
    desk = Desk(many_groups(3), subjects_max=2)
    for number in range(2):
        desk.meter.of_topic(f"t.n{number}.x")
    line = Line(desk)
    frame, header = fetch_request(11, dict.fromkeys(("t.n0.x", "t.n1.x", "t.n2.x", "t.n0.y"), 1))
    assert line.connection_meter.fetch(frame, header, "bob") is not None
    assert desk.meter.lines.busy(("g0", "dispatch"))
    response = fetch_response(11, {"t.n0.x": [batch(1)]})
    whole(line.connection_meter.fetched(response, RequestHeader(FETCH, 11, 1, "c", 0), "bob"))
    line.connection_meter.line_up.close()
    assert not len(desk.meter.lines)
    assert not any(desk.meter.lines.busy((f"g{number}", "dispatch")) for number in range(3))
