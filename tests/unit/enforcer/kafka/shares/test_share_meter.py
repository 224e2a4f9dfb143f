"""ShareFetch requests while somebody owes: kept for a moment, then for nothing; answers are charged whole."""

import pytest
from clock_kit import Waiter
from meter_kit import GROUPS, TOPIC, Desk
from naming_kit import Naming
from share_frames import Waiting, id_of, read_request, share_request, share_response
from traffic_kit import batch

from enforcer.kafka.part import FETCH_LIMIT_MAX, PART_BYTES_MIN
from enforcer.kafka.share_sessions import RECORDS_MAX, SHARE_TOPICS_MAX, Asking
from enforcer.kafka.shares.share_meter import HOLD_MS, ShareMeter
from streaming.policy.policy_set import PolicySet

NOTHING = (0, PART_BYTES_MIN)
"""What is asked for: without bytes Kafka 4.1 fails."""
RATED = {"quotas[user=ANONYMOUS,client-id=tests]": {"consumer_byte_rate": 1_000}}
FEW = {**GROUPS, "resourcegroups.rg1": {"dispatchRateInMsgs": 5}}
RECORDS = batch(10, size=100)


class Line(Waiter):
    """A connection, and look-ups that a test answers."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        naming = Naming(desk.frames.names, self, desk.clock.steady_ms)
        self.meter = ShareMeter(desk.frames, desk.metrics, self, naming)

    def room(self, *topics: str, **fields: object) -> tuple[int, int] | None:
        """The records and bytes that a request asks for as it goes on; None: it waits."""
        frame = self.meter.ask(*share_request(topics, **fields), "ANONYMOUS", "b")  # type: ignore[arg-type]
        if frame is None:
            return None
        said = read_request(frame)
        return said["MaxRecords"], said["MaxBytes"]

    def got(self, times: int = 1, topic: str = "t", asking: Asking | None = None) -> None:
        """So many batches of ten records, about 1,100 bytes each, have come."""
        _, header = share_request()
        answer = share_response({topic: (RECORDS * times, [(0, 9, 1)])})
        self.meter.got(asking or self.meter.asking, answer, header, "ANONYMOUS")


@pytest.fixture
def desk() -> Desk:
    """A group of topic t gets five records a second; u is in none."""
    desk = Desk(FEW)
    desk.frames.names.update({id_of("t"): TOPIC, id_of("u"): "other"})
    return desk


def owing(desk: Desk) -> Line:
    """A line whose user owes for what has come."""
    line = Line(desk)
    assert line.room("t", epoch=0) is not None
    line.got(3)
    return line


def test_it_brings_less_and_is_charged_whole() -> None:
    """A quarter of a second's bytes at once, but a thousand; the whole answer is charged."""
    line = Line(Desk(RATED))
    assert line.room("t", epoch=0) == (500, 1_024)
    line.got(3)
    assert line.room() is None and line.pauses == [500.0]


def test_it_is_kept_for_a_moment_and_then_asks_for_nothing() -> None:
    """Again and again, until the debt is paid off; nobody waits behind one whose client has its answer."""
    desk = Desk(RATED)
    line = owing(desk)
    for wait_ms, kept_ms in ((500, 500), (0, 100), (60_000, HOLD_MS)):
        assert line.room(MaxWaitMs=wait_ms) is None and line.pauses[-1] <= kept_ms
        desk.now_ms += kept_ms
        assert line.room(MaxWaitMs=wait_ms) == NOTHING and len(desk.frames.meter.lines) == 0
    desk.now_ms += 100_000
    assert line.room() == (500, 1_024)


def test_none_passes_in_a_long_debt() -> None:
    """However long it has waited, since nothing of it can be held back; then it waits for no turn."""
    desk = Desk(RATED)
    front, line, late = (Line(desk) for _ in range(3))
    assert line.room("t", epoch=0) is not None
    line.got(50)
    assert front.room() is None
    for _ in range(60):
        assert line.room() is late.room() is None
        desk.now_ms += 500
        assert line.room() == late.room() == NOTHING
    desk.now_ms += 2_000_000
    assert Line(desk).room() is None
    assert line.room() == (500, 1_024) and late.room() is None


def test_acknowledgements_do_not_wait() -> None:
    """Those that it carries, and those behind it."""
    line = owing(Desk(RATED))
    assert line.room(acknowledged=["t"]) == NOTHING
    assert line.room() is None
    held, other, ends = (share_request(**each)[0] for each in ({}, {"MemberId": b"n"}, {"epoch": -1}))
    line.meter.look_behind(Waiting(held))
    line.meter.look_behind(Waiting(held, other))
    assert not line.woken
    line.meter.look_behind(Waiting(held, other, ends))
    assert line.woken == 1 and line.room() == NOTHING
    assert line.room(epoch=-1, acknowledged=["t"]) == (500, 1 << 20)


def test_who_acknowledges_does_not_overtake() -> None:
    """Where somebody waits, or has records on their way, it gets none either."""
    desk = Desk(RATED)
    first = owing(desk)
    assert first.room() is None
    desk.now_ms += 100_000
    assert Line(desk).room(acknowledged=["t"]) == NOTHING
    assert first.room() == (500, 1_024)
    first.meter.line_up.close()
    assert len(desk.frames.meter.lines) == 0


@pytest.mark.parametrize("read", [True, False])
def test_groups_of_its_topics_are_charged(desk: Desk, read: bool) -> None:
    """Records that were acquired, bytes that came; a session that began unread is known by what it brings."""
    line = Line(desk)
    assert line.room("t", epoch=0) if read else line.room(epoch=7) == (1, PART_BYTES_MIN)
    line.got()
    assert desk.frames.meter.accounts["rg1"].used[2:] == [10, len(RECORDS)]
    assert line.room() is None


def test_a_session_that_went_on_unread_has_unknown_topics(desk: Desk) -> None:
    """All groups were taken away and set again: nobody waits for a topic that it may have no more."""
    line = Line(desk)
    assert line.room("t", epoch=0)
    for in_force in ({}, FEW):
        desk.meter.set_policies(PolicySet(dict(in_force)))
    assert line.room(epoch=7) == (1, PART_BYTES_MIN) and not line.meter.asking.session.topics
    line.got()
    assert line.room(epoch=8) is None


def test_a_connection_that_speaks_for_several_members(desk: Desk) -> None:
    """That another member begins a session hides no debt of a topic's group."""
    line = Line(desk)
    assert line.room("t", epoch=0, MemberId=b"a")
    line.got()
    for _ in range(2):
        assert line.room("u", epoch=0, MemberId=b"b")
    assert line.room(MemberId=b"a") is None


def test_what_begins_on_another_connection_holds_each(desk: Desk) -> None:
    """The broker goes by group and member alone: what that one names comes to this one."""
    line, other = Line(desk), Line(desk)
    assert line.room("u", epoch=0) and other.room("t", epoch=0)
    other.got()
    assert line.room() is None


def test_an_answer_tells_the_topics_of_its_own_session(desk: Desk) -> None:
    """Though another member has asked since."""
    line = Line(desk)
    assert line.room(epoch=5, MemberId=b"a")
    first = line.meter.asking
    assert line.room("u", epoch=0, MemberId=b"b")
    line.got(asking=first)
    assert first.session.wanted == [id_of("t")] and line.meter.asking.session.wanted == [id_of("u")]


def test_what_the_broker_refused_hides_no_debt(desk: Desk) -> None:
    """It has the topic in the session that goes on; who asks is not held for what that request lets go."""
    line = Line(desk)
    assert line.room("t", "u", epoch=0)
    line.got()
    for error in (123, 0):
        assert line.room() is None
        assert line.room(forgotten=["t"]) == (500, FETCH_LIMIT_MAX)
        answer = share_response({}, error=error)
        line.meter.got(line.meter.asking, answer, share_request()[1], "ANONYMOUS")
    assert line.room() == (500, FETCH_LIMIT_MAX)


def test_one_of_too_many_topics_is_held_for_what_it_has_brought(desk: Desk) -> None:
    """Whatever topics are known of it, until nobody owes any more."""
    ids = [number.to_bytes(16, "big") for number in range(SHARE_TOPICS_MAX)]
    desk.frames.names.update(dict.fromkeys(ids, "other"))
    named = [{"TopicId": topic, "Partitions": [{"PartitionIndex": 0}]} for topic in (*ids, id_of("t"))]
    line = Line(desk)
    assert line.room(epoch=0, Topics=named) == (1, PART_BYTES_MIN)
    line.got()
    assert line.room() is None and line.room(acknowledged=["t"]) == NOTHING
    desk.now_ms += 100_000
    assert line.room() == (1, PART_BYTES_MIN)
    line.got()
    assert line.room() is None
    # A group that is limited no more holds nobody.
    others = {name: GROUPS[name] for name in ("resourcegroups.rg2", "tenants.acme")}
    desk.meter.set_policies(PolicySet(others))
    assert line.room() == (1, PART_BYTES_MIN)


def test_names_are_asked_for_first() -> None:
    """But who acknowledges gets nothing instead of waiting; and then they count, for debts too."""
    line = Line(Desk(FEW))
    assert line.room("t", epoch=0, acknowledged=["t"]) == NOTHING and line.asked == []
    assert line.room() is None
    (ids, done), *_ = line.asked
    assert ids == [id_of("t")]
    done({id_of("t"): TOPIC})
    assert line.room() is not None
    line.got()
    assert line.room() is None


def test_a_topic_without_a_name_holds_up_no_other() -> None:
    """The broker does not know it: who acknowledges gets what there is of the others."""
    desk = Desk(GROUPS)
    desk.frames.names.update({id_of("t"): TOPIC})
    line = Line(desk)
    assert line.room("t", "gone", epoch=0) is None
    line.asked[-1][1]({})
    assert line.room() is not None and line.room(acknowledged=["t"]) != NOTHING


@pytest.mark.parametrize("size", [1_024, 1_000])
def test_so_many_records_at_once(desk: Desk, size: int) -> None:
    """Where they are counted each may be a range of its own: more could not be read, and would be lost."""
    assert Line(desk).room("t", epoch=0, MaxRecords=100_000, MaxBytes=size) == (RECORDS_MAX, size)
    assert Line(Desk(RATED)).room("t", epoch=0, MaxRecords=100_000, MaxBytes=1_000) == (100_000, 1_000)
