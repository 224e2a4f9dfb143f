"""What is remembered of a connection's topics, and of what counters leave them, holds until something changes
the answer, and has a bound.
"""

import pytest
from counted_kit import Delivered
from fetch_rig import ADDRESS, BROKER, CLIENT, GROUP, Rig, World, counted_looks, full, sizes
from traffic_kit import batch, fetch_request

from enforcer.kafka.dispatch import session
from enforcer.kafka.dispatch.claims import LimitedTopic
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
    world.counted.change()
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


def test_far_below_a_limit_nothing_is_looked_up_for_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes is counted all the same, and cut; then, and after a change, it is looked up again."""
    world = World(topics={full("t"): (1_000, 0)})
    looks, rig = counted_looks(world, monkeypatch), Rig(world)
    frames = [rig.sent({"t": 1})[1] for _ in range(2)]
    world.now_ms += 9_000
    rig.gets({"t": 1}, {"t": [b""]})
    assert looks == [full("t")] and frames[0].frame == frames[1].frame
    world.now_ms += 1_000
    rig.sent({"t": 1})
    world.change()
    _, plan = rig.sent({"t": 1})
    assert len(looks) == 3
    assert sizes(rig.got(plan, {"t": [batch(1_000) + SIX]})) == [[len(batch(1_000))]]
    assert rig.plan({"t": 1}) is None


@pytest.mark.parametrize("by_entry", [False, True])
@pytest.mark.parametrize(("rate", "looks"), [((100_000, 0), 0), ((1_000, 0), 1), ((0, 500_000), 1)])
def test_what_comes_may_leave_less_than_far_more(
    rate: tuple[int, int], looks: int, by_entry: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it is looked up with the next request, and counted once."""
    world = World(topics={full("t"): rate}, by_entry=by_entry)
    rig = Rig(world)
    rig.sent({"t": 1, "u": 1})
    _, plan = rig.sent({"t": 1, "u": 1})
    its = counted_looks(world, monkeypatch)
    sent = SIX * 20
    assert sizes(rig.got(plan, {"u": [SIX], "t": [sent]})) == [[len(SIX)], [len(sent)]]
    assert world.counted.delivered == [Delivered((BROKER, full("t"), ""), 120, len(sent), 20, True)]
    its.clear()
    rig.sent({"t": 1, "u": 1})
    assert len(its) == looks


def test_bound_on_topics_far_below_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those beyond it are looked up again."""
    monkeypatch.setattr("enforcer.kafka.dispatch.claims._LIMITED_MAX", 1)
    world = World(topics={full(name): (1_000, 0) for name in "tu"})
    looks, rig = counted_looks(world, monkeypatch), Rig(world)
    for _ in range(2):
        rig.sent({"t": 1, "u": 1})
    assert looks == [full("t"), full("u"), full("t")]


def test_what_a_limit_left_when_it_was_reached_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not looked up again before its time, unless limits may have changed."""
    for changes in (False, True):
        world = World()
        rig = Rig(world)
        rig.gets({"t": 1}, {"t": [SIX * 3]})
        looks = counted_looks(world, monkeypatch)
        world.now_ms += 300
        if changes:
            world.change()
        assert rig.plan({"t": 1}) is None and rig.pauses == [700.0]
        assert len(looks) == changes and world.counted.held[-1] == (BROKER, full("t"), "", "topic", "msgs")
        world.now_ms += 700
        rig.sent({"t": 1})
        assert len(looks) == changes + 1


def test_of_an_answer_only_its_marks_are_kept() -> None:
    """Where many transactions were aborted it lists tens of thousands: megabytes for each connection."""
    rig = Rig(World())
    rig.gets({"t": 1}, {"t": [SIX]}, high=77)
    assert list(rig.fetches._deliveries._marks.values()) == [(77, 77, 0)]


def test_of_a_limit_that_was_reached_no_request_is_kept() -> None:
    """It may have named tens of thousands of partitions, and there is one for each of a thousand topics."""
    rig = Rig(World())
    rig.gets({"t": 1}, {"t": [SIX * 3]})
    (kept,) = rig.fetches.claims._limited_before.values()
    assert kept is not None and not any(isinstance(each, LimitedTopic) for each in kept)
