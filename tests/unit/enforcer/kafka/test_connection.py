"""One connection without sockets: order of answers, bounds, back-pressure, endings."""

import struct
from collections.abc import Callable

import pytest
from connection_kit import API_VERSIONS, METADATA, Rig, framed, frames_of, header, opaque
from kafka.protocol.producer import ProduceResponse
from kafka_kit import build, request, response
from meter_kit import TOPIC, alone
from traffic_kit import batch, produce
from wire_client import create_request

from enforcer.core import bounds
from enforcer.host.doors.certificates import Visitor
from enforcer.host.turns import TURN_S
from enforcer.wire.kafka.codec import response_layout
from enforcer.wire.kafka.frames import CREATE_TOPICS, response_body_offset
from streaming.policy.policy_set import PolicySet

REFUSED = framed(header(API_VERSIONS, 99, 2) + b"\0")
"""A request that the proxy reads and answers by itself."""
OURS = "weir.policies"


@pytest.fixture
def rig() -> Rig:
    """A connection that nothing limits."""
    return Rig()


def test_what_is_lost_as_its_broker_ends_is_not_overtaken(rig: Rig) -> None:
    """A write failed, and nobody has said so yet: an answer of our own behind it would be taken for its."""
    rig.upstream.broker.closed = True
    rig.connection.data_received(opaque(1) + REFUSED)
    assert rig.client.data == b""
    rig.connection.upstream_failed("lost")
    assert rig.client.data == b"" and rig.client.closed


def test_a_response_to_nothing_ends_the_connection() -> None:
    """A broker that answers what was not asked has lost step: nothing of it is passed on."""
    for frames in ([struct.pack(">i", 9)], [b"\0"], [struct.pack(">i", 1), struct.pack(">i", 1)]):
        rig = Rig()
        rig.connection.data_received(opaque(1))
        rig.answer(frames)
        assert rig.client.closed and rig.closed("bad_response") == 1


def test_an_address_without_room_is_not_passed_on(rig: Rig) -> None:
    """When there is no port left for a broker, the response that names it does not reach the client."""
    rig.connection.data_received(framed(header(METADATA, 1, 1) + struct.pack(">i", 0)))
    brokers = struct.pack(">iiih5sih", 1, 1, 7, 5, b"kafka", 9092, -1)
    rig.answer([brokers + struct.pack(">ii", 7, 0)])
    assert rig.client.data == b"" and rig.client.closed


def test_unanswered_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """At INFLIGHT_MAX reading stops; an answer lets it go on."""
    monkeypatch.setattr(bounds, "INFLIGHT_MAX", 3)
    rig = Rig()
    rig.connection.data_received(b"".join(opaque(number) for number in range(5)))
    assert len(rig.upstream.sent) == 3 and not rig.client.reading
    rig.answer([struct.pack(">i", number) for number in range(2)])
    assert len(rig.upstream.sent) == 5 and not rig.client.reading
    rig.answer([struct.pack(">i", number) for number in range(2, 5)])
    assert rig.client.reading and rig.client.answered() == [0, 1, 2, 3, 4]


def test_who_is_refused_by_its_certificate_counts_until_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host hears of it, and that it may not stay; then that it is over."""
    monkeypatch.setattr(Rig, "visitor", lambda *_: Visitor(refused="unknown_user"))
    rig = Rig()
    assert rig.client.closed and rig.closed("unknown_user") == 1 and not rig.over
    assert rig.refused == "unknown_user"
    rig.lose_client()
    assert rig.over


def test_requests_kept_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the broker is not connected yet, reading stops at HELD_BYTES_MAX."""
    monkeypatch.setattr(bounds, "HELD_BYTES_MAX", 1_000)
    rig = Rig()
    rig.upstream.writable = False
    rig.connection.data_received(opaque(1, 900))
    assert rig.client.reading
    rig.connection.data_received(opaque(2, 900))
    assert not rig.client.reading
    rig.upstream.writable = True
    rig.connection.upstream_changed()
    assert rig.client.reading and len(rig.upstream.sent) == 2


def test_back_pressure_both_ways(rig: Rig) -> None:
    """A broker that reads slowly stops the client, a client that reads slowly stops the broker."""
    rig.upstream.writable, rig.upstream.full = False, True
    rig.connection.upstream_changed()
    assert not rig.client.reading
    rig.upstream.writable, rig.upstream.full = True, False
    rig.connection.upstream_changed()
    assert rig.client.reading
    rig.connection.pause_writing()
    assert not rig.upstream.broker.reading
    rig.connection.resume_writing()
    assert rig.upstream.broker.reading


def test_a_large_request_passes_while_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its body is not kept, and it goes on to be read even where no further request may."""
    monkeypatch.setattr(bounds, "INFLIGHT_MAX", 1)
    rig = Rig()
    large = opaque(2, 100_000)
    rig.connection.data_received(large[:20_000])
    assert rig.upstream.data == large[:20_000] and rig.upstream.mid and rig.client.reading
    rig.connection.data_received(large[20_000:] + opaque(3))
    assert rig.upstream.data == large and not rig.upstream.mid and not rig.client.reading
    rig.answer([struct.pack(">i", 2)])
    assert rig.upstream.data == large + opaque(3)


def test_a_request_that_stops_coming_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun and not whole after the time limit, whether it is kept or passed on; a whole one starts anew."""
    for begun in (opaque(1)[:9], opaque(1, 100_000)[:50_000]):
        monkeypatch.setattr(bounds, "PARTIAL_FRAME_TIMEOUT_MS", 100)
        rig = Rig()
        rig.desk.now_ms = 1_000
        rig.connection.data_received(opaque(0) + begun)
        rig.connection.check(1_100)
        assert not rig.client.closed
        rig.connection.check(1_101)
        assert rig.client.closed and rig.closed("slow_sender") == 1


def test_endings_are_counted_once(rig: Rig) -> None:
    """A lost broker ends the client; later troubles of the same connection add nothing."""
    rig.connection.data_received(opaque(1))
    rig.connection.upstream_failed("lost")
    rig.connection.upstream_failed("lost")
    rig.connection.data_received(struct.pack(">i", -1))
    assert rig.client.closed and rig.closed("upstream_lost") == 1
    rig.connection.connection_lost(None)
    assert rig.upstream.closed


def test_a_client_that_does_not_read_its_end_is_cut_off() -> None:
    """A connection that was closed, but whose client takes nothing more, is ended by force."""
    rig = Rig(stop_timeout_ms=100)
    rig.connection.end("stop")
    rig.client.closed = False
    rig.connection.check(50)
    assert not rig.client.closed
    rig.connection.check(101)
    assert rig.client.closed


GROUPS = {"resourcegroups.g": {"publishRateInMsgs": 10**9}, "namespaces.acme/orders": {"resourcegroup": "g"}}


def test_traffic_is_read_only_while_it_is_metered(rig: Rig) -> None:
    """Policies come and go on one connection; counts are of the frames in between, and all are answered."""
    frame, _ = produce(9, {TOPIC: [batch(4)]})
    answer = response(build(ProduceResponse, 9, responses=[]))
    rig.prove()
    for policies in ({}, GROUPS, {}):
        rig.meter.set_policies(PolicySet(policies))
        rig.connection.data_received(framed(frame))
        used = {name: account.used[0] for name, account in rig.meter.accounts.items()}
        assert used == ({"g": 4} if policies else {})
        rig.answer([answer])
    assert rig.upstream.sent == [frame] * 3 and frames_of(rig.client.data) == [answer] * 3


def test_a_metered_request_is_gathered_another_streams() -> None:
    """Of a user with a byte rate a large Produce is read whole; others' pass while they come."""
    for limited in ("tests", "others"):
        rig = Rig()
        path = f"quotas[user=ANONYMOUS,client-id={limited}]"
        rig.meter.set_policies(PolicySet({path: {"producer_byte_rate": 10**9}}))
        frame, _ = produce(9, {TOPIC: [batch(4, size=20_000)]})
        rig.prove()
        rig.connection.data_received(framed(frame)[:30_000])
        assert bool(rig.upstream.data) == (limited == "others")
        rig.connection.data_received(framed(frame)[30_000:])
        assert rig.upstream.sent == [frame]
        counted = [account.used[1] for account in rig.meter.accounts.values()]
        assert counted == ([len(frame)] if limited == "tests" else [])


def test_a_damaged_metered_request_ends_its_connection(rig: Rig) -> None:
    """As a broker would end it."""
    rig.meter.set_policies(PolicySet(GROUPS))
    frame, _ = produce(9, {TOPIC: [batch(4)]})
    rig.prove()
    rig.connection.data_received(framed(frame[:-30]))
    assert rig.client.closed and rig.closed("bad_frame") == 1 and rig.upstream.sent == []


def test_a_client_that_does_not_read_is_not_read(rig: Rig) -> None:
    """While its answers wait to be taken, no more of its requests are handled; then they are, in order."""
    rig.connection.pause_writing()
    assert not rig.client.reading
    rig.connection.data_received(opaque(1) + REFUSED)
    assert rig.upstream.sent == [] and rig.client.data == b""
    rig.connection.resume_writing()
    assert len(rig.upstream.sent) == 1 and rig.client.reading
    rig.answer([struct.pack(">i", 1)])
    assert rig.client.answered() == [1, 2]


def test_answers_of_ours_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind an answer that is missing no more than a buffer's worth of them is kept."""
    monkeypatch.setattr(bounds, "WRITE_BUFFER_HIGH_BYTES", 100)
    monkeypatch.setattr(bounds, "WRITE_BUFFER_LOW_BYTES", 10)
    rig = Rig()
    rig.connection.data_received(opaque(1) + REFUSED * 50)
    assert rig.connection._responses.kept_bytes <= 120
    rig.answer([struct.pack(">i", 1)])
    assert rig.client.answered() == [1] + [2] * 50


def test_requests_that_are_read_take_turns(rig: Rig) -> None:
    """When a round's time is over the others wait for the next round of the loop."""
    tick = rig.turns._now_s

    def slow() -> float:
        rig.now_s += 0.004
        return tick()

    rig.turns._now_s = slow
    rig.connection.data_received(REFUSED * 20)
    assert 0 < len(rig.client.answered()) < 20
    while rig.timers:
        rig.timers.pop(0).fire()
    assert rig.client.answered() == [2] * 20


def test_turns_are_taken_in_the_order_of_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several whose requests are dear none has two before the others have had one."""
    rigs, order = [Rig(), Rig(), Rig()], list[int]()
    first = rigs[0]

    def handle(number: int) -> None:
        order.append(number)
        first.now_s += 2 * TURN_S

    for number, rig in enumerate(rigs):
        rig.turns, rig.timers = first.turns, first.timers
        handler = rig.connection._chain
        monkeypatch.setattr(handler, "handle", lambda _frame, number=number: handle(number))
        rig.connection.data_received(REFUSED * 4)
    while first.timers:
        first.timers.pop(0).fire()
    assert order == [0] + [0, 1, 2] * 3 + [1, 2]


def test_idle_connections_keep_no_frame(rig: Rig) -> None:
    """What was handled is dropped in both directions."""
    rig.connection.data_received(opaque(1, 10_000))
    rig.answer([struct.pack(">i", 1) + bytes(10_000)])
    assert not rig.connection._requests.data and not rig.connection._responses.data


def test_a_mistake_of_ours_ends_one_connection(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted, its time too, and nothing escapes to the loop."""
    monkeypatch.setattr(rig.client, "get_extra_info", lambda _name: ("127.0.0.1", 1), raising=False)

    def broken(_frame: bytes) -> None:
        rig.now_s += 2 * TURN_S
        raise ValueError("a mistake")

    monkeypatch.setattr(rig.connection._chain, "handle", broken)
    rig.connection.data_received(REFUSED)
    # What it took is taken from the others all the same.
    assert rig.turns.begin() is None
    bad = rig.metrics.registry.get_sample_value("weir_proxy_bad_frames_total", {"reason": "internal"})
    assert rig.client.closed and rig.closed("internal") == 1 and bad == 1


def test_so_does_one_in_what_a_part_does_later(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client would wait for an answer that nobody gives."""
    monkeypatch.setattr(rig.client, "get_extra_info", lambda _name: ("127.0.0.1", 1), raising=False)
    rig.connection.call_later(0.0, lambda: {}["a mistake"])
    rig.run_timers()
    assert rig.client.closed and rig.closed("internal") == 1


def test_an_answer_of_ours_says_what_was_taken_out() -> None:
    """A topic of Weir's among more others than are read: they have one error, and it has its own."""
    rig = Rig(max_items=2)
    rig.connection.data_received(framed(request(create_request(dict.fromkeys([*"abc", OURS], 1)), None)[0]))
    (answer,) = frames_of(rig.client.data)
    offset = response_body_offset(CREATE_TOPICS, 7, answer)
    topics = response_layout(CREATE_TOPICS, 7).read(answer, offset)["Topics"]
    codes = {topic["Name"].decode(): topic["ErrorCode"] for topic in topics}
    assert codes == {"a": 44, "b": 44, OURS: 29} and rig.upstream.sent == []


def reads_nothing(rig: Rig) -> None:
    """Its client leaves its answers where they are."""
    rig.connection.pause_writing()


# The latter by the proxy, while its client still has the socket.
@pytest.mark.parametrize("stop", [reads_nothing, lambda rig: rig.connection.end("stop")])
def test_who_cannot_go_on_keeps_nobody_waiting(stop: Callable[[Rig], None]) -> None:
    """The one in front of a line of its account; the next one has its turn."""
    rich = Rig(protect_topics=False)
    alone(rich.meter)
    first, second = Rig(rich), Rig(rich)
    rich.meter.set_policies(PolicySet({"quotas[user=ANONYMOUS]": {"producer_byte_rate": 10_000}}))
    frame, other = (produce(9, {TOPIC: [batch(1)]}, client_id=name)[0] for name in ("tests", "other"))
    large = produce(9, {TOPIC: [batch(1, size=50_000)]})[0]
    first.connection.data_received(opaque(1))
    before = first.upstream.data
    for rig, sent in ((rich, large), (first, frame), (second, other)):
        rig.prove()
        rig.connection.data_received(framed(sent))
    assert rich.upstream.sent and first.upstream.data == before and not second.upstream.data
    stop(first)
    rich.desk.pass_ms(20_000)
    first.run_timers()
    second.run_timers()
    assert second.upstream.sent == [other]
    if stop is reads_nothing:
        first.connection.resume_writing()
        assert first.upstream.data == before + framed(frame)
