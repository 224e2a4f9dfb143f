"""A group whose account makes room for others while the accounts of one session are looked up."""

from meter_kit import Desk, Line, many_groups, whole
from traffic_kit import batch, fetch_request, fetch_response

from enforcer.wire.kafka.frames import FETCH, RequestHeader


def test_a_group_that_made_room_within_one_session_is_reserved_for_once() -> None:
    """Its topics stand for two accounts of one name then; what was reserved for them goes again."""
    desk = Desk(many_groups(3), accounts_max=2)
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
