"""Connections before one limit, without sockets: what passes, waits and fails."""

import struct
from typing import Any

import pytest
from concurrency_kit import MS, Times, limiter_at
from connection_kit import Rig, framed, frames_of, header, opaque
from kafka.protocol.admin import CreateTopicsResponse
from kafka.protocol.producer import ProduceResponse
from kafka_kit import decode, request
from traffic_kit import batch, fetch_request, fetch_response, produce
from wire_client import create_request, errors

from enforcer.core import bounds
from enforcer.laws.concurrency.limiter import Limiter
from streaming.policy.policy_set import PolicySet

HEARTBEAT, FETCH = 12, 1
LARGE = framed(produce(9, {"t1": [bytes(50_000)]})[0])
EXEMPT = frozenset({"heartbeat", "group", "sasl", "api_versions", "fetch"})


def ids(frames: list[bytes]) -> list[int]:
    """Correlation ids of requests."""
    return [struct.unpack_from(">i", frame, 4)[0] for frame in frames]


def answer(*correlation_ids: int) -> list[bytes]:
    """Responses without a body."""
    return [struct.pack(">i", each) for each in correlation_ids]


class Two:
    """Two connections before one limiter; first comes what `a` sends, then what `b` does."""

    def __init__(
        self, limit: int, queue_max: int = 10, a: bytes = b"", b: bytes = b"", **settings: Any
    ) -> None:
        self.times = Times()
        self.limiter: Limiter = limiter_at(self.times, limit, queue_max)
        self.limiter.exempt = EXEMPT
        self.a = Rig(**settings)
        self.b = Rig(beside=self.a)
        for rig in (self.a, self.b):
            rig.connection.count_by(self.limiter)
        for rig, data in ((self.a, a), (self.b, b)):
            if data:
                rig.connection.data_received(data)

    def a_hears(self, *correlation_ids: int) -> None:
        """The broker answers the first, and whoever was woken asks again."""
        self.a.answer(answer(*correlation_ids))
        self.run_timers()

    def run_timers(self) -> None:
        """Whoever was woken asks again."""
        for rig in (self.a, self.b):
            rig.run_timers()


def test_as_many_are_sent_as_there_are_slots_and_the_rest_waits_in_order() -> None:
    """A run is cut; each answer lets one more go, to whoever came first."""
    two = Two(limit=2, a=opaque(1) + opaque(2) + opaque(3), b=opaque(11))
    assert ids(two.a.upstream.sent) == [1, 2]
    assert two.b.upstream.sent == []
    assert two.limiter.waiting == 2
    two.a_hears(1)
    assert ids(two.a.upstream.sent) == [1, 2, 3]
    assert two.b.upstream.sent == []
    two.a_hears(2)
    assert ids(two.b.upstream.sent) == [11]
    two.a.answer(answer(3))
    two.b.answer(answer(11))
    assert (two.a.client.answered(), two.b.client.answered()) == ([1, 2, 3], [11])
    assert (two.limiter.in_flight, two.limiter.waiting) == (0, 0)
    assert len(two.limiter.samples.take()) == 4


def test_the_fast_path_minds_the_limit() -> None:
    """A request that is as the last one is not sent on unseen either."""
    two = Two(limit=1)
    for number in range(1, 4):
        two.a.connection.data_received(opaque(number))
        two.a.answer(answer(number))
    two.a.connection.data_received(opaque(4))
    two.a.connection.data_received(opaque(5))
    assert ids(two.a.upstream.sent) == [1, 2, 3, 4]
    assert two.limiter.in_flight == 1


@pytest.fixture
def two() -> Two:
    """The first has a request under way, and there is room for one."""
    return Two(limit=1, a=opaque(1))


def test_exempt_requests_pass_and_stand_in_their_connections_order(two: Two) -> None:
    """One behind a request that waits does wait: answers have an order."""
    two.b.connection.data_received(framed(header(HEARTBEAT, 0, 11)) * 2 + framed(header(FETCH, 4, 12)))
    assert ids(two.b.upstream.sent) == [11, 11, 12]
    # Of those that never wait a connection has one.
    assert two.limiter.in_flight == 2
    assert two.limiter.exempted == {"heartbeat": 2, "fetch": 1}
    two.b.connection.data_received(opaque(13) + framed(header(HEARTBEAT, 0, 14)))
    assert len(two.b.upstream.sent) == 3


def test_an_idle_fetch_uses_up_nothing() -> None:
    """However many consumers wait for records."""
    two = Two(limit=1)
    two.b.connection.data_received(framed(header(FETCH, 4, 11)))
    two.a.connection.data_received(opaque(1))
    assert ids(two.a.upstream.sent) == [1]


def test_mutations_are_refused_at_once_and_not_charged(two: Two) -> None:
    """Error 89 with a short throttle time; a version without that error waits."""
    frame, _ = request(create_request({"t1": 3}, version=7))
    two.b.connection.data_received(framed(frame))
    (response,) = frames_of(two.b.client.data)
    told = decode(CreateTopicsResponse, 7, response)
    assert errors(told) == {"t1": 89}
    assert told.throttle_time_ms == 100
    assert two.a.desk.of_type("request") == []
    old, _ = request(create_request({"t1": 3}, version=5))
    two.b.connection.data_received(framed(old))
    assert two.b.upstream.sent == []
    assert two.limiter.waiting == 1
    assert (two.limiter.received, two.limiter.dropped) == (2, 1)


def test_a_policy_may_let_mutations_pass() -> None:
    """As the class admin."""
    two = Two(limit=1)
    two.limiter.exempt = EXEMPT | {"admin"}
    two.a.connection.data_received(opaque(1))
    two.b.connection.data_received(opaque(11))
    frame, _ = request(create_request({"t1": 3}, version=7))
    two.b.connection.data_received(framed(frame))
    # With its look-up.
    assert [frame[1] for frame in two.b.upstream.sent] == [16, 3, 19]


def test_produce_that_waited_too_long_is_told_to_try_again(two: Two) -> None:
    """All of it, in its turn, as all answers; its connection goes on."""
    frame, _ = produce(9, {"t1": [batch(1), batch(2)], "t2": [batch(1)]}, txn="tx")
    two.b.connection.data_received(framed(frame))
    two.times.pass_ms(9_999)
    two.run_timers()
    assert two.b.client.data == b""
    two.times.pass_ms(1)
    two.run_timers()
    (response,) = frames_of(two.b.client.data)
    told = decode(ProduceResponse, 9, response)
    codes = {row.name: [part.error_code for part in row.partition_responses] for row in told.responses}
    assert codes == {"t1": [7, 7], "t2": [7]} and told.throttle_time_ms == 0
    assert (two.limiter.waiting, two.limiter.dropped) == (0, 1)
    assert two.b.upstream.sent == []
    two.a.answer(answer(1))
    two.b.connection.data_received(opaque(12))
    assert ids(two.b.upstream.sent) == [12]


def test_a_large_produce_fails_when_it_is_whole() -> None:
    """It is kept until then, and not passed on in the middle, though a slot is free meanwhile."""
    two = Two(limit=1, inflight_wait_ms=50, a=opaque(1))
    two.b.connection.data_received(LARGE[:20_000])
    two.times.pass_ms(50)
    two.run_timers()
    two.a_hears(1)
    assert two.b.client.data == b""
    two.b.connection.data_received(LARGE[20_000:])
    assert two.b.client.answered() == [7]
    assert two.b.upstream.sent == []
    assert two.limiter.waiting == 0


def test_all_else_that_waited_too_long_ends_its_connection() -> None:
    """There is no error that all APIs have; Produce without acks has no answer at all."""
    silent = produce(9, {"t1": [batch(1)]}, acks=0)[0]
    for data in (opaque(11), framed(silent)):
        two = Two(limit=1, inflight_wait_ms=50, a=opaque(1), b=data)
        two.times.pass_ms(50)
        two.run_timers()
        assert two.b.client.closed
        assert two.b.closed("no_slot") == 1
        assert (two.limiter.waiting, two.limiter.dropped) == (0, 1)


def test_a_produce_that_is_longer_than_may_be_kept_fails_as_what_has_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is wrong with it: with a slot it passes. It counted as a bad frame, and as no refusal."""
    monkeypatch.setattr(bounds, "GATHERED_BYTES", 40_000)
    two = Two(limit=1, inflight_wait_ms=50, a=opaque(1), b=LARGE[:20_000])
    two.times.pass_ms(50)
    two.run_timers()
    assert two.b.client.closed and two.b.closed("no_slot") == 1
    assert (two.limiter.waiting, two.limiter.dropped) == (0, 1)
    free = Two(limit=1, b=LARGE)
    assert free.b.upstream.data == LARGE


def test_who_finds_the_line_full_fails_at_once() -> None:
    """`INFLIGHT_QUEUE_MAX` connections wait, and no more; very many that fail leave others their turn.

    As who sends thousands of small ones while the line is full: all were answered before anybody else.
    """
    two = Two(limit=1, queue_max=0, a=opaque(1), b=framed(produce(9, {"t1": [batch(1)]})[0]) * 250)
    for answered in (100, 200, 250):
        assert two.b.client.answered() == [7] * answered and two.limiter.dropped == answered
        two.run_timers()


def test_a_lost_broker_gives_back_all_slots(two: Two) -> None:
    """Who waits elsewhere goes on; that is no drop, since a client can bring a broker to it."""
    two.b.connection.data_received(opaque(11))
    two.times.pass_ms(10)
    two.a.connection.upstream_failed("lost")
    two.run_timers()
    assert ids(two.b.upstream.sent) == [11]
    assert two.limiter.samples.take() == []


def test_a_client_that_leaves_gives_back_all_that_it_had(two: Two) -> None:
    """Its place in the line, and its slots when they are answered."""
    two.b.connection.data_received(opaque(11))
    two.a.lose_client()
    assert two.limiter.in_flight == 1
    two.a_hears(1)
    assert ids(two.b.upstream.sent) == [11]
    two.b.connection.ending.drop("departed")
    assert (two.limiter.in_flight, two.limiter.waiting) == (0, 0)


def test_a_limit_that_comes_and_goes(two: Two) -> None:
    """What is under way is counted no more, and who waits goes on."""
    two.b.connection.data_received(opaque(11))
    for rig in (two.a, two.b):
        rig.connection.count_by(None)
    two.run_timers()
    assert ids(two.b.upstream.sent) == [11]
    assert (two.limiter.in_flight, two.limiter.waiting) == (0, 0)
    two.a.connection.count_by(two.limiter)
    two.a.answer(answer(1))
    assert two.limiter.in_flight == 0
    two.a.connection.data_received(opaque(2))
    assert two.limiter.in_flight == 1


def test_half_a_request_keeps_no_free_slot(two: Two) -> None:
    """Though it is its turn; the rest of it asks again."""
    two.b.connection.data_received(opaque(11, 100)[:50])
    two.a.connection.data_received(opaque(2))
    assert two.limiter.waiting == 2
    two.a_hears(1)
    two.run_timers()
    assert ids(two.a.upstream.sent) == [1, 2]
    two.b.connection.data_received(opaque(11, 100)[50:])
    two.a_hears(2)
    assert ids(two.b.upstream.sent) == [11]


def test_a_client_that_does_not_read_keeps_no_slots() -> None:
    """Answers may have come that nobody takes: neither is that a drop of the broker's."""
    two = Two(limit=2, a=opaque(1) + opaque(2), b=opaque(11))
    two.a.connection.pause_writing()
    two.run_timers()
    assert ids(two.b.upstream.sent) == [11]
    assert two.limiter.in_flight == 1
    two.times.pass_ms(30_000)
    two.b.answer(answer(11))
    two.limiter.expire()
    assert [sample.did_drop for sample in two.limiter.samples.take()] == [False]
    two.a.connection.resume_writing()
    two.a.answer(answer(1, 2))
    assert two.a.client.answered() == [1, 2]
    assert two.limiter.in_flight == 0


def test_a_client_that_sends_slowly_is_no_slow_broker() -> None:
    """A round trip begins when the request is whole."""
    two = Two(limit=2)
    two.a.connection.data_received(LARGE[:20_000])
    assert two.limiter.in_flight == 1
    two.times.pass_ms(700)
    two.a.connection.data_received(LARGE[20_000:40_000])
    two.times.pass_ms(200)
    two.a.connection.data_received(LARGE[40_000:])
    two.times.pass_ms(5)
    two.a.answer(answer(7))
    (sample,) = two.limiter.samples.take()
    assert (sample.rtt_ns, sample.inflight, sample.did_drop) == (5 * MS, 1, False)
    assert two.limiter.in_flight == 0


def test_a_client_that_sends_slowly_keeps_no_slot() -> None:
    """It is given to others, and taken again when the request is whole; its deadline says nothing."""
    two = Two(limit=1)
    two.a.connection.data_received(LARGE[:20_000])
    two.b.connection.data_received(opaque(11))
    two.a.connection.check(0.0)
    two.run_timers()
    assert two.b.upstream.sent == []
    two.a.connection.check(1_000.0)
    two.run_timers()
    assert ids(two.b.upstream.sent) == [11]
    two.times.pass_ms(30_000)
    two.a.connection.data_received(LARGE[20_000:])
    assert two.limiter.in_flight == 2
    two.b.answer(answer(11))
    two.a.answer(answer(7))
    assert two.limiter.in_flight == 0
    assert [sample.rtt_ns for sample in two.limiter.samples.take()] == [30_000 * MS, 1]


def test_a_request_that_never_becomes_whole_is_no_drop() -> None:
    """Though its deadline comes, or the broker gives it up."""
    two = Two(limit=1)
    two.a.connection.data_received(LARGE[:20_000])
    two.times.pass_ms(30_000)
    two.limiter.expire()
    two.b.connection.data_received(LARGE[:20_000])
    two.b.connection.upstream_failed("lost")
    assert two.limiter.in_flight == 0
    assert two.limiter.samples.take() == []


def test_a_streamed_answer_counts_with_its_first_bytes(two: Two) -> None:
    """The rest of it says something of the client."""
    large = framed(struct.pack(">i", 1) + bytes(100_000))
    two.a.connection.upstream_received(large[:50_000])
    assert two.limiter.in_flight == 0


def test_a_connection_without_a_limit_has_a_plain_deque() -> None:
    """Nothing of this is in its way."""
    rig = Rig()
    assert type(rig.connection._responses.due).__name__ == "deque"
    assert rig.connection.slots.due is None


def test_a_fetch_that_is_read_may_not_wait_either() -> None:
    """Its round trip is a sample, though a limit on bytes has it read."""
    two = Two(limit=1)
    two.a.meter.set_policies(PolicySet({"quotas[user=ANONYMOUS]": {"consumer_byte_rate": 10**9}}))
    two.a.prove()
    for max_wait_ms in (500, 0):
        two.a.connection.data_received(framed(fetch_request(12, {"t1": 1}, max_wait_ms=max_wait_ms)[0]))
        two.times.pass_ms(5)
        two.a.answer([fetch_response(12, {})])
    (sample,) = two.limiter.samples.take()
    assert sample.rtt_ns == 5 * MS and len(frames_of(two.a.client.data)) == 2


def test_a_large_request_that_waits_is_not_read_to_its_end(two: Two) -> None:
    """It is kept up to what a connection may keep, and passes while it comes when its turn has come."""
    data = framed(produce(9, {"t1": [bytes(3_000_000)]})[0])
    two.b.connection.data_received(data[:1_500_000])
    assert two.b.upstream.data == b"" and not two.b.client.reading
    two.a_hears(1)
    assert two.b.client.reading
    two.b.connection.data_received(data[1_500_000:])
    assert two.b.upstream.data == data
