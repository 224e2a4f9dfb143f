"""A connection whose Produce requests meet blocks: held, answered, let go on, in the order of requests."""

import struct

import pytest
from backlog_kit import EXCEPTION
from blocked_rig import FREE, HELD, REFUSED, Blocked, full
from connection_kit import framed, frames_of, opaque
from kafka.protocol.metadata.metadata import MetadataRequest
from kafka.protocol.producer import ProduceResponse
from kafka_kit import decode
from traffic_kit import produce_response, topic_id

from enforcer.kafka.backlog.part import BlocksLimit


@pytest.fixture
def rig() -> Blocked:
    """A connection beside a full backlog."""
    return Blocked()


def test_without_blocks_nothing_is_read(rig: Blocked) -> None:
    """Nor is anything asked, before the first block and after the last."""
    rig.say(HELD, 0)
    rig.say(REFUSED, 0)
    frame = rig.produce(1, {HELD: 1, REFUSED: 1})
    assert rig.upstream.sent == [frame]
    assert 0 not in rig.connection._chain.asked and rig.part(BlocksLimit) is None


def test_a_held_request_goes_on_when_its_block_lifts(rig: Blocked) -> None:
    """With those behind it that are held as well, in order; nothing before that."""
    frames = [rig.produce(number, {HELD: 1}) for number in (1, 2, 3)]
    rig.later(800)
    assert rig.upstream.sent == [] and rig.client.data == b"" and rig.held_now == 1
    rig.say(HELD, 0)
    rig.later(0)
    assert rig.upstream.sent == frames and rig.held_now == 0
    assert (rig.counted("held"), rig.counted("passed")) == (1, 1)
    # The next ones are held anew, for their own time.
    rig.say(HELD, 9_000)
    rig.produce(4, {HELD: 1})
    rig.later(800)
    assert rig.upstream.sent == frames and rig.held_now == 1


def test_it_fails_somewhat_before_the_client_gives_up(rig: Blocked) -> None:
    """By the timeout in the request, each by its own arrival."""
    rig.produce(1, {HELD: 1})
    rig.later(500)
    rig.produce(2, {HELD: 1})
    rig.later(399)
    assert rig.client.data == b""
    rig.later(1)
    assert rig.errors() == [(1, {HELD: [7]})] and rig.held_now == 1
    rig.later(499)
    assert len(rig.errors()) == 1
    rig.later(1)
    assert rig.errors()[1:] == [(2, {HELD: [7]})] and rig.upstream.sent == []
    assert rig.counted("failed") == 2


def test_the_setting_bounds_it() -> None:
    """proxy.backlog_hold_ms; 0: nothing is held."""
    rig = Blocked(backlog_hold_ms=200)
    rig.produce(1, {HELD: 1})
    rig.later(199)
    assert rig.client.data == b""
    rig.later(1)
    assert rig.errors() == [(1, {HELD: [7]})]
    rig = Blocked(backlog_hold_ms=0)
    rig.produce(1, {HELD: 1})
    assert rig.errors() == [(1, {HELD: [7]})]


def test_who_follows_one_that_found_no_slot_has_its_own_time(rig: Blocked) -> None:
    """What waits for a slot for too long is answered before any part sees it again."""
    rig.produce(1, {HELD: 1})
    rig.later(500)
    assert rig.connection._requests.next() is not None
    rig.produce(2, {HELD: 1})
    rig.later(400)
    assert rig.errors() == [] and rig.held_now == 1
    rig.later(900)
    assert rig.errors() == [(2, {HELD: [7]})] and rig.held_now == 0


def test_it_gives_way_to_others_behind_it() -> None:
    """To another API's, and to a Produce of a free topic; not to one that is held too."""
    rig = Blocked()
    rig.produce(1, {HELD: 1})
    rig.produce(2, {HELD: 1})
    rig.later(100)
    assert rig.client.data == b""
    rig.connection.data_received(opaque(3))
    rig.later(0)
    assert rig.errors() == [(1, {HELD: [7]}), (2, {HELD: [7]})] and rig.numbers == [3]
    rig = Blocked()
    rig.produce(1, {HELD: 1})
    free = rig.produce(2, {FREE: 1})
    rig.later(0)
    assert rig.errors() == [(1, {HELD: [7]})] and rig.upstream.sent == [free]
    assert rig.counted("gave_way") == 1


def test_what_becomes_free_behind_it_goes_on(rig: Blocked) -> None:
    """The block of another topic lifts, whose request stands behind: the held one gives way."""
    other = "acme.held.u"
    rig.say(other, 10_240)
    rig.produce(1, {HELD: 1})
    behind = rig.produce(2, {other: 1})
    rig.later(0)
    assert rig.client.data == b""
    rig.say(other, 0)
    rig.later(0)
    assert rig.errors() == [(1, {HELD: [7]})] and rig.upstream.sent == [behind]


def test_whoever_writes_elsewhere_too_is_held_a_second(rig: Blocked) -> None:
    """Its client may have one request on its way and no more; a minute later it counts as alone."""
    rig.produce(1, {FREE: 1})
    rig.patient(2)
    rig.later(1_000)
    assert rig.numbers == [1] and rig.held_now == 0
    rig.desk.pass_ms(60_000)
    rig.patient(3)
    rig.later(24_999)
    assert rig.held_now == 1
    rig.later(1)
    assert rig.held_now == 0 and rig.counted("failed") == 2


def test_a_full_window_is_not_kept_full(rig: Blocked) -> None:
    """With five of them a client may not send anything else: the first fails after a second."""
    for number in range(5):
        rig.patient(number)
    rig.later(999)
    assert rig.client.data == b""
    rig.later(1)
    assert rig.errors() == [(0, {HELD: [7]})] and rig.held_now == 1


def test_a_client_that_leaves_has_nothing_written() -> None:
    """It tries again elsewhere: a half-closed one is answered, one that is gone is not."""
    rig = Blocked()
    rig.produce(1, {HELD: 1})
    rig.connection.eof_received()
    rig.later(0)
    assert rig.errors() == [(1, {HELD: [7]})]
    rig = Blocked()
    rig.produce(1, {HELD: 1})
    rig.lose_client()
    rig.later(0)
    rig.say(HELD, 0)
    rig.later(0)
    assert rig.upstream.sent == [] and rig.held_now == 0
    assert rig.counted("dropped") == 1


def test_an_exception_is_told_at_once(rig: Blocked) -> None:
    """With its message, to those behind it as well."""
    rig.produce(1, {REFUSED: 1})
    rig.produce(2, {REFUSED: 1})
    assert rig.errors() == [(1, {REFUSED: [44]}), (2, {REFUSED: [44]})]
    (first, _) = frames_of(rig.client.data)
    said = decode(ProduceResponse, 9, first).responses[0].partition_responses[0]
    assert said.error_message.startswith(f"Cannot produce to {full(REFUSED)}: its backlog of 10,240 bytes")
    assert rig.counted("refused", EXCEPTION) == 2 and rig.upstream.sent == []


def test_free_partitions_go_on_beside_blocked_ones(rig: Blocked) -> None:
    """The broker's answer gets the errors of the others; two that are blocked differently are not held."""
    rig.produce(1, {HELD: 1, FREE: 2, REFUSED: 1})
    assert rig.numbers == [1] and rig.client.data == b"" and rig.connection._chain.held_bytes > 0
    said = produce_response(9, {FREE: [0, 6]})
    rig.answer([struct.pack(">i", 1) + said[4:]])
    assert rig.errors() == [(1, {FREE: [0, 6], HELD: [7], REFUSED: [44]})]
    assert (rig.counted("split"), rig.counted("refused", EXCEPTION)) == (1, 1)
    rig.produce(2, {HELD: 1, REFUSED: 1})
    assert rig.errors()[1:] == [(2, {HELD: [7], REFUSED: [44]})]


def test_a_partition_is_known_by_both_names(rig: Blocked) -> None:
    """The only one may be called as its topic; of two blocks the one that refuses counts."""
    rig.say(HELD, 0)
    rig.say(HELD, 9_000, "-partition-1")
    rig.produce(1, {HELD: 3})
    said = produce_response(9, {HELD: [0, 0]})
    rig.answer([struct.pack(">i", 1) + said[4:]])
    assert sorted(rig.errors()[0][1][HELD]) == [0, 0, 7]
    rig.say(REFUSED, 0)
    rig.say(REFUSED, 9_000, "-partition-0")
    rig.produce(2, {REFUSED: 1})
    assert rig.errors()[1:] == [(2, {REFUSED: [44]})]


def test_without_acks_the_connection_ends_behind_it() -> None:
    """What is free of it was sent before."""
    rig = Blocked()
    rig.produce(1, {REFUSED: 1, FREE: 1}, acks=0)
    assert rig.numbers == [1] and rig.client.closed and rig.closed("blocked_without_acks") == 1
    assert rig.counted("dropped", EXCEPTION) == 1
    rig = Blocked()
    rig.produce(1, {HELD: 1}, acks=0)
    rig.later(100)
    assert not rig.client.closed and rig.upstream.sent == []
    rig.later(900)
    assert rig.client.closed and rig.upstream.sent == []
    rig = Blocked()
    frame = rig.produce(1, {HELD: 1}, acks=0)
    rig.say(HELD, 0)
    rig.later(0)
    assert rig.upstream.sent == [frame] and not rig.client.closed


def test_ids_are_asked_for_once() -> None:
    """On the client's own connection; those that nobody knows are the broker's to refuse."""
    rig = Blocked(proven=False)
    frame = rig.produce(1, {REFUSED: 1, FREE: 1}, version=13)
    asked = decode(MetadataRequest, 12, rig.upstream.sent[0])
    assert [topic.topic_id for topic in asked.topics] == [topic_id(REFUSED), topic_id(FREE)]
    rig.name({REFUSED: topic_id(REFUSED)})
    assert rig.numbers == [1] and rig.upstream.sent != [frame]
    said = produce_response(13, {FREE: [0]})
    rig.answer([struct.pack(">i", 1) + said[4:]])
    (told,) = [decode(ProduceResponse, 13, each) for each in frames_of(rig.client.data)]
    assert [part.error_code for topic in told.responses for part in topic.partition_responses] == [0, 44]
    rig.produce(2, {FREE: 1}, version=13)
    assert rig.numbers == [1, 2]


def test_nobody_who_was_not_let_in_learns_anything() -> None:
    """Until the broker has answered a question nothing is said."""
    rig = Blocked(proven=False)
    rig.produce(1, {REFUSED: 1})
    assert rig.client.data == b"" and decode(MetadataRequest, 4, rig.upstream.sent[0]).topics == []
    rig.later(1)
    rig.later(25_000)
    assert len(rig.upstream.sent) == 1
    rig.name({})
    assert rig.errors() == [(1, {REFUSED: [44]})]


def test_a_damaged_request_ends_its_connection(rig: Blocked) -> None:
    """As elsewhere; behind a held one it is looked at first."""
    rig.produce(1, {HELD: 1})
    rig.connection.data_received(framed(struct.pack(">hhih", 0, 9, 2, -1) + b"\0\0\0"))
    rig.later(0)
    assert rig.errors() == [(1, {HELD: [7]})] and rig.client.closed
