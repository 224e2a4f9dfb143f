"""How a connection ends: who is answered, what is still carried out, and for how long."""

import socket
import struct
from typing import Any

import pytest
from connection_kit import PRODUCE, Rig, framed, frames_of, header, opaque
from kafka.protocol.admin import topics
from kafka.protocol.metadata import MetadataResponse
from kafka_kit import build, request, response
from mutation_kit import Desk
from wire_client import create_request

from enforcer.core import bounds
from enforcer.host.budget import Seat
from enforcer.kafka.part import Slot
from enforcer.wire.kafka.frames import METADATA
from streaming.contract.errors import WeirError
from streaming.policy.policy_set import PolicySet

FETCH = 1
LIMIT_MS = bounds.DEPARTED_MAX_MS


def silent(correlation_id: int) -> bytes:
    """A Produce request without acks."""
    return framed(header(PRODUCE, 3, correlation_id) + struct.pack(">hhii", -1, 0, 1_000, 0))


def answer(correlation_id: int, size: int = 0) -> bytes:
    """A response that nobody reads."""
    return struct.pack(">i", correlation_id) + bytes(size)


def creation(version: int, name: str = "x") -> bytes:
    """A CreateTopics request of 5 partitions."""
    return framed(request(create_request({name: 5}, version), None)[0])


def created(version: int, name: str = "x") -> bytes:
    """The broker's answer to it."""
    rows = [{"name": name, "num_partitions": 5}]
    return response(build(topics.CreateTopicsResponse, version, topics=rows))


def unknown(name: str = "x") -> bytes:
    """The broker's answer to the lookup before it."""
    return response(build(MetadataResponse, 4, topics=[{"name": name, "error_code": 3}]))


def limited(**settings: Any) -> Rig:
    """A connection of a client with a quota of 1, burst 11."""
    rig = Rig(**settings)
    rig.desk.limit("quotas[user=ANONYMOUS]", controller_mutation_rate=1)
    return rig


def charged(desk: Desk) -> list[int]:
    """Mutations of the request events."""
    return [item["mutations"] for event in desk.of_type("request") for item in event["items"]]


def decide(rig: Rig, **fields: Any) -> None:
    """The decision of the only question arrives."""
    (ask,) = rig.coordinator.undecided.pending
    rig.desk.decide(ask, **fields)


def test_who_sends_no_more_is_answered_and_then_closed() -> None:
    """A half-closed connection stays open until its last answer has left; then both sides end."""
    rig = Rig()
    rig.connection.data_received(opaque(1) + opaque(2) + silent(3))
    assert rig.connection.eof_received()
    rig.answer([answer(1)])
    assert not rig.client.closed and not rig.upstream.closed
    rig.answer([answer(2)])
    assert rig.client.answered() == [1, 2]
    assert rig.client.closed and rig.upstream.closed and not rig.over
    rig.lose_client()
    assert rig.over


def test_what_came_before_the_broker_connection_is_sent() -> None:
    """A client that is gone before there is a broker connection loses nothing, however it went."""
    for exc in (None, ConnectionResetError()):
        rig = Rig()
        rig.upstream.writable = False
        rig.connection.data_received(opaque(1) + silent(2))
        rig.lose_client(exc)
        assert not rig.upstream.closed
        rig.upstream.writable = True
        rig.connection.upstream_changed()
        assert rig.upstream.data == opaque(1) + silent(2) and not rig.over
        rig.answer([answer(1)])
        assert rig.over and rig.client.data == b""


def test_a_part_of_a_request_holds_nothing_up() -> None:
    """Its rest will never come: what came before is answered, and all ends."""
    for part in (opaque(2)[:9], opaque(2, 100_000)[:50_000], silent(2)[:9]):
        rig = Rig()
        rig.connection.data_received(opaque(1) + part)
        rig.connection.eof_received()
        rig.answer([answer(1)])
        assert rig.client.answered() == [1] and rig.client.closed


def test_what_we_ask_behind_a_part_of_a_request_holds_nothing_up() -> None:
    """It never leaves, before or after the client's end, as of a timer: the connection stayed for 30 s."""
    rig = Rig()
    rig.connection.data_received(opaque(1) + opaque(2, 100_000)[:50_000])
    assert rig.connection.send(Slot(METADATA, 12, 0, lambda _: None), b"")
    rig.connection.eof_received()
    assert not rig.connection.send(Slot(METADATA, 12, 0, lambda _: None), b"")
    rig.answer([answer(1)])
    assert rig.client.answered() == [1] and rig.client.closed and rig.upstream.closed


def test_an_answer_that_only_the_client_would_read_is_not_waited_for() -> None:
    """Consumers leave with a Fetch open; once nothing else is due the broker connection goes."""
    rig = Rig()
    fetch = framed(header(FETCH, 12, 2) + bytes(100))
    rig.connection.data_received(opaque(1) + fetch)
    rig.lose_client()
    assert not rig.over
    rig.answer([answer(1)])
    assert rig.over


def test_answers_to_nobody_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many bytes are taken as would wait for a client that does not read, and are no traffic."""
    monkeypatch.setattr(bounds, "WRITE_BUFFER_HIGH_BYTES", 1_000)
    monkeypatch.setattr(bounds, "WRITE_BUFFER_LOW_BYTES", 10)
    rig = Rig()
    rig.connection.data_received(opaque(1) + opaque(2) + opaque(3))
    rig.lose_client()
    rig.answer([answer(1, 900)])
    assert not rig.over
    rig.answer([answer(2, 900)])
    assert rig.over and rig.upstream.aborted and rig.metrics.traffic.bytes_out == 0


@pytest.fixture
def rig() -> Rig:
    """A connection of a client with a quota of 1, burst 11."""
    return limited()


def test_permissive_requests_of_the_departed_are_charged(rig: Rig) -> None:
    """Lookup and answer are waited for, and the decision; then all ends."""
    rig.connection.data_received(creation(4))
    rig.lose_client()
    rig.answer([unknown(), created(4)])
    assert charged(rig.desk) == [5] and not rig.over
    decide(rig, throttle_time_ms=4_000)
    assert rig.over


def test_a_proxy_that_ends_a_client_settles_what_was_forwarded(rig: Rig) -> None:
    """A bad frame behind a creation frees nobody of the charge."""
    rig.connection.data_received(creation(4) + struct.pack(">i", -1))
    assert rig.client.closed and rig.closed("bad_frame") == 1 and not rig.upstream.closed
    rig.answer([unknown(), created(4)])
    decide(rig)
    rig.lose_client()
    assert charged(rig.desk) == [5] and rig.over and rig.client.data == b""


def test_without_its_lookup_a_creation_is_charged_as_it_says() -> None:
    """The broker is lost after the request was sent to it: nothing else is known of it."""
    for quota in (True, False):
        rig = limited() if quota else Rig()
        rig.connection.data_received(creation(4))
        rig.connection.upstream_failed("lost")
        assert charged(rig.desk) == [5]
        rig = limited() if quota else Rig()
        rig.upstream.writable = False
        rig.connection.data_received(creation(4))
        rig.connection.upstream_failed("refused")
        assert charged(rig.desk) == []


def test_what_was_not_admitted_goes_with_its_client() -> None:
    """A strict request is dropped while it is looked up, while it waits, and when its turn would come."""
    for step in ("lookup", "decision", "turn"):
        rig = limited()
        if step == "turn":
            rig.upstream.writable = False
        rig.connection.data_received(creation(7) + silent(9))
        if step == "decision":
            rig.answer([unknown()])
        rig.lose_client()
        rig.upstream.writable = True
        rig.connection.upstream_changed()
        if step == "lookup":
            rig.answer([unknown()])
        assert rig.over and rig.dropped("strict") == 1
        assert frames_of(rig.upstream.data)[-1:] == [silent(9)[4:]]
        assert charged(rig.desk) == ([5] if step == "decision" else [])


@pytest.mark.parametrize("listens", [True, False])
def test_who_listens_is_found_out_by_asking(rig: Rig, listens: bool) -> None:
    """Before a decision the first byte of the answer is sent: whoever has closed resets at that."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        far = socket.create_connection(server.getsockname())
        rig.client.socket, _ = server.accept()
    with rig.client.socket, far:
        rig.connection.data_received(creation(7))
        rig.connection.eof_received()
        assert rig.client.data == b"\0"
        if not listens:
            far.close()
            rig.client.socket.sendall(b"\0")
        rig.timers[-1].fire()
        assert rig.client.aborted is not listens
        rig.answer([unknown()])
        if listens:
            decide(rig)
            rig.answer([created(7)])
            assert rig.client.answered() == [7] and rig.client.closed


def test_what_waits_too_long_is_dropped_and_counted() -> None:
    """At DEPARTED_MAX_MS the departed lose what still waits, and nothing is left of them."""
    for ended in ("lost", "half", "behind"):
        rig = Rig()
        rig.upstream.writable = False
        rig.connection.data_received(silent(1) + silent(2))
        if ended == "lost":
            rig.lose_client()
        elif ended == "half":
            rig.connection.eof_received()
        else:
            rig.connection.ending.notice()
        rig.connection.check(LIMIT_MS)
        assert not rig.upstream.aborted
        rig.connection.check(LIMIT_MS + 1)
        assert rig.upstream.aborted and rig.dropped("departed") == 2
        assert rig.over == (ended == "lost") and rig.client.aborted == (ended != "lost")


def test_without_a_broker_all_ends() -> None:
    """What a departed client left is dropped and counted; one that listens sees the end."""
    for gone in (True, False):
        rig = Rig()
        rig.upstream.writable = False
        rig.connection.data_received(silent(1) + silent(2))
        if gone:
            rig.lose_client()
        rig.connection.upstream_failed("refused")
        assert rig.dropped("upstream") == (2 if gone else 0)
        assert rig.over == gone and rig.client.closed is not gone


@pytest.mark.parametrize("ended", ["lost", "half", ""])
def test_what_is_ended_loses_what_waits(ended: str) -> None:
    """It is counted as dropped where the client has departed, and as a connection ended where one listens."""
    for dropped, closed in (("memory", "memory"), ("upstream", "bad_response")):
        rig = Rig()
        rig.upstream.writable = False
        rig.connection.data_received(silent(1) + silent(2))
        if ended:
            rig.lose_client() if ended == "lost" else rig.connection.eof_received()
        ending = rig.connection.ending
        ending.greedy(1, closed) if dropped == closed else ending.no_answer(WeirError("bad"))
        assert rig.dropped(dropped) == (2 if ended else 0)
        assert (rig.closed(closed) or 0) == (0 if ended == "lost" else 1)
        assert rig.upstream.aborted and not ending.takes


def test_a_lost_broker_waits_for_a_decision(rig: Rig) -> None:
    """The broker has answered and ended; the client hears its answer, with the throttle, and then the end."""
    rig.connection.data_received(creation(4))
    rig.answer([unknown(), created(4)])
    rig.connection.upstream_failed("lost")
    assert not rig.client.closed
    decide(rig)
    assert rig.client.answered() == [7] and rig.client.closed and rig.closed("upstream_lost") == 1


def test_who_has_been_here_too_long_is_answered_first() -> None:
    """What comes meanwhile is not taken; an idle one ends at once, and it is counted as such."""
    rig = Rig()
    rig.connection.data_received(opaque(1))
    for _ in range(2):
        rig.connection.drain("age")
        rig.connection.data_received(opaque(2))
        assert not rig.client.closed and len(rig.upstream.sent) == 1
    rig.answer([answer(1)])
    assert rig.client.closed and rig.closed("age") == 1
    idle = Rig()
    idle.connection.drain("age")
    assert idle.client.closed and idle.closed("age") == 1
    late = Rig()
    late.connection.data_received(opaque(1))
    late.connection.drain("age")
    for _ in range(2):
        late.connection.drop("age")
    assert late.client.aborted and late.closed("age") == 1


def test_the_first_reason_to_end_is_counted() -> None:
    """Who drains for a stop, or since its session is over, becomes no older by it."""
    for why, begin in (("stop", "drain"), ("session", "end_session")):
        rig = Rig()
        rig.connection.data_received(opaque(1))
        getattr(rig.connection, begin)()
        rig.connection.drain("age")
        rig.answer([answer(1)])
        assert rig.closed(why) == 1 and not rig.closed("age")


def test_a_stop_leaves_the_departed_their_turn() -> None:
    """Others get only their answers; who has ended already cannot send again."""
    for ended in (True, False):
        rig = Rig()
        rig.upstream.writable = False
        rig.connection.data_received(opaque(1))
        if ended:
            rig.connection.eof_received()
        rig.connection.ending.drain()
        assert rig.client.closed is not ended
        rig.upstream.writable = True
        rig.connection.upstream_changed()
        assert bool(rig.upstream.sent) == ended
    rig = Rig()
    rig.connection.data_received(opaque(1))
    rig.connection.ending.drain()
    assert not rig.client.closed
    rig.answer([answer(1)])
    assert rig.client.closed and rig.closed("stop") == 1


def test_the_end_of_a_muted_client_is_read(rig: Rig) -> None:
    """Seen from outside: its bytes are taken though it is muted, and it is let go when nothing waits."""
    rig.connection.data_received(creation(4))
    rig.answer([unknown(), created(4)])
    decide(rig, throttle_time_ms=60_000)
    assert not rig.client.reading
    rig.client.socket = socket.socket()
    with rig.client.socket:
        assert rig.connection.unread == {rig.client.socket.fileno(): False}
    rig.connection.ending.notice()
    assert rig.client.reading and not rig.client.closed
    rig.connection.eof_received()
    assert rig.client.closed and rig.upstream.closed and rig.connection.unread == {}
    assert rig.metrics.traffic.muted == 0


def test_a_socket_that_is_read_is_not_watched() -> None:
    """The event loop tells of its end."""
    assert Rig().connection.unread == {}


def test_a_failed_write_loses_nothing_that_came() -> None:
    """The loop gives a socket up when a write fails; what the client had sent is read all the same."""
    rig = Rig()
    near, far = socket.socketpair()
    with near, far:
        far.sendall(silent(1) + silent(2))
        near.setblocking(False)
        rig.client.socket = near
        rig.lose_client(BrokenPipeError())
    assert rig.upstream.data == silent(1) + silent(2) and rig.over


@pytest.mark.parametrize("step", ["lookup", "decision"])
def test_nothing_is_kept_behind_what_was_dropped(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers to what a gone client sent behind a dropped request are let go as they come, and bounded."""
    monkeypatch.setattr(bounds, "WRITE_BUFFER_HIGH_BYTES", 1_000)
    monkeypatch.setattr(bounds, "WRITE_BUFFER_LOW_BYTES", 10)
    rig = limited()
    rig.connection.data_received(creation(7) + opaque(11) + opaque(12) + opaque(13))
    if step == "decision":
        rig.answer([unknown()])
    rig.lose_client(ConnectionResetError())
    if step == "lookup":
        rig.answer([unknown()])
    responses = rig.connection._responses
    rig.answer([answer(11, 400), answer(12, 400)])
    assert [slot.correlation_id for slot in responses.answers] == [13] and not rig.over
    assert responses.kept_bytes == 0 and rig.connection._chain.held_bytes == 0
    rig.answer([answer(13, 900)])
    assert rig.over and rig.upstream.aborted and rig.client.data == b""


@pytest.mark.parametrize("waits", [True, False])
def test_a_reset_client_keeps_no_place_for_a_large_request(waits: bool) -> None:
    """Its rest will never come: the place is given back, none is taken anew, nor stood in line for."""
    rig = Rig()
    rig.meter.set_policies(PolicySet({"quotas[user=ANONYMOUS]": {"producer_byte_rate": 10**9}}))
    rig.connection.data_received(struct.pack(">i", 40 << 20) + header(PRODUCE, 9, 1))
    other = Seat(rig.budget, lambda: None)
    assert rig.connection._seat.held > 40 << 20
    if waits:
        assert not other.fits(40 << 20)
    rig.lose_client(ConnectionResetError())
    assert rig.over and other.fits(40 << 20) and not rig.budget.crowded
