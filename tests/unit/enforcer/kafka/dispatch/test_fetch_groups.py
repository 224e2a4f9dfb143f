"""Fetch requests of clients that act for groups: counted for the one, for each that may be, or for none."""

import pytest
from fetch_rig import ADDRESS, BROKER, CLIENT, GROUP, Rig, World, fetched, full, sizes
from kafka.protocol.consumer import FetchRequest
from kafka_kit import decode
from traffic_kit import batch, fetch_request

from enforcer.kafka.groups.readers import Member

SIX = batch(6)


def test_groups() -> None:
    """A group's limit is its own; a fetch of one of two groups counts for each that has a limit."""
    rates = {(full("t"), GROUP): (6, 0), (full("t"), "i"): (12, 0)}
    world = World(subscriptions=rates, topics={full("t"): (60, 0)})
    rig = Rig(world)
    world.desk.readers.assigned(CLIENT, GROUP, "m", {"t": frozenset({0})})
    assert sizes(rig.gets({"t": 1}, {"t": [SIX * 3]})) == [[len(SIX)]]
    assert rig.plan({"t": 1}) is None
    for group in "hi":
        world.desk.readers.assigned(CLIENT, group, "m", {"t": frozenset({0})})
    assert rig.plan({"t": 1}) is None
    world.now_ms += 1_000
    assert sizes(rig.gets({"t": 1}, {"t": [SIX * 3]})) == [[len(SIX)]]
    assert [delivered.place[2] for delivered in world.counted.delivered] == [GROUP, GROUP, "i"]
    assert world.counted.held[-1] == (BROKER, full("t"), GROUP, "subscription", "msgs")


def ambiguous(rate: int, **settings: str) -> World:
    """Where a client reads for a limited group or for another one."""
    world = World(settings, subscriptions={(full("t"), GROUP): (rate, 0)})
    for group in (GROUP, "h"):
        world.desk.readers.assigned(CLIENT, group, "m", {"t": frozenset({0})})
    return world


def test_what_may_be_of_several_groups_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Once for a client, with what to do; each fetch is counted, though it is planned again and again."""
    world = ambiguous(6)
    world.now_ms = 6_000.0
    rig = Rig(world)
    rig.gets({"t": 1}, {"t": [SIX * 3]})
    assert rig.plan({"t": 1}) is None and rig.plan({"t": 1}) is None
    (said,) = [record.getMessage() for record in caplog.records]
    assert "'g', 'h'" in said and "client.id" in said
    assert world.counter("ambiguous") == 2


def test_what_may_be_of_several_groups_leaves_out_seconds() -> None:
    """One of four, by chance, so that any two that read at one pace come to stand at different offsets."""
    world = ambiguous(1_000)
    rigs = [Rig(world) for _ in range(10)]
    came: list[list[bool]] = [[] for _ in rigs]
    for _ in range(40):
        for rig, its in zip(rigs, came, strict=True):
            its.append(rig.plan({"t": 1}) is not None)
        world.now_ms += 1_000
    assert len(set(map(tuple, came))) == len(rigs) and all(25 <= sum(its) < 40 for its in came)


def test_ambiguous_fetches_may_pass() -> None:
    """With the setting the limit of a subscription alone does not hold; there is no session all the same."""
    world = ambiguous(6, ambiguous_fetch="pass")
    rig = Rig(world)
    request, plan = rig.sent({"t": 1}, session=5)
    assert (request.session_id, request.session_epoch) == (5, -1) and plan.cut is None
    # A later part has held it.
    rig.fetches.take_back()
    rig.sent({"t": 1}, session=5)
    assert world.counter("ambiguous") == 1


def test_a_fetch_that_its_group_holds_between_is_kept_once() -> None:
    """For as long as any: its time goes on from when it was kept first."""
    rig = Rig(World())
    rig.gets({"t": 1}, {"t": [SIX * 3]})
    assert rig.plan({"t": 1}) is None
    rig.world.now_ms += 1_000
    rig.world.change()
    for _ in range(2):
        rig.sent({"t": 1})
        rig.fetches.take_back()
    rig.world.counted.deliver(BROKER, full("t"), "", msgs=90, size=1, entries=1, backlog=True)
    rig.world.change()
    plan = rig.plan({"t": 1})
    assert plan is not None and plan.answer and rig.world.counter("held") == 1


def test_an_unknown_client_waits_for_what_others_may_say() -> None:
    """Two seconds once, where there are other proxies and groups have limits; then it is of no group."""
    world = World(subscriptions={(full("t"), GROUP): (6, 0)})
    world.counted.others = 1
    rig = Rig(world, met=False)
    assert rig.plan({"t": 1}) is None and rig.pauses == [50.0]
    world.now_ms += 1_999
    assert rig.plan({"t": 1}) is None
    world.now_ms += 1
    _, plan = rig.sent({"t": 1})
    assert plan.cut is None
    rig = Rig(world, met=False)
    assert rig.plan({"t": 1}) is None
    world.now_ms += 999
    world.desk.told([Member(CLIENT, GROUP, "m", None)], [])
    # A new connection may be of a group more.
    assert rig.plan({"t": 1}) is None
    world.now_ms += 1
    _, plan = rig.sent({"t": 1})
    assert plan.cut is not None
    assert Rig(world, met=False).plan({"u": 1}) is not None


def test_another_client_id_in_a_session() -> None:
    """A session that is nobody's limited one is looked at again for who asks next."""
    world = World(subscriptions={(full("t"), GROUP): (6, 0)})
    rig = Rig(world)
    world.desk.readers.saw(CLIENT, GROUP)
    for client, session in ((CLIENT._replace(client_id="x"), 9), (CLIENT, -1)):
        other = client._replace(client_id="x")
        plan = rig.fetches.plan(*fetch_request(12, {"t": 1}, epoch=0), other, ADDRESS)
        assert plan is not None and plan.look is not None
        plan.look(fetched(12, {}, 0, session_id=9))
        plan = rig.fetches.plan(*fetch_request(12, {}, epoch=1, session=9), client, ADDRESS)
        assert plan is not None and decode(FetchRequest, 12, plan.frame).session_id == session
