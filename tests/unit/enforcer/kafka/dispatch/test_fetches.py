"""What becomes of Fetch requests: passed, cut, kept, answered; in what session, and in whose turn."""

from typing import Any
from uuid import UUID

import pytest
from counted_kit import Delivered
from each_kit import each
from fetch_rig import ADDRESS, BROKER, CLIENT, Rig, World, fetched, full, sizes, two_waiting
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka_kit import build, decode, request
from traffic_kit import batch, fetch_request

from enforcer.kafka.dispatch.context import LARGE_MS
from enforcer.kafka.dispatch.session import TOPICS_MAX
from enforcer.kafka.part import FETCH_LIMIT_MAX
from enforcer.wire.kafka.traffic import FETCH_PARTS_MAX

SIX = batch(6)


def learn(rig: Rig, *names: str) -> None:
    """The names of topic ids are known."""
    for name in names:
        if rig.version >= 13:
            rig.world.names[rig.key(name)] = name


@each("version", range(4, 19))
def test_a_limited_topic_is_cut(version: int) -> None:
    """Ten left: two batches of six go on, the third comes another time; the session is none."""
    rig = Rig(World(), version)
    learn(rig, "t", "u")
    request, plan = rig.sent({"t": 1, "u": 1}, epoch=0, session=0)
    assert rig.names(request) == [rig.key("t"), rig.key("u")]
    if version >= 7:
        assert (request.session_id, request.session_epoch) == (0, -1)
    limits = [part.partition_max_bytes for topic in request.topics for part in topic.partitions]
    assert limits == [15_360, 1 << 20]
    assert request.max_bytes == FETCH_LIMIT_MAX and request.max_wait_ms == 500
    response = rig.got(plan, {"t": [SIX * 3], "u": [SIX * 3]})
    assert sizes(response) == [[len(SIX) * 2], [len(SIX) * 3]]
    assert rig.world.counted.delivered == [Delivered((BROKER, full("t"), ""), 12, len(SIX) * 2, 2, True)]
    assert rig.world.counter("cut") == 1
    assert rig.world.counted.held == [(BROKER, full("t"), "", "topic", "msgs")]


@each("version", range(4, 19))
def test_a_topic_that_must_wait_is_left_out(version: int) -> None:
    """The others go on; the wait ends when it may be read; the client gets an answer for it."""
    rig = Rig(World(), version)
    learn(rig, "t", "u")
    assert sizes(rig.gets({"t": 1}, {"t": [SIX * 2]}, high=77)) == [[len(SIX) * 2]]
    rig.world.now_ms += 700
    request, plan = rig.sent({"t": 1, "u": 1})
    assert rig.names(request) == [rig.key("u")] and request.max_wait_ms == 300
    response = rig.got(plan, {"u": [SIX]})
    assert rig.names(response) == [rig.key("u"), rig.key("t")]
    assert sizes(response) == [[len(SIX)], [0]]
    (part,) = response.responses[1].partitions
    assert (part.error_code, part.high_watermark) == (0, 77)
    assert response.throttle_time_ms == 0


@each("version", range(4, 19))
def test_all_must_wait(version: int) -> None:
    """The request is kept until something is left, or for a second, and then answered without the broker."""
    rig = Rig(World(), version)
    learn(rig, "t")
    rig.gets({"t": 2}, {"t": [SIX * 3, SIX * 3]})
    rig.world.counted.deliver(BROKER, full("t"), "", msgs=10, size=1, entries=1, backlog=True)
    assert rig.plan({"t": 2}) is None
    rig.world.now_ms += 600
    assert rig.plan({"t": 2}) is None
    assert rig.pauses == [1_000.0, 400.0] and rig.world.counter("held") == 1
    rig.world.now_ms += 400
    plan = rig.plan({"t": 2})
    assert plan is not None and not plan.frame
    answer = decode(FetchResponse, version, plan.answer)
    assert answer.throttle_time_ms == 1_000 and sizes(answer) == [[0, 0]]
    rig.world.now_ms += 1_000
    assert rig.plan({"t": 2}) is not None
    assert rig.world.counter("held") == 1


@pytest.mark.parametrize("passes", [{"u": 1}, {"t": FETCH_PARTS_MAX + 1}])
def test_what_passes_is_not_kept_any_more(passes: dict[str, int]) -> None:
    """Whatever let it pass: the next one that waits has its own time."""
    rig = Rig(World())
    rig.gets({"t": 1}, {"t": [SIX * 3]})
    assert rig.plan({"t": 1}) is None
    rig.world.now_ms += 500
    rig.sent(passes)
    rig.world.counted.deliver(BROKER, full("t"), "", msgs=90, size=1, entries=1, backlog=True)
    rig.world.change()
    rig.world.now_ms += 2_000
    assert rig.plan({"t": 1}) is None and rig.world.counter("held") == 2


def test_nothing_limited_passes_in_its_session() -> None:
    """As it came; also what only tells what changes."""
    rig = Rig(World())
    rig.begins({"u": 1})
    for topics, epoch in (({}, 1), ({"v": 1}, 2), ({"u": 1}, -1)):
        plan = rig.plan(topics, epoch=epoch, session=9)
        assert plan is not None and plan.cut is None and plan.look is None
        assert plan.frame == fetch_request(12, topics, epoch=epoch, session=9)[0]


def test_a_session_of_another_connection_is_not_known() -> None:
    """One that began before the limit goes on nowhere else, whatever that connection reads."""
    rig = Rig(World())
    answer = fetched(12, {}, 0, session_id=7)
    _, first = rig.sent({"u": 1}, epoch=0)
    request, second = rig.sent({"v": 1}, epoch=0)
    assert request.max_bytes == FETCH_LIMIT_MAX
    assert first.look is not None and first.look(answer) == answer
    # Of two under way the last one is meant.
    request, _ = rig.sent({}, epoch=1, session=7)
    assert request.session_id == -1
    assert second.look is not None
    second.look(fetched(12, {}, 0, session_id=8))
    for asked, session in ((8, 8), (7, -1), (8, -1)):
        request, _ = rig.sent({}, epoch=1, session=asked)
        assert request.session_id == session


def test_without_room_for_a_session_nothing_is_read() -> None:
    """The client lists its topics each time; where one begins after all it is asked to begin once more."""
    rig = Rig(World())
    rig.begins({"u": 1}, session=0)
    for topic in ("u", "v"):
        request, plan = rig.sent({topic: 1}, epoch=0)
        assert plan.look is None and request.max_bytes == 1 << 20
    request, _ = rig.sent({}, epoch=1, session=9)
    assert request.session_id == -1
    rig.begins({"v": 1})
    request, _ = rig.sent({}, epoch=1, session=9)
    assert request.session_id == 9


def test_sessions_that_must_end() -> None:
    """One that began unread, one that gets a limited topic, one whose topics get a limit."""
    world = World()
    for before, topics in (((), {}), (({"u": 1},), {"t": 1}), (({"u": 1},), {})):
        rig = Rig(world)
        for full_request in before:
            rig.begins(full_request)
        if before and not topics:
            world.counted.topics[full("u")] = (10, 0)
            world.counted.change()
        request, plan = rig.sent(topics, epoch=3, session=9)
        assert (request.session_id, request.session_epoch) == (-1, 3) and plan.cut is None
        # The client begins anew.
        request, plan = rig.sent({"t": 1}, epoch=0, session=9)
        assert (request.session_id, request.session_epoch) == (9, -1) and plan.cut is not None
        rig.fetches.close()


def test_a_session_that_went_on_unread_must_end() -> None:
    """While there was no limit at all nothing was read: it may have got any topic meanwhile."""
    rig = Rig(World())
    rig.begins({"u": 1})
    request, _ = rig.sent({}, epoch=1, session=9)
    assert request.session_id == 9
    rig.world.counted.begun += 1
    request, _ = rig.sent({}, epoch=7, session=9)
    assert request.session_id == -1
    request, plan = rig.sent({"t": 1, "u": 1}, epoch=0, session=9)
    assert request.session_epoch == -1 and plan.cut is not None


def test_more_topics_than_are_remembered() -> None:
    """Such a connection has no session, so that each request lists all topics."""
    rig = Rig(World())
    many = {f"u{number}": 1 for number in range(TOPICS_MAX + 1)}
    request, _ = rig.sent(many, epoch=0)
    assert request.session_epoch == -1
    request, _ = rig.sent({}, epoch=1, session=9)
    assert request.session_id == -1


@pytest.mark.parametrize("version", [11, 14, 15, 18])
def test_who_claims_to_be_a_replica_is_limited(version: int) -> None:
    """From version 15 on the claim stands in a tagged field; real replicas do not go through a proxy."""
    rig = Rig(World(), version)
    learn(rig, "t")
    claim = {"replica_id": 2, "replica_state": {"replica_id": 2, "replica_epoch": -1}}
    topics = [_topic(version, rig.key("t"), 0)]
    fields = {"max_wait_ms": 1, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics}
    frame, header = request(build(FetchRequest, version, **claim, **fields))
    plan = rig.fetches.plan(frame, header, CLIENT, ADDRESS)
    assert plan is not None and plan.cut is not None
    assert sizes(rig.got(plan, {"t": [SIX * 3]})) == [[len(SIX) * 2]]


def _topic(version: int, key: bytes, *numbers: int) -> dict[str, Any]:
    """A topic of a request, with these partitions."""
    part = {"fetch_offset": 0, "partition_max_bytes": 1 << 20}
    name = {"topic": key.decode()} if version < 13 else {"topic_id": UUID(bytes=key)}
    return name | {"partitions": [part | {"partition": number} for number in numbers]}


@pytest.mark.parametrize("version", [4, 12, 13, 18])
def test_a_topic_in_several_places_of_a_request(version: int) -> None:
    """It counts, waits and is answered as one topic: Java clients of two topics ask so."""
    world = World()
    rig = Rig(world, version)
    learn(rig, "t", "u")
    t, u = rig.key("t"), rig.key("u")
    topics = [_topic(version, key, number) for key, number in ((t, 0), (u, 0), (t, 1))]
    fields = {"max_wait_ms": 1, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics}
    frame, header = request(build(FetchRequest, version, **fields))
    plan = rig.fetches.plan(frame, header, CLIENT, ADDRESS)
    assert plan is not None and len(decode(FetchRequest, version, plan.frame).topics) == 3
    response = rig.got(plan, {"t": [SIX * 2, SIX * 2], "u": [SIX * 2]})
    assert sizes(response) == [[len(SIX) * 2, 0], [len(SIX) * 2]]
    assert [delivered.msgs for delivered in world.counted.delivered] == [12]
    plan = rig.fetches.plan(frame, header, CLIENT, ADDRESS)
    assert plan is not None and rig.names(decode(FetchRequest, version, plan.frame)) == [u]
    response = rig.got(plan, {"u": [SIX]})
    assert rig.names(response) == [u, t]
    assert [part.partition_index for part in response.responses[1].partitions] == [0, 1]


def test_a_batch_that_is_cut_off_does_not_pass() -> None:
    """It does not count, so a client that reads of it what is there must not get it."""
    rig = Rig(World())
    assert sizes(rig.gets({"t": 2}, {"t": [SIX + SIX[:-1], SIX[:-1]]})) == [[len(SIX), 0]]
    assert [delivered.msgs for delivered in rig.world.counted.delivered] == [6]
    assert rig.world.counter("cut") == 0


def test_names_and_proof_are_asked_for_first() -> None:
    """Ids without a name, once; a client that the broker has not answered yet."""
    rig = Rig(World(), 13, proven=False)
    assert rig.plan({"t": 1}) is None and rig.plan({"t": 1}) is None
    ((topics, done),) = rig.asked
    assert topics == [rig.key("t")] and len(rig.pauses) == 2
    done({topics[0]: "t"})
    assert rig.woken == 1
    _, plan = rig.sent({"t": 1})
    assert plan.cut is not None
    unknown = Rig(World(), 13)
    assert unknown.plan({"u": 1}) is None
    unknown.asked[0][1]({})
    _, plan = unknown.sent({"u": 1})
    assert plan.cut is None and len(unknown.asked) == 1
    unproven = Rig(World(), 12, proven=False)
    assert unproven.plan({"t": 1}) is None and unproven.asked[0][0] == []
    unproven.asked[0][1]({})
    assert unproven.plan({"t": 1}) is not None


def test_bytes_and_entries() -> None:
    """A limit in bytes cuts behind the batch that reaches it; where entries count, batches do."""
    world = World(topics={full("t"): (0, len(SIX) + 1)})
    rig = Rig(world)
    assert sizes(rig.gets({"t": 1}, {"t": [SIX * 4]})) == [[len(SIX) * 2]]
    rig = Rig(World(topics={full("t"): (3, 0)}, by_entry=True))
    request, plan = rig.sent({"t": 1})
    assert request.topics[0].partitions[0].partition_max_bytes == 3 * 1_536
    assert sizes(rig.got(plan, {"t": [SIX * 4]})) == [[len(SIX) * 3]]


def test_partitions_have_their_turns() -> None:
    """What was served longest ago comes first."""
    rig = Rig(World(topics={full("t"): (6, 0)}))
    seen = []
    for _ in range(4):
        seen.append(sizes(rig.gets({"t": 3}, {"t": [SIX] * 3}))[0])
        rig.world.now_ms += 1_000
    size = len(SIX)
    assert seen == [[size, 0, 0], [0, size, 0], [0, 0, size], [size, 0, 0]]


def test_whoever_has_caught_up() -> None:
    """With the flag off it is neither held nor cut, nor charged; with a backlog it is."""
    rig = Rig(World(topics={full("t"): (10, 0)}, all_charged=False))
    assert sizes(rig.gets({"t": 1}, {"t": [SIX * 3]}, high=6)) == [[len(SIX) * 3]]
    assert rig.world.counted.delivered[-1].backlog is False
    rig.world.counted.deliver(BROKER, full("t"), "", msgs=10, size=1, entries=1, backlog=True)
    request, plan = rig.sent({"t": 1})
    assert request.topics[0].partitions[0].partition_max_bytes == 1 << 20
    assert sizes(rig.got(plan, {"t": [SIX]}, high=1_000)) == [[0]]
    assert rig.plan({"t": 1}) is None
    rig = Rig(World())
    assert sizes(rig.gets({"t": 1}, {"t": [SIX * 3]}, high=6)) == [[len(SIX) * 2]]


def test_topics_of_one_connection_have_their_turns() -> None:
    """Where the broker's limit is for both, neither is always first."""
    world = World({"dispatch_hold_ms": 10_000}, broker=(10, 0))
    rig = Rig(world)
    served = []
    for _ in range(5):
        request, plan = rig.sent({"t": 1, "u": 1})
        records = {topic.topic: [batch(10)] for topic in request.topics}
        served.append(
            [name for name, row in zip(records, sizes(rig.got(plan, records)), strict=False) if row[0]]
        )
        assert rig.plan({"t": 1, "u": 1}) is None
        world.now_ms += 1_000
    assert served == [["t"], ["t"], ["u"], ["t"], ["u"]]


def test_what_is_remembered_of_partitions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those beyond the bound no offsets are told while they must wait."""
    monkeypatch.setattr("enforcer.kafka.dispatch.deliveries.MARKS_MAX", 2)
    monkeypatch.setattr("enforcer.kafka.dispatch.claims._LIMITED_MAX", 1)
    rig = Rig(World(topics={full("t"): (10, 0), full("v"): (10, 0)}))
    rig.gets({"t": 3, "v": 1}, {"t": [batch(10), b"", b""], "v": [batch(10)]}, high=50)
    parts = rig.gets({"t": 3, "u": 1}, {"u": [b""]}).responses[1].partitions
    assert [part.high_watermark for part in parts] == [50, -1, -1]


def test_two_connections_have_their_turns() -> None:
    """Who waits for longest goes on; what it may bring is not for the others until it has come."""
    world, first, second = two_waiting()
    for before, behind in ((first, second), (second, first), (first, second)):
        world.now_ms += 1_000
        assert behind.plan({"t": 1}) is None
        _, plan = before.sent({"t": 1})
        assert behind.plan({"t": 1}) is None and behind.pauses[-1] == 100.0
        before.got(plan, {"t": [batch(10)]})
        assert behind.woken > 0
        assert before.plan({"t": 1}) is None and behind.plan({"t": 1}) is None
    first.fetches.close()
    second.fetches.close()
    assert len(world.desk.lines) == 0


def test_a_fetch_of_hundreds_of_partitions_brings_more_at_once() -> None:
    """Each of them takes its time, whatever it brings."""
    limits = [Rig(World()).sent({"t": parts}, max_bytes=1 << 30)[0].max_bytes for parts in (256, 300, 600)]
    assert limits == [FETCH_LIMIT_MAX, 300 * 2_048, 2 * FETCH_LIMIT_MAX]


def test_a_reservation_ends() -> None:
    """A long poll that brings nothing keeps others waiting for a moment only; what was not sent does not."""
    world, first, second = two_waiting()
    world.now_ms += 1_000
    assert first.plan({"t": 1}) is not None
    assert second.plan({"t": 1}) is None
    world.now_ms += 100
    assert second.plan({"t": 1}) is not None
    second.fetches.claims.settle()
    first.fetches.claims.settle()
    assert len(world.desk.lines) == 0


def test_an_error_of_the_broker_passes() -> None:
    """What is no answer to the request as a whole is the client's."""
    rig = Rig(World())
    assert rig.gets({"t": 1}, {}, error_code=70).error_code == 70


@pytest.mark.parametrize("version", [11, *(pytest.param(one, marks=pytest.mark.soak) for one in (4, 12, 16))])
def test_requests_of_too_many_partitions_go_on_one_by_one(version: int) -> None:
    """Outside of sessions, with one batch, one a second of all connections; nobody's connection ends."""
    world = World()
    rig, other = Rig(world, version), Rig(world, version)
    learn(rig, "t", "u")
    many, session = {"t": 1, "u": FETCH_PARTS_MAX + 1}, {"session": 5, "epoch": 0} if version >= 7 else {}
    for asking in (rig, other):
        assert world.counter("large") == (asking is other)
        request, plan = asking.sent(many, **session, max_bytes=1 << 20, min_bytes=2_000)
        assert plan.cut is None and (request.max_bytes, request.min_bytes) == (1_024, 1_024)
        assert version < 7 or (request.session_id, request.session_epoch) == (5, -1)
        world.now_ms += 300
        assert rig.plan(many) is None and rig.pauses.pop() == LARGE_MS - 300
        world.now_ms += LARGE_MS - 300
    # A connection that was limited before is read in another way.
    rig.gets({"t": 1}, {"t": [SIX * 2]})
    assert rig.sent(many)[1].cut is None and world.counter("large") == 3


def test_a_fetch_that_its_group_holds_has_had_its_turn() -> None:
    """It takes no further one, and is counted once, however often it is planned."""
    world = World()
    rig, many = Rig(world), {"t": FETCH_PARTS_MAX + 1}
    rig.sent(many)
    for _ in range(2):
        rig.fetches.take_back()
        rig.sent(many)
    assert world.counter("large") == 1 and rig.plan(many) is None
    world.now_ms += LARGE_MS
    Rig(world).sent(many)
    assert world.counter("large") == 2
