"""Heartbeats of streams groups on a connection: what reaches a coordinator, what is made, what it costs."""

from functools import partial
from typing import Any

import pytest
from connection_kit import framed
from hypothesis import example, given
from hypothesis import strategies as st
from streams_kit import Coordinator, counting, heartbeat, request, topic

from enforcer.kafka.mutations import streams
from enforcer.kafka.mutations.topology import absent
from enforcer.wire.kafka.codec import ASKED_MAX
from enforcer.wire.kafka.frames import STREAMS_HEARTBEAT, BadFrame, Fields, Reason
from enforcer.wire.kafka.mutations import is_legal_name, topics_of

FENCED, INVALID_TOPOLOGY = 110, 130
WRONG_PARTITIONS = 2
HEADER_BYTES = 12


def limited(there: dict[str, int], rate: float = 2, burst: float = 11, **settings: Any) -> Coordinator:
    """Under a quota on partition mutations."""
    played = Coordinator(there, **settings)
    played.limit(controller_mutation_rate=rate, controller_mutation_burst=burst)
    return played


def status(answer: Fields | None, status_code: int = 3) -> str:
    """What a member is told that it waits for, or is wrong with it."""
    assert answer is not None and answer["ErrorCode"] == 0
    assert answer["ActiveTasks"] is answer["StandbyTasks"] is answer["WarmupTasks"] is None
    ((code, detail),) = [(each["StatusCode"], each["StatusDetail"]) for each in answer["Status"]]
    assert code == status_code
    return str(detail, "utf-8")


def again(played: Coordinator, body: Fields | None, ms: float) -> Fields | None:
    """So much later one more heartbeat; None: one that waits."""
    played.rig.desk.pass_ms(ms)
    played.rig.run_timers()
    return played.beat(body)


def test_without_a_quota_it_passes() -> None:
    """Nothing is looked at."""
    played = Coordinator({"a": 8})
    assert played.beat(heartbeat(counting("a", "c"))) is not None
    assert len(played.rig.upstream.sent) == len(played.beats) == 1 and played.made == {}


def test_topics_are_made_as_the_law_admits_them() -> None:
    """Nothing reaches the coordinator before all are there; each is charged once, whoever comes again."""
    played = limited({"a": 8})
    own = {"Host": b"app.example", "Port": 65_535}
    joins = heartbeat(counting("a", "c0", "c1", repartition="r"), UserEndpoint=own)
    told = status(played.beat(joins))
    assert told.startswith("Internal topics are missing: r, c0, c1; Creation failed: c1 (The quota on ")
    assert played.made == {"r": 8, "c0": 8} and played.beats == []
    # Its connection waits for as long as it would be refused.
    assert again(played, joins, 2_400) is None
    assert status(again(played, None, 100)) == "Internal topics are missing: c1"
    assert played.made == {"r": 8, "c0": 8, "c1": 8} and played.beats == []
    for _ in range(3):
        again(played, joins, 1_000)
    assert len(played.beats) == 3
    assert all(played.beats[0][name] == said for name, said in joins.items() if name != "Topology")
    assert played.charged() == 24
    new = heartbeat(counting("a", "c0", "c1", "c2", repartition="r", epoch=1))
    again(played, new, 60_000)
    assert played.charged() == 32 and played.made["c2"] == 8


def test_what_cannot_be_made_is_told_and_given_back() -> None:
    """In the words of a coordinator; the member goes on joining, and its connection waits."""
    played = limited({"a": 2})
    played.refuses = {f"c{n}": (29, b"Authorization failed.") for n in range(5)}
    told = status(played.beat(heartbeat(counting("a", *played.refuses))))
    assert told == (
        "Internal topics are missing: c0, c1, c2 and 2 additional topics; Creation failed:"
        " c0 (Authorization failed.), c1 (Authorization failed.), c2 (Authorization failed.) and 2 more."
    )
    assert played.charged() == 0 and played.beats == []
    # Nothing more is read for a second; then it may leave.
    assert played.beat(heartbeat(None, epoch=-1)) is None
    assert again(played, None, 1_000) is not None and len(played.beats) == 1


def test_what_a_coordinator_refuses_is_its_own_to_say() -> None:
    """It makes nothing of these, and nothing is charged."""
    played = limited({"a": 2, "c": 9})
    for reads, changelog in (("none", "c1"), ("a", "c"), ("a", "c/1"), ("a", "\u00e9")):
        assert played.beat(heartbeat(counting(reads, changelog))) is not None
    assert len(played.beats) == 4 and played.made == {} and played.charged() == 0


def test_a_member_goes_by_its_groups_topology() -> None:
    """Where a topic of that would be made, it must bring its own; what passes is not charged."""
    played = limited({"a": 2, "c": 2})
    stored = counting("a", "c", epoch=3)
    played.group = {"Topology": stored}
    assert played.beat(heartbeat(None, epoch=5)) is not None and len(played.beats) == 1
    del played.there["c"]
    answer = played.beat(heartbeat(None, epoch=5))
    assert answer is not None and answer["ErrorCode"] == FENCED
    # An old topology in a group whose newer one waits for something would have that one's topics made.
    assert "newest topology" in status(again(played, heartbeat(counting("a", epoch=2)), 1_000))
    del played.there["a"]
    for body in (heartbeat(counting("a", epoch=2)), heartbeat(None, epoch=5)):
        again(played, body, 1_000)
    played.there |= {"a": 2, "c": 2}
    again(played, heartbeat(counting("a", epoch=2)), 1_000)
    assert len(played.beats) == 4 and played.made == {} and played.charged() == 0


def test_of_a_large_group_one_member_asks_for_all() -> None:
    """For a second, and until one joins: what is said of it grows with its members."""
    played = limited({"a": 2, "c": 2})
    members = [{"MemberId": b"m" * 1_000}] * 70
    played.group = {"Topology": counting("a", "c"), "Members": members}

    def described(body: Fields, ms: float) -> int:
        before = len(played.rig.upstream.sent)
        again(played, body, ms)
        return sum(frame[:2] == b"\0\x59" for frame in played.rig.upstream.sent[before:])

    beats = heartbeat(None, epoch=5)
    assert [described(beats, ms) for ms in (0, 500, 499, 2)] == [1, 0, 0, 1]
    assert [described(body, 1) for body in (heartbeat(counting("a", "c")), beats)] == [1, 1]
    played.group["Members"] = members[:1]
    assert [described(beats, ms) for ms in (1_000, 1)] == [1, 1]
    assert len(played.beats) == 8


@pytest.mark.parametrize("code", [14, 16, 30, 29])
def test_the_coordinators_errors_are_passed_on(code: int) -> None:
    """Whatever it says of the group it would say of the heartbeat."""
    played = limited({"a": 2})
    played.error = code
    for body in (heartbeat(counting("a", "c")), heartbeat(None, epoch=1)):
        assert (again(played, body, 1_000) or {})["ErrorCode"] == code
    assert played.beats == [] and played.made == {}


def test_what_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a look at anything: more topics than a request may have, more parts, patterns of sources."""
    played = limited({"a": 1}, max_items=10)
    many = counting("a", *(f"c{n}" for n in range(10)))
    answer = played.beat(heartbeat(many))
    assert answer is not None and answer["ErrorCode"] == INVALID_TOPOLOGY
    configs = {f"k{n}": "v" for n in range(200)}
    loaded = counting("a")
    loaded["Subtopologies"][0]["StateChangelogTopics"] = [topic("c", **configs)]
    assert (again(played, heartbeat(loaded), 1_000) or {})["ErrorCode"] == INVALID_TOPOLOGY
    # Numbers take many times their bytes, and each place is gone through.
    places = counting("a")
    group = {"SourceTopics": [0] * (ASKED_MAX // 2), "SourceTopicRegex": [], "RepartitionSourceTopics": [0]}
    places["Subtopologies"][0]["CopartitionGroups"] = [group] * 2
    assert (again(played, heartbeat(places), 1_000) or {})["ErrorCode"] == INVALID_TOPOLOGY
    pattern = counting("a")
    pattern["Subtopologies"][0]["SourceTopicRegex"] = [b"a.*"]
    assert (again(played, heartbeat(pattern), 1_000) or {})["ErrorCode"] == 42
    monkeypatch.setattr(streams, "ASKED_MAX", 3)
    assert (again(played, heartbeat(counting("a", "c")), 1_000) or {})["ErrorCode"] == INVALID_TOPOLOGY
    assert played.beats == [] and played.made == {}


@pytest.mark.parametrize("count", [-1, -5])
def test_numbers_below_zero_are_refused(count: int) -> None:
    """Nothing is made then, though CreateTopics with -1 would."""
    played = limited({"a": 2})
    topology = counting("a", "c", repartition="r")
    topology["Subtopologies"][1]["RepartitionSourceTopics"] = [topic("r", count)]
    status(played.beat(heartbeat(topology)), WRONG_PARTITIONS)
    assert played.charged() == 0 and played.made == {} and played.beats == []


def test_what_depends_on_the_order_of_parts_does_not_go_on() -> None:
    """A coordinator's map may have them in another one, by which it makes what seems impossible."""
    late = {"SourceTopics": [b"a"], "RepartitionSourceTopics": [topic("late")]}
    parts = [
        {"SubtopologyId": b"@", "SourceTopics": [b"b"], "RepartitionSinkTopics": [b"late"]},
        {"SubtopologyId": b"0", **late, "RepartitionSinkTopics": [b"out"]},
        {"SubtopologyId": b"1", "RepartitionSourceTopics": [topic("out"), topic("big", 10_000)]},
    ]
    played = limited({"a": 1, "b": 2, "late": 2, "out": 1})
    status(played.beat(heartbeat({"Epoch": 0, "Subtopologies": parts})), WRONG_PARTITIONS)
    assert played.beats == [] and played.made == {}
    # Nothing is left to be made.
    played.there["big"] = 10_000
    again(played, heartbeat({"Epoch": 0, "Subtopologies": parts}), 1_000)
    assert len(played.beats) == 1


def test_a_topology_that_never_fits_ends_its_members() -> None:
    """They are fenced by their group's, and told as a coordinator tells them when they join."""
    unequal = counting("a", "c")
    together = {"SourceTopics": [0, 1], "SourceTopicRegex": [], "RepartitionSourceTopics": []}
    unequal["Subtopologies"][0] |= {"SourceTopics": [b"a", b"b"], "CopartitionGroups": [together]}
    played = limited({"a": 2, "b": 3})
    played.group = {"Topology": unequal}
    answer = played.beat(heartbeat(None, epoch=1))
    assert answer is not None and answer["ErrorCode"] == FENCED
    status(again(played, heartbeat(unequal), 1_000), WRONG_PARTITIONS)
    assert played.beats == []


def test_a_look_is_good_for_a_second() -> None:
    """A client that does not read keeps the broker's answers waiting, and meanwhile its group changes."""
    played = limited({"a": 1, "b": 1})
    played.send(heartbeat(counting("a", epoch=0)))
    assert played.answer_one()
    played.group = {"Topology": counting("b", "c", epoch=1)}
    played.rig.desk.pass_ms(streams.FRESH_MS + 1)
    assert "newest topology" in status(played.beat(None))
    assert played.beats == []


def test_a_look_is_taken_so_often() -> None:
    """Of a broker whose answers always come late nothing is known: the member goes on asking."""
    played = limited({"a": 1})
    played.send(heartbeat(counting("a")))
    for _ in range(streams.LOOKS_MAX):
        assert played.answer_one()
        played.rig.desk.pass_ms(streams.FRESH_MS + 1)
        assert played.answer_one()
    assert "could not be looked at in time" in status(played.beat(None))
    assert played.beats == []


@pytest.mark.parametrize("shadow", [False, True])
def test_what_a_coordinator_makes_all_the_same_is_charged(shadow: bool) -> None:
    """Once, with its partitions, as soon as metadata show it; not what was there, nor what never comes."""
    played = Coordinator({"a": 2, "old": 2})
    played.limit(controller_mutation_rate=1, shadow=shadow)
    played.group = {"Topology": counting("a" if shadow else "late", "old", "c", "never")}
    for _ in range(2):
        played.send(heartbeat(None, epoch=3))
        while not played.beats:
            played.makes = {"c": 7}
            assert played.answer_one()
        again(played, None, 0)
        again(played, None, 1_000)
    assert played.charged() == 7


def test_a_quota_that_comes_into_force_holds_for_who_waits() -> None:
    """What is refused by then does not go on."""
    played = Coordinator({"a": 8})
    played.limit(controller_mutation_rate=1, controller_mutation_burst=1, shadow=True)
    played.send(heartbeat(counting("a", "c0", "c1")))
    assert played.answer_one()
    played.limit(controller_mutation_rate=1, controller_mutation_burst=1)
    assert "Creation failed: c1" in status(played.beat(None))
    assert played.made == {"c0": 8} and played.beats == []


def test_what_a_broker_tells_of_many_topics_is_read() -> None:
    """Some 35 settings of each, and more."""
    played = limited({"a": 1}, rate=1e6, burst=1e6)
    played.configs = 400
    status(played.beat(heartbeat(counting("a", *(f"c{n}" for n in range(300))))))
    assert len(played.made) == 300 and not played.rig.client.closed


def test_an_answer_that_cannot_be_read_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is read in nobody's name: no connection is left that takes nothing more."""

    def broken(*_: object) -> None:
        raise BadFrame(Reason.TRUNCATED_BODY)

    played = limited({"a": 1})
    played.rig.desk.acknowledges = False
    assert played.beat(heartbeat(counting("a", "c"))) is None and played.made == {"c": 1}
    monkeypatch.setattr(streams, "_CREATED", broken)
    played.rig.desk.acknowledge()
    assert played.rig.client.closed


@pytest.mark.parametrize("answered", [False, True])
def test_who_leaves_while_topics_are_made_is_charged(answered: bool) -> None:
    """By what was missing before, though nobody sees what came."""
    played = limited({"a": 2, "old": 3})
    played.group = {"Topology": counting("late", "old", "c")}
    played.send(heartbeat(None, epoch=3))
    played.makes = {"c": 7}
    # Described, looked up, and passed on.
    for _ in range(2 + answered):
        assert played.answer_one()
    played.rig.lose_client()
    while played.answer_one():
        pass
    assert len(played.beats) == 1 and played.charged() == 3
    assert played.rig.desk.metrics.dropped_requests.labels("strict")._value.get() == 0


def made_by(beat: Fields, there: dict[str, int]) -> list[bytes]:
    """What a coordinator without a group makes as it gets this, before it has looked at numbers."""
    if beat["MemberEpoch"] < 0:
        return []
    sources, internal = absent(beat["Topology"], {name.encode(): count for name, count in there.items()})
    legal = all(is_legal_name(str(name, "utf-8", "replace")) for name in topics_of(beat["Topology"]))
    return internal if legal and not sources else []


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4))
@example([(27, 128), (57, 2)])
@example([(27, 128), (59, 65)])
@example([(27, 128), (176, 0)])
def test_damaged_heartbeats_make_nothing_uncharged(damage: list[tuple[int, int]]) -> None:
    """Each goes on, is answered or ends its connection."""
    frame = bytearray(request(STREAMS_HEARTBEAT, 0, heartbeat(counting("a", "c0", "c1", repartition="r"))))
    for place, byte in damage:
        frame[HEADER_BYTES + place % (len(frame) - HEADER_BYTES)] = byte
    played = limited({"a": 2, "r": 2})
    played.rig.connection.data_received(framed(bytes(frame)))
    while played.answer_one():
        pass
    assert played.charged() == sum(played.made.values())
    assert not any(map(partial(made_by, there=played.there), played.beats))
    assert played.rig.client.closed or played.rig.client.data


def test_who_is_gone_gets_nothing_made() -> None:
    """A client that is lost while its group is looked at."""
    played = limited({"a": 2})
    played.send(heartbeat(counting("a", "c")))
    played.rig.lose_client()
    while played.answer_one():
        pass
    assert played.made == {} and played.beats == [] and played.charged() == 0
    assert played.rig.desk.metrics.dropped_requests.labels("strict")._value.get() == 1


def test_under_a_shadow_quota_nobody_stays_whose_broker_is_lost() -> None:
    """Nothing waits for a decision then."""
    played = Coordinator({"a": 8})
    played.limit(controller_mutation_rate=1, shadow=True)
    played.send(heartbeat(counting("a", "c0")))
    while not played.made:
        assert played.answer_one()
    assert not played.rig.client.closed
    played.rig.connection.upstream_failed("lost")
    assert played.rig.client.closed


def test_a_shadow_quota_lets_all_be_made() -> None:
    """It is reported, and nothing is refused."""
    played = Coordinator({"a": 8})
    played.limit(controller_mutation_rate=1, shadow=True)
    played.beat(heartbeat(counting("a", "c0", "c1", "c2")))
    assert played.made == dict.fromkeys(("c0", "c1", "c2"), 8) and len(played.beats) == 1
    assert played.charged() == 24
    pattern = counting("a")
    pattern["Subtopologies"][0]["SourceTopicRegex"] = [b"a.*"]
    for body in (heartbeat(pattern), heartbeat(None, epoch=1)):
        played.beat(body)
    assert len(played.beats) == 3
