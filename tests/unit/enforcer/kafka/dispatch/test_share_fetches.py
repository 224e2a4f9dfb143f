"""ShareFetch requests of one connection under limits: held, asking for less or for nothing, never cut."""

from collections.abc import Callable
from typing import Any

import pytest
from clock_kit import Waiter
from fetch_rig import ADDRESS, BROKER, CLIENT, World, full
from hypothesis import given
from hypothesis import strategies as st
from naming_kit import Naming
from share_frames import Waiting, id_of, read_request, share_request, share_response
from traffic_kit import batch

from enforcer.core.lines import RESERVED_MS
from enforcer.kafka.dispatch.context import UNHEARD_MS
from enforcer.kafka.dispatch.fetches import Plan
from enforcer.kafka.dispatch.share_fetches import ALONE_MS, ShareFetches
from enforcer.kafka.names import ABSENT_MS
from enforcer.kafka.part import FETCH_LIMIT_MAX, PART_BYTES_MIN
from enforcer.kafka.share_sessions import SHARE_PARTS_MAX, SHARE_SESSIONS_MAX, SHARE_TOPICS_MAX

NOTHING = (0, PART_BYTES_MIN)
"""What is asked for: without bytes Kafka 4.1 fails."""


class Rig(Waiter):
    """A connection whose topics have names."""

    def __init__(self, world: World, topics: str = "tuv") -> None:
        super().__init__()
        self.world = world
        world.names.update({id_of(name): name for name in topics})
        self.shares = ShareFetches(world.desk, self, Naming(world.names, self, lambda: world.now_ms))
        self.address = ADDRESS

    def plan(self, topics: str = "", **fields: Any) -> Plan | None:
        """What becomes of a request."""
        return self.shares.plan(*share_request(tuple(topics), **fields), CLIENT, self.address)

    def room(self, topics: str = "", **fields: Any) -> tuple[int, int]:
        """The records and bytes that a request asks for as it goes on; then it is answered with nothing."""
        plan = self.plan(topics, **fields)
        assert plan is not None
        if plan.cut is not None:
            plan.cut(share_response({}))
        said = read_request(plan.frame)
        return said["MaxRecords"], said["MaxBytes"]

    def goes(self, topics: str = "", **fields: Any) -> tuple[dict[str, Any], Callable[[bytes], bytes]]:
        """What a request asks for as it goes on, and what takes its answer."""
        plan = self.plan(topics, **fields)
        assert plan is not None and plan.cut is not None
        return read_request(plan.frame), plan.cut

    def get(self, count: int, topics: str = "t", **fields: Any) -> None:
        """A request goes on, and so many records of the first topic come."""
        _, cut = self.goes(topics, **fields)
        answer = share_response({topics[0]: (batch(count), [(0, count - 1, 1)])})
        assert cut(answer) is answer


def test_it_asks_for_what_is_left() -> None:
    """Of the strictest of its topics' limits; what comes beyond is the member's, and a debt."""
    world = World(topics={full("t"): (10, 0), full("u"): (0, 5_000)})
    rig = Rig(world)
    assert rig.room("t", epoch=0) == (10, FETCH_LIMIT_MAX)
    assert rig.room("u") == (10, 5_000)
    rig.get(4, "t", epoch=0)
    assert rig.room("t") == (6, FETCH_LIMIT_MAX)
    assert rig.room("t", MaxRecords=2, MaxBytes=100) == (2, 100)
    rig.get(25)
    assert rig.plan() is None
    assert [each.msgs for each in world.counted.delivered] == [4, 25]
    assert {each.place for each in world.counted.delivered} == {(BROKER, full("t"), "g")}


def test_it_is_kept_as_long_as_it_would_wait_and_then_asks_for_nothing() -> None:
    """So its session goes on at the broker; nothing is told the client but an empty answer."""
    rig = Rig(World())
    rig.get(30, epoch=0)
    for wait_ms, kept_ms in ((500, 500), (0, 100), (60_000, 1_000)):
        assert rig.plan(MaxWaitMs=wait_ms) is None and rig.pauses[-1] <= kept_ms
        rig.world.now_ms += kept_ms - 1
        assert rig.plan(MaxWaitMs=wait_ms) is None and rig.pauses[-1] == 1
        rig.world.now_ms += 1
        assert rig.room(MaxWaitMs=wait_ms) == NOTHING
    assert rig.world.counter("held") == 3


def test_acknowledgements_do_not_wait() -> None:
    """Those that it carries go on at once, as those behind one that is kept, which gives way."""
    rig = Rig(World())
    rig.get(20, epoch=0)
    assert rig.room(acknowledged="t") == NOTHING
    assert rig.plan() is None
    held, other, ends = (share_request(**each)[0] for each in ({}, {"MemberId": b"n"}, {"epoch": -1}))
    rig.shares.look_behind(Waiting(held))
    rig.shares.look_behind(Waiting(held, other))
    assert not rig.woken
    rig.shares.look_behind(Waiting(held, other, ends))
    rig.shares.look_behind(Waiting(held, other, ends))
    assert rig.woken == 1 and rig.room() == NOTHING
    assert rig.plan() is None
    rig.world.now_ms += 2_000
    assert rig.room() == (10, FETCH_LIMIT_MAX)


@pytest.mark.parametrize("fields", [{"epoch": -1, "acknowledged": "t"}, {"MaxRecords": 0}, {"MaxBytes": 0}])
def test_what_acquires_nothing_passes(fields: dict[str, Any]) -> None:
    """As it came, whatever is owed."""
    rig = Rig(World())
    rig.get(20, epoch=0)
    frame, header = share_request((), **fields)
    plan = rig.shares.plan(frame, header, CLIENT, ADDRESS)
    assert plan is not None and plan._replace(cut=None) == Plan(frame)
    assert (plan.cut is not None) == ("epoch" in fields)


def test_a_session_that_went_on_unread_has_unknown_topics() -> None:
    """While there was no limit at all nothing was read: what it brings tells, one record at a time."""
    rig = Rig(World())
    assert rig.room("u", epoch=0) == (500, FETCH_LIMIT_MAX)
    rig.world.counted.begun += 1
    _, cut = rig.goes(epoch=7)
    cut(share_response({"t": (batch(1), [(0, 0, 1)])}))
    assert rig.room(epoch=8) == (9, FETCH_LIMIT_MAX)


def test_a_topic_that_left_the_session_is_waited_for_no_more() -> None:
    """Nor one of a session that is over; it leaves the line."""
    rig = Rig(World())
    rig.get(20, "tu", epoch=0)
    assert rig.plan() is None and len(rig.world.desk.lines) == 1
    for _ in range(2):
        # Its answer is read whole.
        assert rig.room(forgotten="t") == (500, FETCH_LIMIT_MAX) and len(rig.world.desk.lines) == 0
    assert rig.room() == (500, 1 << 20)
    rig.plan("t")
    assert rig.room("u", epoch=0) == (500, FETCH_LIMIT_MAX)
    rig.shares.claims.close()
    assert len(rig.world.desk.lines) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"epoch": 7, "forgotten": "t"},
        {"epoch": 7, "forgotten": "t", "MaxRecords": 0},
        {"epoch": 0, "topics": "u", "acknowledged": "u"},
        {"epoch": -1},
    ],
)
def test_what_the_broker_refused_hides_no_topic(fields: dict[str, Any]) -> None:
    """It has the topic in the session that goes on, and would bring it to requests that nobody limits."""
    rig = Rig(World())
    rig.get(20, "tu", epoch=0)
    _, cut = rig.goes(**fields)
    assert cut(refusal := share_response({}, error=123)) is refusal
    assert rig.plan() is None


def test_a_session_that_began_unread_is_known_by_what_it_brings() -> None:
    """Its first answer counts all the same."""
    rig = Rig(World())
    rig.get(20, "t", epoch=0)
    other, third = Rig(rig.world), Rig(rig.world)
    # It might go on with what began through another proxy: until its topics are told, one record at a time.
    said, cut = other.goes(epoch=5, MemberId=b"o")
    assert (said["MaxRecords"], said["MaxBytes"]) == (1, PART_BYTES_MIN)
    assert third.plan(epoch=5, MemberId=b"p") is None and rig.world.counter("large") == 0
    rig.world.now_ms += UNHEARD_MS
    assert third.room(epoch=5, MemberId=b"p") == (1, PART_BYTES_MIN)
    cut(share_response({"t": (batch(3), [(0, 2, 1)])}))
    assert third.room(epoch=0, MemberId=b"p") == (500, FETCH_LIMIT_MAX)
    assert [each.msgs for each in rig.world.counted.delivered] == [20, 3]
    assert other.plan(epoch=6, MemberId=b"o") is None


@pytest.mark.parametrize("address", [ADDRESS, ("bootstrap", 9092)])
def test_what_begins_on_another_connection_is_limited_on_each(address: tuple[str, int]) -> None:
    """The broker goes by group and member alone: what that one names comes to this one."""
    rig = Rig(World())
    rig.world.brokers.address(1, *ADDRESS)
    other = Rig(rig.world)
    other.address = address
    assert rig.room("u", epoch=0) == (500, FETCH_LIMIT_MAX)
    other.get(20, "t", epoch=0)
    assert rig.plan() is None


def test_names_are_asked_for_first() -> None:
    """But who acknowledges gets nothing instead of waiting."""
    rig = Rig(World(), topics="")
    assert rig.room("t", epoch=0, acknowledged="t") == NOTHING and rig.asked == []
    assert rig.plan() is None and [ids for ids, _ in rig.asked] == [[id_of("t")]]
    rig.asked[-1][1]({})
    assert rig.room("u", acknowledged="t") == NOTHING and rig.plan() is None
    rig.asked[-1][1]({id_of("u"): "u"})
    # The broker does not know the one, which is no reason to bring nothing of the other.
    assert rig.room(acknowledged="u") == (500, 1 << 20)
    rig.world.now_ms += ABSENT_MS
    assert rig.room(acknowledged="u") == NOTHING


def test_members_take_turns_from_the_beginning() -> None:
    """What one has on its way is not given to another one, since it could not be taken back; it waits at
    the broker no longer than that."""
    world = World()
    one, other = Rig(world), Rig(world)
    said, cut = one.goes("t", epoch=0)
    assert other.plan("t", epoch=0) is None
    assert said["MaxWaitMs"] == RESERVED_MS
    cut(share_response({"t": (batch(4), [(0, 3, 1)])}))
    assert other.woken and other.room("t", epoch=0) == (6, FETCH_LIMIT_MAX)


def test_who_has_been_alone_waits_at_the_broker_as_long_as_it_likes() -> None:
    """So an idle member asks no more often than without a proxy; until somebody else comes."""
    world = World()
    one = Rig(world)

    def waits_ms(rig: Rig, most: int = 500, **fields: Any) -> int:
        said, cut = rig.goes("t", MaxWaitMs=most, **fields)
        cut(share_response({}))
        return int(said["MaxWaitMs"])

    assert waits_ms(one, epoch=0) == RESERVED_MS
    world.now_ms += ALONE_MS
    assert [waits_ms(one), waits_ms(one)] == [500, 500]
    # Who comes must meet it before being alone.
    assert waits_ms(one, 60_000) < ALONE_MS
    other = Rig(world)
    assert other.plan("t", epoch=0) is not None
    assert one.plan("t") is None
    other.shares.take_back()
    assert waits_ms(one) == RESERVED_MS
    world.now_ms += ALONE_MS
    assert waits_ms(one) == 500


def test_what_is_under_way_on_its_connection_is_waited_for() -> None:
    """Its client need not await an answer to ask again; all that is left would come with each of them."""
    rig = Rig(World())
    assert rig.plan("t", epoch=0) is not None
    # A later part has held it.
    rig.shares.take_back()
    first = rig.plan("t", epoch=0)
    for _ in range(2):
        assert rig.plan() is None and rig.plan("t", epoch=0, MemberId=b"other") is None
        assert rig.room(acknowledged="t")[0] == 0
    assert first is not None and first.cut is not None and rig.plan() is None
    first.cut(share_response({"t": (batch(4), [(0, 3, 1)])}))
    assert rig.woken == 1 and rig.room() == (6, FETCH_LIMIT_MAX)


@pytest.mark.parametrize("members", [1, 5])
def test_topics_of_one_session_do_not_wait_for_each_other(members: int) -> None:
    """Nor a member behind another here who is behind it there: one rate for all, or one for each."""
    worlds = [World(broker=(10, 0)), World(topics={full(name): (10, 0) for name in "tuv"})]
    for world in worlds:
        rigs = [Rig(world) for _ in range(members)]
        got = [0] * members
        began = world.now_ms
        while world.now_ms < began + 10_000:
            for number, rig in enumerate(rigs):
                plan = rig.plan("tuv" if number % 2 else "vut", epoch=0)
                if plan is not None and (records := read_request(plan.frame)["MaxRecords"]):
                    assert plan.cut is not None
                    plan.cut(share_response({"tuv"[records % 3]: (batch(records), [(0, records - 1, 1)])}))
                    got[number] += records
            world.now_ms += 20
        assert sum(got) >= 100 and min(got) > 0


@pytest.mark.parametrize("many", [{"topics": SHARE_TOPICS_MAX + 1}, {"parts": SHARE_PARTS_MAX + 1}])
def test_too_large_a_session_gets_a_record_at_a_time(many: dict[str, int]) -> None:
    """Once a second for all of a proxy; it is read again with the next session."""
    rig = Rig(World())
    topics = [number.to_bytes(16, "big") for number in range(many.get("topics", 1))]
    parts = [{"PartitionIndex": number} for number in range(many.get("parts", 1))]
    named = [{"TopicId": topic, "Partitions": parts} for topic in topics]
    assert rig.room(epoch=0, Topics=named) == (1, PART_BYTES_MIN)
    # A later part has held it, which takes no further turn.
    rig.shares.take_back()
    assert rig.room() == (1, PART_BYTES_MIN) and rig.world.counter("large") == 1
    assert rig.plan() is None
    rig.world.now_ms += 1_000
    assert rig.room() == (1, PART_BYTES_MIN)
    assert rig.room(acknowledged="t") == NOTHING
    assert rig.room("u", epoch=0) == (500, FETCH_LIMIT_MAX)


def test_a_connection_that_speaks_for_several_members() -> None:
    """Each has a session of its own: that another one begins hides no topic; beyond a few, one at a time."""
    rig = Rig(World())
    rig.get(20, epoch=0, MemberId=b"a")
    assert rig.room("u", epoch=0, MemberId=b"b") == (500, FETCH_LIMIT_MAX)
    assert rig.plan(epoch=1, MemberId=b"a") is None
    assert rig.room("u", epoch=0, group="other") == (500, FETCH_LIMIT_MAX)
    for number in range(SHARE_SESSIONS_MAX):
        rig.plan("u", epoch=0, MemberId=b"m%d" % number)
    assert rig.room("u", epoch=0, MemberId=b"more", acknowledged="u") == NOTHING
    rig.room(epoch=-1, MemberId=b"b")
    assert rig.room("u", epoch=0, MemberId=b"more") == (500, FETCH_LIMIT_MAX)


@pytest.mark.parametrize("fields", [{"MaxRecords": -1}, {"MaxBytes": -1}])
def test_less_than_nothing_is_limited_too(fields: dict[str, int]) -> None:
    """A broker might take it for anything."""
    rig = Rig(World())
    records, size = rig.room("t", epoch=0, **fields)
    assert 0 < records <= 10 and 0 < size <= FETCH_LIMIT_MAX
    rig.get(20)
    assert rig.plan(**fields) is None


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 900), st.booleans()), max_size=30))
def test_in_the_long_run_it_gets_its_rate(steps: list[tuple[int, int, bool]]) -> None:
    """However it asks and whatever batches come: at most the rate, and what one answer brings beyond."""
    world = World()
    rig = Rig(world)
    began, got = world.now_ms, 0
    for count, after_ms, acknowledges in steps:
        plan = rig.plan("t", epoch=0, acknowledged="t" if acknowledges else "")
        if plan is not None and (records := read_request(plan.frame)["MaxRecords"]):
            assert plan.cut is not None and records <= 10
            plan.cut(share_response({"t": (batch(count), [(0, count - 1, 1)])}))
            got += count
        periods = (world.now_ms - began) // 1_000 + 1
        assert got <= 10 * periods + 40
        world.now_ms += after_ms
    rig.shares.claims.close()
    assert len(world.desk.lines) == 0
