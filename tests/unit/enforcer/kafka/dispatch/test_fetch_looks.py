"""What a Fetch request asks of the counters: nothing that is known, while nothing can have changed it."""

import pytest
from counted_kit import Delivered
from fetch_rig import BROKER, Rig, World, counted_looks, full, sizes
from traffic_kit import batch

from enforcer.kafka.dispatch.claims import LimitedTopic

SIX = batch(6)


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
