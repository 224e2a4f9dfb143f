"""A connection of the Pulsar proxy: what its parts see, how it ends."""

import ssl

import pytest
from pulsar_rig import MESSAGE, SEND, PulsarRig, Seeing, connect, connected, kinds, split

from enforcer.core import bounds
from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import ServerError, build, command, error, parse
from enforcer.wire.pulsar.schema import new_body


def test_what_comes_with_a_connect_waits(rig: PulsarRig) -> None:
    """Bytes behind it are kept while the broker is dialled, and judged then."""
    rig.up(connect() + command(frames.PING) + SEND[:500])
    rig.up(SEND[500:700])
    assert not rig.client.reading
    rig.dialled()
    assert kinds(rig.broker.data) == [frames.CONNECT, frames.PING]
    rig.up(SEND[700:])
    assert rig.client.closed


def test_a_broker_that_is_away(rig: PulsarRig) -> None:
    """The client is told, and both ends are closed."""
    rig.up(connect())
    rig.upstream._owner.upstream_failed("refused")
    assert parse(rig.client.data).error == ServerError.SERVICE_NOT_READY and rig.client.closed
    assert rig.metric("proxy_upstream_failures_total", reason="refused") == 1


@pytest.mark.parametrize("over", [False, True])
def test_a_broker_that_ends_by_tls(rig: PulsarRig, over: bool) -> None:
    """Before it has answered it could not be reached, and the client is told; later it is lost."""
    if over:
        rig.open()
        rig.down(MESSAGE[:500])
    else:
        rig.knock()
    before, rig.client.data = rig.client.data, b""
    rig.upstream.connection_lost(ssl.SSLError(1, "alert"))
    reason = "lost" if over else "tls"
    assert rig.metric("proxy_upstream_failures_total", reason=reason) == 1 and rig.client.closed
    assert rig.metric("proxy_closed_connections_total", reason=f"upstream_{reason}") == 1
    if over:
        assert before.endswith(MESSAGE[:500]) and not rig.client.data
    else:
        assert parse(rig.client.data).error == ServerError.SERVICE_NOT_READY


def test_parts_see_what_they_name_in_their_order() -> None:
    """The first one first; what it changes the second one sees, what it takes nobody else."""
    first, second = Seeing({frames.SEND}, {frames.MESSAGE}), Seeing({frames.SEND, frames.FLOW}, set())
    rig = PulsarRig(first, second).open()
    flow = command(frames.FLOW, consumer_id=1, message_permits=5)
    first.answer = lambda frame: SEND if frame == MESSAGE else frame
    rig.up(SEND + flow + command(frames.PING))
    assert kinds(rig.broker.data) == [frames.SEND, frames.FLOW, frames.PING]
    assert [kind for _, kind, _ in second.seen] == [frames.SEND, frames.FLOW]
    rig.down(MESSAGE)
    assert rig.client.data == SEND
    first.answer = lambda frame: None
    rig.up(SEND + flow)
    assert kinds(rig.broker.data) == [frames.SEND, frames.FLOW, frames.PING, frames.FLOW]
    assert len(second.seen) == 3


def test_what_a_part_answers_all_parts_see() -> None:
    """As if the broker had; nothing once the connection is over."""
    first, second = Seeing(set(), {frames.ERROR}), Seeing(set(), set())
    rig = PulsarRig(first, second).open()
    refusal = error(7, ServerError.NOT_ALLOWED, "no")
    rig.connection.answer(refusal)
    assert rig.client.data == refusal and [kind for _, kind, _ in first.seen] == [frames.ERROR]
    rig.connection.end("stop")
    rig.connection.answer(refusal)
    assert rig.client.data == refusal and len(first.seen) == 1


def test_a_part_that_looks_elsewhere() -> None:
    """Once it says so it sees other kinds, from the next frame on."""
    part = Seeing({frames.SEND}, set())
    rig = PulsarRig(part).open()

    def enough(frame: bytes) -> bytes:
        part.up = frozenset()
        rig.connection.look_again()
        return frame

    part.answer = enough
    rig.up(SEND * 3)
    assert rig.broker.data == SEND * 3 and len(part.seen) == 1


def test_what_a_part_sends_waits_for_the_end_of_a_frame() -> None:
    """Nothing is written into the middle of a frame that passes."""
    part = Seeing(set(), set())
    rig = PulsarRig(part).open()
    flow = command(frames.FLOW, consumer_id=1, message_permits=5)
    rig.up(SEND[:600])
    rig.connection.to_broker(flow)
    assert rig.broker.data == SEND[:600]
    rig.up(SEND[600:])
    assert rig.broker.data == SEND + flow
    rig.down(MESSAGE[:600])
    rig.connection.to_client(flow)
    rig.down(MESSAGE[600:])
    assert rig.client.data == MESSAGE + flow


def test_while_a_part_reads_nothing_more_what_it_sends_waits_for_no_frame_in_part() -> None:
    """What it keeps may have to leave before anything is read again; behind such a one it never could."""
    part = Seeing({frames.SEND}, set())
    rig = PulsarRig(part).open()
    part.answer = lambda frame: rig.connection.pause(part)
    passing = command(frames.LOOKUP, request_id=1, topic="t" * 100)
    rig.up(SEND + passing[:60])
    rig.connection.to_broker(SEND)
    assert not rig.client.reading and rig.broker.data == SEND
    rig.connection.resume(part)
    rig.up(passing[60:])
    assert rig.broker.data == SEND + passing


def test_back_pressure() -> None:
    """Each side is read while the other takes what comes and no part objects."""
    one, other = Seeing(set(), set()), Seeing(set(), set())
    rig = PulsarRig(one, other).open()
    connection = rig.connection
    connection.pause(one)
    connection.pause(other)
    connection.pause(one)
    connection.resume(one)
    assert not rig.client.reading and rig.broker.reading
    rig.upstream.pause_writing()
    connection.resume(other)
    assert not rig.client.reading
    rig.upstream.resume_writing()
    assert rig.client.reading
    connection.pause_writing()
    assert connection.stalled
    connection.pause_broker(one)
    connection.resume_writing()
    assert not rig.broker.reading and rig.client.reading
    # Whoever does not read it: what the broker has answered nobody knows.
    assert connection.stalled
    connection.resume_broker(one)
    assert rig.broker.reading and not connection.stalled


def test_one_end_is_the_end_of_both() -> None:
    """Either side; the parts learn it once, and nothing is sent after it."""
    for ends in ("client", "broker"):
        part = Seeing({frames.SEND}, set())
        rig = PulsarRig(part).open()
        if ends == "client":
            rig.connection.connection_lost(None)
            assert rig.upstream.closed
        else:
            rig.upstream.connection_lost(None)
            assert rig.client.closed
            rig.connection.connection_lost(None)
        rig.connection.end("anything")
        rig.up(SEND)
        rig.connection.to_client(SEND)
        assert part.closed == 1 and rig.forgotten == 1 and not part.seen and rig.client.data == b""


def test_a_mistake_in_a_part_ends_one_connection() -> None:
    """It is counted as ours, and not raised."""
    part = Seeing({frames.SEND}, set())
    rig = PulsarRig(part).open()
    part.answer = lambda frame: frame[1 // 0 :]
    rig.up(SEND)
    assert rig.client.closed and rig.metric("proxy_bad_frames_total", reason="internal") == 1
    assert rig.metric("proxy_closed_connections_total", reason="internal") == 1


def test_a_mistake_as_a_part_closes_is_counted_and_the_others_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have things to give back too."""
    wrong, other = Seeing(set(), set()), Seeing(set(), set())
    rig = PulsarRig(wrong, other).open()
    monkeypatch.setattr(wrong, "close", lambda: 1 // 0)
    rig.connection.end("stop")
    assert other.closed == 1 and rig.client.closed and rig.upstream.closed
    assert rig.metric("proxy_bad_frames_total", reason="internal") == 1


def test_a_mistake_in_what_a_part_does_later_ends_it_too(rig: PulsarRig) -> None:
    """Its client would wait for ever for what was to be done."""
    rig.open()
    rig.connection.call_later(5, lambda: [][0]).fire()
    assert rig.client.closed and rig.metric("proxy_bad_frames_total", reason="internal") == 1


@pytest.mark.parametrize("from_client", [True, False])
def test_garbage_ends_it(rig: PulsarRig, from_client: bool) -> None:
    """From either side; what came before it has passed."""
    rig.open()
    (rig.up if from_client else rig.down)(SEND + b"\xff" * 50)
    assert (rig.broker if from_client else rig.client).data == SEND
    assert rig.client.closed and rig.upstream.closed
    reason = "bad_frame" if from_client else "bad_response"
    assert rig.metric("proxy_closed_connections_total", reason=reason) == 1


def test_the_bound_of_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the login a small one; then what the broker takes, and some."""
    monkeypatch.setattr(bounds, "MAX_UNAUTHENTICATED_FRAME_BYTES", 1_024)
    rig = PulsarRig()
    rig.up(connect(auth_data=bytes(2_000)))
    assert rig.client.closed and rig.metric("proxy_bad_frames_total", reason="too_large") == 1
    for size, passes in ((1_000 + 10_240, True), (1_001 + 10_240, False)):
        rig = PulsarRig().knock()
        rig.down(connected(max_message_size=1_000))
        frame = build(frames.SEND, new_body(frames.SEND, producer_id=1), bytes(size - 10))
        assert len(frame) == 4 + size
        rig.up(frame)
        assert rig.client.closed is not passes


def test_who_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the login, and for the rest of a frame while it is read; then it ends."""
    monkeypatch.setattr("enforcer.pulsar.handshake.FIRST_FRAME_TIMEOUT_MS", 1_000)
    rig = PulsarRig()
    rig.now = 900
    rig.connection.check(rig.now)
    assert not rig.client.closed
    rig.now = 1_100
    rig.connection.check(rig.now)
    assert rig.client.closed and rig.metric("proxy_closed_connections_total", reason="no_login") == 1
    monkeypatch.setattr(bounds, "PARTIAL_FRAME_TIMEOUT_MS", 1_000)
    rig = PulsarRig().open()
    rig.up(SEND[:50])
    part = Seeing(set(), set())
    for now, objects in ((500, False), (900, True), (5_000, True), (5_100, False), (6_000, False)):
        (rig.connection.pause if objects else rig.connection.resume)(part)
        rig.connection.check(now)
        assert not rig.client.closed, now
    rig.connection.check(6_200)
    assert rig.client.closed and rig.metric("proxy_closed_connections_total", reason="slow_sender") == 1


@pytest.mark.parametrize("seen", [False, True])
def test_who_sends_large_frames_one_after_the_other_is_not_slow(
    seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Always in the middle of one, from the first look on, though each one is whole in time."""
    monkeypatch.setattr(bounds, "PARTIAL_FRAME_TIMEOUT_MS", 1_000)
    rig = PulsarRig(*([Seeing({frames.SEND}, set())] if seen else []))
    rig.now = 1_000_000
    rig.open()
    rig.up(SEND[:500])
    for _ in range(5):
        rig.now += 900
        rig.connection.check(rig.now)
        rig.up(SEND[500:] + SEND[:500])
        assert not rig.client.closed
    for _ in range(3):
        rig.now += 900
        rig.connection.check(rig.now)
    assert rig.client.closed and rig.metric("proxy_closed_connections_total", reason="slow_sender") == 1


@pytest.mark.parametrize("side", ["", "_broker"])
def test_a_client_hears_a_pong_while_a_part_reads_no_frames(side: str) -> None:
    """Of it or of its broker: every 20 s, and only then; the broker gets none of ours."""
    part = Seeing(set(), set())
    rig = PulsarRig(part).open()
    said = []
    for second in range(0, 100, 5):
        if second in (30, 75):
            getattr(rig.connection, ("pause" if second == 30 else "resume") + side)(part)
        rig.client.data = b""
        rig.connection.check(second * 1_000)
        said += [second] * len(kinds(rig.client.data))
        assert set(kinds(rig.client.data)) <= {frames.PONG}
    assert said == [45, 65] and not rig.broker.data


def test_a_client_that_takes_nothing_more_after_the_end() -> None:
    """What is written already may leave for stop_timeout_ms."""
    rig = PulsarRig(stop_timeout_ms=1_000).open()
    rig.connection.end("stop")
    rig.connection.check(900)
    assert not rig.client.aborted
    rig.connection.check(1_100)
    assert rig.client.aborted


def test_what_it_keeps() -> None:
    """Frames in part, what waits behind one, and what parts say; nothing after it was cut."""
    part = Seeing({frames.SEND}, set())
    rig = PulsarRig(part)
    rig.client.get_write_buffer_size = rig.broker.get_write_buffer_size = lambda: 7
    rig.open()
    rig.up(SEND[:500])
    part.held_bytes = 1_000
    assert rig.connection.held_bytes == 500 + 1_000 + 14 + len(rig.connection.connect)
    rig.connection.cut("memory")
    assert rig.client.aborted and rig.connection.held_bytes - 1_000 <= 14


def test_too_many_connections(rig: PulsarRig) -> None:
    """One more is closed at once and leaves no trace."""
    rig.full = True
    connection = type(rig.connection)(rig, lambda _owner: rig.upstream)
    connection.connection_made(rig.client)
    assert rig.client.aborted
    connection.connection_lost(None)
    assert split(rig.client.data) == []


def test_who_has_been_here_too_long_hears_what_is_under_way(rig: PulsarRig) -> None:
    """It is not read any more, and ends when it is asked again, a second later."""
    rig.open()
    rig.connection.drain("age")
    rig.down(MESSAGE)
    assert not rig.client.reading and rig.client.data.endswith(MESSAGE)
    rig.connection.drain("age")
    assert rig.client.closed and rig.metric("proxy_closed_connections_total", reason="age") == 1


def test_who_has_been_here_too_long_ends_between_two_frames_whatever_parts_see(rig: PulsarRig) -> None:
    """One that looks again makes frames pass in part anew: the last one must not be torn, nor keep it."""
    rig.open()
    rig.connection.drain("age")
    rig.connection.look_again()
    rig.down(MESSAGE[:600])
    rig.connection.drain("age")
    assert not rig.client.closed and rig.client.data.endswith(MESSAGE[:600])
    rig.down(MESSAGE[600:] + MESSAGE[:600])
    rig.connection.drain("age")
    assert rig.client.closed and rig.client.data.endswith(MESSAGE)
