"""What is remembered of a connection's topics holds until something changes the answer, and has a bound."""

import pytest
from counted_kit import Delivered
from fetch_rig import ADDRESS, BROKER, CLIENT, GROUP, Rig, World, full, sizes
from traffic_kit import batch, fetch_request

from enforcer.kafka.dispatch import session
from enforcer.kafka.groups.readers import IDLE_MS, Client
from enforcer.kafka.names import ABSENT_MS

SIX = batch(6)


def test_another_assignment_is_followed() -> None:
    """The same topics, read for another group from one request to the next."""
    world = World(subscriptions={(full("t"), GROUP): (60, 0), (full("t"), "h"): (60, 0)})
    rig = Rig(world)
    readers = world.desk.readers
    readers.assigned(CLIENT, GROUP, "m", {"t": frozenset({0})})
    readers.assigned(CLIENT, "h", "n", {"t": frozenset({1})})
    for group, zero, one in ((GROUP, 1, 0), ("h", 0, 1), (GROUP, 0, 1)):
        rig.gets({"t": 1}, {"t": [SIX]})
        assert world.counted.delivered[-1].place[2] == group
        readers.assigned(CLIENT, GROUP, "m", {"t": frozenset({zero})})
        readers.assigned(CLIENT, "h", "n", {"t": frozenset({one})})


def test_a_limit_that_goes_and_another_client() -> None:
    """Neither is taken for what was before."""
    world = World(subscriptions={(full("t"), GROUP): (60, 0)})
    rig = Rig(world)
    world.desk.readers.saw(CLIENT, GROUP)
    _, plan = rig.sent({"t": 1})
    assert plan.cut is not None
    frame, header = fetch_request(12, {"t": 1})
    plan = rig.fetches.plan(frame, header, Client("bob", "10.0.0.2", "tests"), ADDRESS)
    assert plan is not None and plan.cut is None
    _, plan = rig.sent({"t": 1})
    assert plan.cut is not None
    world.counted.subscriptions.clear()
    world.counted.generation += 1
    _, plan = rig.sent({"t": 1})
    assert plan.cut is None


def test_a_group_that_fetches_is_not_idle() -> None:
    """Each request says that it reads, also one whose topics are remembered."""
    world = World(subscriptions={(full("t"), GROUP): (60, 0)})
    rig = Rig(world)
    world.desk.readers.saw(CLIENT, GROUP)
    for _ in range(4):
        _, plan = rig.sent({"t": 1})
        assert plan.cut is not None
        world.now_ms += IDLE_MS * 0.8
    world.now_ms += IDLE_MS
    _, plan = rig.sent({"t": 1})
    assert plan.cut is None


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond them everything is looked up and read again, with the same results."""
    monkeypatch.setattr(session, "KNOWN_MAX", 1)
    monkeypatch.setattr(session, "FRAME_MAX", 10)
    rig = Rig(World(topics={full("t"): (10, 0), full("v"): (10, 0)}))
    for _ in range(2):
        assert sizes(rig.gets({"t": 1, "v": 1}, {"t": [SIX * 3], "v": [SIX * 3]})) == [[len(SIX) * 2]] * 2
        assert rig.plan({"t": 1, "v": 1}) is None
        rig.world.now_ms += 2_000
    assert rig.world.counted.delivered[-1] == Delivered((BROKER, full("v"), ""), 12, len(SIX) * 2, 2, True)


def test_bound_on_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all topics together: a name need not be a topic's, and a thousand of them took gigabytes."""
    monkeypatch.setattr(session, "FETCH_PARTS_MAX", 5)
    rig = Rig(World())
    for number in range(9):
        rig.sent({"t": 1, f"u{number}": 2})
    known = rig.fetches._known._topics.values()
    assert [len(numbers) for numbers, *_ in known] == [1, 2, 2]


def test_a_topic_that_its_broker_does_not_know_yet_has_no_session() -> None:
    """A new one: once known it would come in a session that names it no more, and past its limit."""
    rig = Rig(World(), 13)
    rig.world.names[rig.key("u")] = "u"
    rig.begins({"u": 1})
    for topics, fields, goes_as in (
        ({"t": 1}, {"epoch": 1, "session": 9}, (-1, 1)),
        ({"t": 1, "u": 1}, {"epoch": 0, "session": 9}, (9, -1)),
    ):
        assert rig.plan(topics, **fields) is None
        rig.asked[-1][1]({})
        request, plan = rig.sent(topics, **fields)
        assert (request.session_id, request.session_epoch, plan.cut) == (*goes_as, None)
        rig.world.now_ms += ABSENT_MS
    assert rig.plan({"t": 1, "u": 1}, epoch=0) is None
    rig.asked[-1][1]({rig.key("t"): "t"})
    _, plan = rig.sent({"t": 1, "u": 1}, epoch=0)
    assert plan.cut is not None
