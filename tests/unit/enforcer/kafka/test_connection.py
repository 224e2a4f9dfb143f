"""One connection without sockets: order of answers, bounds, back-pressure, endings."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any, cast

from coordinator_kit import Desk
from kafka.protocol.producer import ProduceResponse
from kafka_kit import build, response
from meter_kit import TOPIC
from traffic_kit import batch, produce

from enforcer.kafka.brokers import Brokers
from enforcer.kafka.connection import Connection
from enforcer.kafka.mutations.recent_topics import RecentTopics
from enforcer.kafka.traffic.frame_meter import FrameMeter
from enforcer.kafka.upstream import Owner, Upstream
from enforcer.metering.meter import Meter
from streaming.policy.policy_set import PolicySet

METADATA, PRODUCE, API_VERSIONS = 3, 0, 18


def framed(payload: bytes) -> bytes:
    """A frame with its length."""
    return struct.pack(">i", len(payload)) + payload


def header(key: int, version: int, correlation_id: int) -> bytes:
    """A request header without client-id."""
    return struct.pack(">hhih", key, version, correlation_id, -1)


def opaque(correlation_id: int, size: int = 0) -> bytes:
    """A ListGroups v0 request, which no rule touches; `size` further bytes."""
    return framed(header(16, 0, correlation_id) + bytes(size))


def frames_of(data: bytes) -> list[bytes]:
    """The payloads in a stream; the last may be cut off."""
    found = []
    while data:
        (length,) = struct.unpack(">i", data[:4])
        found.append(data[4 : 4 + length])
        data = data[4 + length :]
    return found


class FakeTransport:
    """A socket's writing end."""

    def __init__(self) -> None:
        self.data = b""
        self.reading = True
        self.closed = False

    def write(self, data: bytes) -> None:
        """Keep what is written."""
        self.data += data

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.closed

    def pause_reading(self) -> None:
        """No more data comes."""
        self.reading = False

    def resume_reading(self) -> None:
        """Data comes again."""
        self.reading = True

    def close(self) -> None:
        """Close after what is written."""
        self.closed = True

    abort = close

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """Nothing to do."""

    def answered(self) -> list[int]:
        """Correlation ids of the frames written, in order."""
        return [struct.unpack(">i", frame[:4])[0] for frame in frames_of(self.data)]


class FakeUpstream:
    """A broker connection that keeps requests until the test answers them."""

    def __init__(self) -> None:
        self.data, self.unfinished = b"", False
        self.writable, self.full, self.reading, self.abandoned = True, False, True, False

    def connect(self, host: str, port: int) -> None:
        """At once."""

    def send(self, frame: bytes) -> bool:
        """Keep it."""
        return self.pass_on(framed(frame), False)

    def pass_on(self, data: bytes, unfinished: bool) -> bool:
        """Keep it, and whether more is to come."""
        self.data += data
        self.unfinished = unfinished
        return True

    @property
    def sent(self) -> list[bytes]:
        """The requests, whole or begun."""
        return frames_of(self.data)

    def pause_reading(self) -> None:
        """No more responses."""
        self.reading = False

    def resume_reading(self) -> None:
        """Responses again."""
        self.reading = True

    def abandon(self) -> None:
        """The client is gone."""
        self.abandoned = True


class Rig:
    """A connection between a fake client and a fake broker."""

    def __init__(self, **settings: Any) -> None:
        desk = Desk(**settings)
        self.settings, self.coordinator, self.metrics = desk.settings, desk.coordinator, desk.metrics
        self.desk = desk
        self.meter = Meter(desk.settings, desk.coordinator.clock)
        self.frame_meter = FrameMeter(self.meter, desk.settings)
        self.recent_topics = RecentTopics(
            keep_ms=5_000, topics_max=100, default_partitions=1, steady_ms=lambda: desk.now_ms
        )
        self.brokers = Brokers(
            listen_host="", advertise="", port_base=0, brokers_max=0, serve=lambda _socket, _broker: None
        )
        self.client, self.upstream = FakeTransport(), FakeUpstream()

        def make_upstream(_owner: Owner, _settings: Any) -> Upstream:
            return cast(Upstream, self.upstream)

        self.connection = Connection(self, lambda: ("kafka", 9092), make_upstream)
        self.connection.connection_made(cast(asyncio.Transport, self.client))

    def answer(self, frames: list[bytes]) -> None:
        """The broker sends these responses."""
        self.connection.upstream_received(b"".join(map(framed, frames)))

    def now_ms(self) -> float:
        """The desk's clock (link.Hub)."""
        return self.desk.now_ms

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Never called in these tests (link.Hub)."""
        raise AssertionError("nothing here waits")

    def admit(self, connection: Any) -> bool:
        """Everybody comes in (link.Hub)."""
        return True

    def forget(self, connection: Any) -> None:
        """Nothing is kept (link.Hub)."""

    def closed(self, reason: str) -> float | None:
        """How many connections ended for this reason."""
        name = "weir_proxy_closed_connections_total"
        return self.metrics.registry.get_sample_value(name, {"reason": reason})


def test_answers_keep_the_order_of_the_requests() -> None:
    """An answer of our own waits for those of the broker that are due before it."""
    rig = Rig()
    rig.connection.data_received(opaque(1) + framed(header(API_VERSIONS, 99, 2) + b"\0") + opaque(3))
    assert rig.client.answered() == []
    rig.answer([struct.pack(">i", 1) + b"body"])
    assert rig.client.answered() == [1, 2]
    rig.answer([struct.pack(">i", 3)])
    assert rig.client.answered() == [1, 2, 3]


def test_produce_without_acks_has_no_answer() -> None:
    """acks=0 takes no place among the answers, or all later ones would be shifted."""
    rig = Rig()
    no_acks = header(PRODUCE, 3, 1) + struct.pack(">hhi", -1, 0, 1_000)
    rig.connection.data_received(framed(no_acks) + opaque(2))
    assert len(rig.upstream.sent) == 2
    rig.answer([struct.pack(">i", 2)])
    assert rig.client.answered() == [2]


def test_a_response_to_nothing_ends_the_connection() -> None:
    """A broker that answers what was not asked has lost step: nothing of it is passed on."""
    for frames in ([struct.pack(">i", 9)], [b"\0"], [struct.pack(">i", 1), struct.pack(">i", 1)]):
        rig = Rig()
        rig.connection.data_received(opaque(1))
        rig.answer(frames)
        assert rig.client.closed and rig.closed("bad_response") == 1


def test_an_address_without_room_is_not_passed_on() -> None:
    """When there is no port left for a broker, the response that names it does not reach the client."""
    rig = Rig()
    rig.connection.data_received(framed(header(METADATA, 1, 1) + struct.pack(">i", 0)))
    brokers = struct.pack(">iiih5sih", 1, 1, 7, 5, b"kafka", 9092, -1)
    rig.answer([brokers + struct.pack(">ii", 7, 0)])
    assert rig.client.data == b"" and rig.client.closed


def test_unanswered_requests_are_bounded() -> None:
    """At inflight_max reading stops; an answer lets it go on."""
    rig = Rig(inflight_max=3)
    rig.connection.data_received(b"".join(opaque(number) for number in range(5)))
    assert len(rig.upstream.sent) == 3 and not rig.client.reading
    rig.answer([struct.pack(">i", number) for number in range(2)])
    assert len(rig.upstream.sent) == 5 and not rig.client.reading
    rig.answer([struct.pack(">i", number) for number in range(2, 5)])
    assert rig.client.reading and rig.client.answered() == [0, 1, 2, 3, 4]


def test_requests_kept_are_bounded_in_bytes() -> None:
    """While the broker is not connected yet, reading stops at held_bytes_max."""
    rig = Rig(held_bytes_max=1_000)
    rig.upstream.writable = False
    rig.connection.data_received(opaque(1, 900))
    assert rig.client.reading
    rig.connection.data_received(opaque(2, 900))
    assert not rig.client.reading
    rig.upstream.writable = True
    rig.connection.upstream_changed()
    assert rig.client.reading and len(rig.upstream.sent) == 2


def test_back_pressure_both_ways() -> None:
    """A broker that reads slowly stops the client, a client that reads slowly stops the broker."""
    rig = Rig()
    rig.upstream.writable, rig.upstream.full = False, True
    rig.connection.upstream_changed()
    assert not rig.client.reading
    rig.upstream.writable, rig.upstream.full = True, False
    rig.connection.upstream_changed()
    assert rig.client.reading
    rig.connection.pause_writing()
    assert not rig.upstream.reading
    rig.connection.resume_writing()
    assert rig.upstream.reading


def test_a_large_request_passes_while_it_comes() -> None:
    """Its body is not kept, and it goes on to be read even where no further request may."""
    rig = Rig(inflight_max=1)
    large = opaque(2, 100_000)
    rig.connection.data_received(large[:20_000])
    assert rig.upstream.data == large[:20_000] and rig.upstream.unfinished and rig.client.reading
    rig.connection.data_received(large[20_000:] + opaque(3))
    assert rig.upstream.data == large and not rig.upstream.unfinished and not rig.client.reading
    rig.answer([struct.pack(">i", 2)])
    assert rig.upstream.data == large + opaque(3)


def test_nothing_is_sent_into_the_middle_of_a_request() -> None:
    """What the proxy itself sends waits for the rest of a request that is passing."""
    rig, broker = Rig(), FakeTransport()
    upstream = Upstream(rig.connection, rig.settings)
    upstream.connection_made(cast(asyncio.Transport, broker))
    assert upstream.pass_on(b"begin", True) and upstream.send(b"own") and upstream.pass_on(b"more", True)
    assert broker.data == b"beginmore"
    assert upstream.pass_on(b"end", False) and upstream.send(b"next")
    assert broker.data == b"beginmoreend" + framed(b"own") + framed(b"next")


def test_a_request_that_stops_coming_ends_its_connection() -> None:
    """Begun and not whole after the time limit, whether it is kept or passed on; a whole one starts anew."""
    for begun in (opaque(1)[:9], opaque(1, 100_000)[:50_000]):
        rig = Rig(partial_frame_timeout_ms=100)
        rig.desk.now_ms = 1_000
        rig.connection.data_received(opaque(0) + begun)
        rig.connection.check(1_100)
        assert not rig.client.closed
        rig.connection.check(1_101)
        assert rig.client.closed and rig.closed("slow_sender") == 1


def test_endings_are_counted_once() -> None:
    """A lost broker ends the client; later troubles of the same connection add nothing."""
    rig = Rig()
    rig.connection.data_received(opaque(1))
    rig.connection.upstream_failed("lost")
    rig.connection.upstream_failed("lost")
    rig.connection.data_received(struct.pack(">i", -1))
    assert rig.client.closed and rig.closed("upstream_lost") == 1
    rig.connection.connection_lost(None)
    assert rig.upstream.abandoned


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


def test_traffic_is_read_only_while_it_is_metered() -> None:
    """Policies come and go on one connection; counts are of the frames in between, and all are answered."""
    rig = Rig()
    frame, _ = produce(9, {TOPIC: [batch(4)]})
    answer = response(build(ProduceResponse, 9, responses=[]))
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
        rig.connection.data_received(framed(frame)[:30_000])
        assert bool(rig.upstream.data) == (limited == "others")
        rig.connection.data_received(framed(frame)[30_000:])
        assert rig.upstream.sent == [frame]
        counted = [account.used[1] for account in rig.meter.accounts.values()]
        assert counted == ([len(frame)] if limited == "tests" else [])


def test_a_damaged_metered_request_ends_its_connection() -> None:
    """As a broker would end it."""
    rig = Rig()
    rig.meter.set_policies(PolicySet(GROUPS))
    frame, _ = produce(9, {TOPIC: [batch(4)]})
    rig.connection.data_received(framed(frame[:-30]))
    assert rig.client.closed and rig.closed("bad_frame") == 1 and rig.upstream.sent == []
