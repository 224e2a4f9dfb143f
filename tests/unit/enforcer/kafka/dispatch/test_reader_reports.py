"""Proxies tell each other who reads for which group: at once what changes, all again at times, in bounds."""

from typing import Any

import orjson
import pytest
from fetch_rig import ADDRESS, CLIENT, GROUP, Rig, World, fetched, full, sizes
from hypothesis import given
from hypothesis import strategies as st
from traffic_kit import batch, fetch_request

from enforcer.kafka.dispatch import reader_reports
from enforcer.kafka.dispatch.reader_reports import AGAIN_MS, LIFE_MS, ReadersExchange
from enforcer.kafka.groups import trails
from enforcer.kafka.groups.frames import Place
from enforcer.kafka.groups.trails import Trail
from enforcer.kafka.part import FETCH_LIMIT_MAX
from streaming.contract.events import Alive, parse

SIX = batch(6)
T = full("t")


class Proxy:
    """One of two, with what it has sent."""

    def __init__(self, name: str, others: int = 1) -> None:
        self.world = World(subscriptions={(T, GROUP): (6, 0)})
        self.world.counted.others = others
        self.desk = self.world.desk
        self.sent: list[bytes] = []
        self.telling = ReadersExchange(self.desk, name, self._send)

    def _send(self, event: dict[str, Any], key: str) -> bool:
        assert key == event["proxy"]
        self.sent.append(orjson.dumps(event))
        return True

    def tells(self, other: "Proxy", after_ms: float = 1_000.0) -> int:
        """A second passes at both; how many records that took."""
        for proxy in (self, other):
            proxy.world.now_ms += after_ms
        self.telling.tell()
        sent, self.sent = self.sent, []
        for record in sent:
            fields = orjson.loads(record)
            other.telling.take(fields["proxy"], fields)
        return len(sent)


@pytest.fixture
def pair() -> tuple[Proxy, Proxy]:
    """Two proxies that have told each other all that there was."""
    a, b = Proxy("a"), Proxy("b")
    a.tells(b)
    b.tells(a)
    return a, b


def test_a_group_that_another_proxy_has_seen(pair: tuple[Proxy, Proxy]) -> None:
    """Its limit holds here, by name and by topic id, and ends when the member leaves there."""
    a, b = pair
    a.desk.assigned(CLIENT, GROUP, "m", {"t": frozenset({0}), bytes(16): frozenset({1})})
    rig = Rig(b.world, met=False)
    assert rig.plan({"t": 1}) is None
    assert a.tells(b) == 1
    assert sizes(rig.gets({"t": 1}, {"t": [SIX * 3]})) == [[len(SIX)]]
    assert b.desk.readers.matching(CLIENT, [bytes(16)], frozenset({1})) == [GROUP]
    a.desk.readers.left(CLIENT, GROUP, ["m"])
    assert a.tells(b) == 1
    assert b.desk.readers.groups(CLIENT) == []


def test_a_member_that_leaves_and_comes_again_at_once(pair: tuple[Proxy, Proxy]) -> None:
    """Under its own name, as one that subscribes anew (KIP-848): it is there, whatever is told first."""
    a, b = pair
    a.desk.assigned(CLIENT, GROUP, "m", {"t": frozenset({0})})
    a.tells(b)
    a.desk.readers.left(CLIENT, GROUP, ["m"])
    a.desk.readers.saw(CLIENT, GROUP, "m")
    a.tells(b)
    assert b.desk.readers.groups(CLIENT) == [GROUP]


def test_only_what_is_new(pair: tuple[Proxy, Proxy]) -> None:
    """And all again after a while, or when another proxy comes; what another saw last is its to tell."""
    a, b = pair
    a.desk.readers.saw(CLIENT, GROUP, "m")
    assert a.tells(b) == 1
    a.desk.readers.saw(CLIENT, GROUP, "m")
    assert (a.tells(b), b.tells(a), a.tells(b, AGAIN_MS)) == (0, 0, 1)
    b.desk.readers.saw(CLIENT, GROUP, "m")
    assert b.tells(a) == 1
    assert a.tells(b, AGAIN_MS) == 0
    b.world.counted.others = 2
    assert b.tells(a) == 1


def test_nobody_is_told_by_who_is_alone() -> None:
    """Nothing waits either."""
    a = Proxy("a", others=0)
    a.desk.readers.saw(CLIENT, GROUP, "m")
    a.telling.tell()
    assert a.sent == [] and a.desk.readers.news() == ([], [])


def reads(proxy: Proxy, rig: Rig, places: list[tuple[int, int]]) -> None:
    """A connection of a proxy asks for these offsets of partitions of the topic."""
    trail = rig.fetches._trail
    trail.asked(T, places, 0.0)
    trail.client = CLIENT
    proxy.desk.groups_of(CLIENT, trail, T, ["t"], [0])


def living(proxy: Proxy) -> list[Trail]:
    """The connections that a proxy knows to read the topic."""
    return [trail for trail in proxy.desk.finder.trails.on(T, "alice") if not trail.ended]


def test_groups_are_told_apart_over_two_proxies(pair: tuple[Proxy, Proxy]) -> None:
    """A connection here, one there; the group commits through whichever."""
    a, b = pair
    rigs = {a: Rig(a.world), b: Rig(b.world)}
    for group in (GROUP, "h"):
        a.desk.assigned(CLIENT, group, f"{group}-m", {"t": frozenset({0})})
    a.tells(b)
    for proxy, end in ((a, 12), (b, 6)):
        proxy.world.now_ms = 13_000.0
        _, plan = rigs[proxy].sent({"t": 1})
        assert plan.cut is not None
        rigs[proxy].fetches._trail.had(T, 0, 0, end)
    a.tells(b)
    b.tells(a)
    a.desk.stands("alice", [Place("h", "t", 0, 12)])
    a.tells(b)
    assert b.desk.groups_of(CLIENT, rigs[b].fetches._trail, T, ["t"], [0])[0] == (GROUP,)
    b.tells(a)
    b.tells(a, 3_000.0)
    assert a.desk.groups_of(CLIENT, rigs[a].fetches._trail, T, ["t"], [0])[0] == ("h",)
    # What has ended is told, what is not said again is forgotten.
    ended = Rig(a.world)
    reads(a, ended, [(0, 0)])
    a.tells(b)
    assert len(living(b)) == 3
    ended.fetches.close()
    a.tells(b)
    assert len(living(b)) == 2
    assert len([trail for trail in living(b) if trail.told_ms is not None]) == 1
    b.world.now_ms += LIFE_MS + 1
    b.telling.tell()
    assert living(b) == [rigs[b].fetches._trail]


def test_a_free_groups_session_ends_where_another_is_limited(pair: tuple[Proxy, Proxy]) -> None:
    """From then on it is known what the connection is delivered."""
    a, _ = pair
    other = CLIENT._replace(client_id="other")
    a.desk.readers.saw(other, "h", "n")
    rig = Rig(a.world)
    for epoch, session in ((0, 9), (1, 9)):
        frame, header = fetch_request(12, {"t": 1}, FETCH_LIMIT_MAX, epoch, session)
        plan = rig.fetches.plan(frame, header, other, ADDRESS)
        assert plan is not None and plan.frame == frame
        if plan.look is not None:
            plan.look(fetched(12, {}, 0, session_id=session))
    a.desk.assigned(CLIENT, GROUP, "m", {"t": frozenset({1})})
    frame, header = fetch_request(12, {}, epoch=2, session=9)
    plan = rig.fetches.plan(frame, header, other, ADDRESS)
    assert plan is not None and plan.frame != frame
    plan = rig.fetches.plan(*fetch_request(12, {"t": 1}, epoch=0), other, ADDRESS)
    assert plan is not None and plan.cut is None and rig.fetches._trail.of(T)


def test_bounds(pair: tuple[Proxy, Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a second, of a record, of what waits, and of the partitions of one member."""
    a, b = pair
    monkeypatch.setattr(reader_reports, "RECORD_BYTES", 200)
    monkeypatch.setattr(reader_reports, "AT_ONCE_BYTES", 1_000)
    for number in range(100):
        a.desk.readers.saw(CLIENT, f"g{number}", "m")
    assert 4 <= a.tells(b) <= 6
    while a.tells(b):
        pass
    assert len(b.desk.readers.groups(CLIENT)) == 100
    monkeypatch.setattr(reader_reports, "PARTS_MAX", 3)
    a.desk.assigned(CLIENT, GROUP, "m", {"t": frozenset(range(4))})
    a.tells(b)
    assert b.desk.readers.matching(CLIENT, ["other"], frozenset({0})) != []
    assert a.telling._rows.maxlen == reader_reports.ROWS_MAX


def test_what_cannot_all_be_told_in_time_does_not_pile_up(
    pair: tuple[Proxy, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is told again while something waits, and new members go before it."""
    a, b = pair
    monkeypatch.setattr(reader_reports, "AT_ONCE_BYTES", 1)
    monkeypatch.setattr(reader_reports, "RECORD_BYTES", 1)
    for _ in range(50):
        reads(a, Rig(a.world), [(0, 0)])
    for _ in range(40):
        a.tells(b)
    assert len(a.telling._rows) <= 50
    a.desk.readers.saw(CLIENT, "new", "m")
    a.tells(b)
    assert "new" in b.desk.readers.groups(CLIENT)


def test_connections_with_many_partitions_wait_their_turn(
    pair: tuple[Proxy, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred that asked for 10,000 each, again and again, took 10 GB; all are told in the end."""
    a, b = pair
    for name, most in (("AT_ONCE_BYTES", 1), ("RECORD_BYTES", 1), ("WAITING_MAX", 5)):
        monkeypatch.setattr(reader_reports, name, most)
    rigs = [Rig(a.world) for _ in range(3)]
    for rig in rigs:
        reads(a, rig, [(number, 0) for number in range(3)])
    for _ in range(4):
        a.tells(b)
        assert sum(len(row[-1]) for _, row in a.telling._rows) <= 5
    assert len(living(b)) == 3


def test_nobody_keeps_room_from_others(pair: tuple[Proxy, Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose connections came first moves on as fast as it is told; who came later is told of all the same."""
    a, b = pair
    for name, most in (("AT_ONCE_BYTES", 1), ("RECORD_BYTES", 1), ("WAITING_MAX", 2)):
        monkeypatch.setattr(reader_reports, name, most)
    rigs = [Rig(a.world) for _ in range(4)]
    for moved in range(1, 9):
        for rig in rigs if moved == 1 else rigs[:3]:
            reads(a, rig, [(number, moved) for number in range(2)])
        a.tells(b)
    assert len(living(b)) == 4


def test_where_groups_stand_waits_as_it_is_in_the_end(
    pair: tuple[Proxy, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets committed faster than they can be told took 10 GB, and others heard of the oldest ones."""
    a, b = pair
    for name in ("AT_ONCE_BYTES", "RECORD_BYTES", "PARTS_MAX"):
        monkeypatch.setattr(reader_reports, name, 1)
    monkeypatch.setattr(trails, "OFFSETS_MAX", 3)
    for offset in range(12):
        for number in range(5):
            a.desk.finder.stands.seen("alice", GROUP, T, number, offset)
        a.tells(b)
        assert len(a.telling._rows) <= 3
    stand = b.desk.finder.stands.of("alice", GROUP, T, 0)
    assert stand is not None and stand.offset >= 9


def test_it_is_an_event_that_decides_nothing(pair: tuple[Proxy, Proxy]) -> None:
    """The job passes it over as it does a sign of life."""
    a, b = pair
    a.desk.readers.saw(CLIENT, GROUP, "m")
    a.world.now_ms += 1_000
    a.telling.tell()
    assert isinstance(parse(a.sent[0], default_id="x", default_ts=1), Alive)
    b.telling.take("b", orjson.loads(a.sent[0]))
    assert len(b.desk.readers) == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1 << 70) | st.text(max_size=3) | st.just("id:0g"),
    lambda inner: st.lists(inner, max_size=7),
    max_leaves=20,
)
ROWS = st.lists(st.lists(JSON, min_size=1, max_size=8), max_size=5) | JSON


@given(st.dictionaries(st.sampled_from(["members", "left", "stands", "trails"]), ROWS))
def test_whatever_stands_in_a_record(fields: dict[str, Any]) -> None:
    """Anybody who may write to the topic may write anything; nothing of it ends the proxy."""
    a = Proxy("a")
    a.telling.take("somebody", fields)
    a.world.now_ms += 10_000
    a.telling.tell()
    assert a.desk.alone is False


def test_numbers_that_a_client_made_up_hide_nothing(pair: tuple[Proxy, Proxy]) -> None:
    """Of members, whose assignments clients write, and of what they commit."""
    a, b = pair
    a.desk.assigned(CLIENT, GROUP, "m", {"t": frozenset({-1, 0})})
    for number, offset in ((0, -1), (1, 7), (-1, 7)):
        a.desk.finder.stands.seen("alice", GROUP, T, number, offset)
    a.tells(b)
    assert b.desk.readers.matching(CLIENT, ["t"], frozenset({0})) == [GROUP]
    told = b.desk.finder.stands.of("alice", GROUP, T, 1)
    assert told is not None and told.offset == 7


def test_what_is_no_topic_is_passed_over(pair: tuple[Proxy, Proxy]) -> None:
    """By such a row the record was lost, and other proxies' signs of life that were read with it."""
    _, b = pair
    b.telling.take("a", {"stands": [["alice", GROUP, name, [[0, 5]]] for name in ("t", T)]})
    found = [b.desk.finder.stands.of("alice", GROUP, name, 0) for name in ("t", T)]
    assert found[0] is None and found[1] is not None and found[1].offset == 5
