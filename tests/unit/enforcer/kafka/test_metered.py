"""The metering side of a connection: what is forwarded, what the client is told, when it goes on."""

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceResponse
from kafka_kit import build, decode, request, response
from meter_kit import TOPIC, Desk
from traffic_kit import batch, fetch_request, fetch_response, key_of, produce, topic_id

from enforcer.core.coordinator import QuotaCoordinator
from enforcer.core.pacing import Pacer
from enforcer.kafka.brokers import Brokers
from enforcer.kafka.link import Hub, Slot
from enforcer.kafka.metered import Metered

GROUPS: dict[str, Any] = {
    "broker": {"resourceUsagePublishIntervalInSecs": 1},
    "resourcegroups.rg1": {"publishRateInMsgs": 100, "dispatchRateInMsgs": 100},
    "namespaces.acme/orders": {"resourcegroup": "rg1"},
}


class Rig:
    """A connection's metering with everything around it (link.Line); timers run when a test says so."""

    def __init__(self, policies: Mapping[str, Any] = GROUPS) -> None:
        self.desk = Desk(policies)
        self.sent: list[tuple[Slot | None, bytes]] = []
        self.reserved: list[Slot] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.resumed = 0
        coordinator = QuotaCoordinator(
            "p1", self.desk.settings, self.desk.metrics, cast(Any, None), self.desk.clock
        )
        brokers = Brokers(
            listen_host="", advertise="", port_base=0, brokers_max=0, serve=lambda _socket, _broker: None
        )
        hub = SimpleNamespace(frame_meter=self.desk.frames, metrics=self.desk.metrics, brokers=brokers)
        self.pacer = Pacer(coordinator, self.call_later, self.resume)
        self.metered = Metered(cast(Hub, hub), self, self.pacer)

    def reserve(self, slot: Slot) -> None:
        """Noted (link.Line)."""
        self.reserved.append(slot)

    def send(self, slot: Slot | None, frame: bytes) -> bool:
        """Noted (link.Line)."""
        self.sent.append((slot, frame))
        return True

    def finish(self, slot: Slot, mute_ms: float) -> None:
        """Not needed here (link.Line)."""
        raise AssertionError

    def resume(self) -> None:
        """The connection may go on."""
        self.resumed += 1

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """A timer that `pass_ms` runs (link.Line)."""
        timer = (self.desk.now_ms + delay_ms, function)
        self.timers.append(timer)
        return cast(asyncio.TimerHandle, SimpleNamespace(cancel=lambda: self.timers.remove(timer)))

    def pass_ms(self, count: float) -> None:
        """Time goes on."""
        until_ms = self.desk.now_ms + count
        while due := [timer for timer in self.timers if timer[0] <= until_ms]:
            timer = min(due, key=lambda entry: entry[0])
            self.timers.remove(timer)
            self.desk.now_ms = max(self.desk.now_ms, timer[0])
            timer[1]()
        self.desk.now_ms = until_ms

    def produce(self, count: int, version: int = 9, acks: int = 1) -> Slot | None:
        """A client produces; returns the slot of its response."""
        frame, header = produce(version, {TOPIC: [batch(count)]}, acks)
        self.metered.forward(frame, header, "bob")
        assert self.sent[-1][1] == frame
        return self.sent[-1][0]


def told(slot: Slot | None, version: int = 9) -> int:
    """The throttle time of a Produce response as it reaches the client."""
    assert slot is not None
    answer = response(build(ProduceResponse, version, responses=[]))
    if slot.done is None:
        return 0
    slot.done(answer)
    assert slot.response is not None
    return int(decode(ProduceResponse, version, slot.response).throttle_time_ms)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_produce_response_tells_the_wait(version: int) -> None:
    """Within the share the response is not even read; over it, it says how long, and the connection waits."""
    rig = Rig()
    first = rig.produce(2, version)
    assert first is not None and first.done is None and rig.pacer.may_handle
    assert told(rig.produce(3, version), version) == 500  # 5 a second, 2.5 in stock
    assert not rig.pacer.may_handle and not rig.pacer.may_read and not rig.pacer.idle
    rig.pass_ms(499)
    assert not rig.pacer.may_handle and rig.resumed == 0
    rig.pass_ms(2)
    assert rig.pacer.may_handle and rig.pacer.idle and rig.resumed == 1
    assert [slot for slot, _ in rig.sent] == rig.reserved


def test_without_acks_there_is_no_slot() -> None:
    """No response is waited for, and the connection waits all the same."""
    rig = Rig()
    assert rig.produce(10, acks=0) is None
    assert rig.reserved == [] and not rig.pacer.may_read


def test_a_larger_share_ends_the_wait_sooner() -> None:
    """10 at 5 a second would be 1.5 s; ten times the share, a tenth of it."""
    rig = Rig()
    rig.produce(10)
    rig.desk.share(publishRateInMsgs=50.0)
    rig.pass_ms(149)
    assert not rig.pacer.may_read
    rig.pass_ms(2)
    assert rig.pacer.may_read


def test_a_mute_is_not_shortened_by_a_share() -> None:
    """Waits for mutations and for traffic are two; the connection waits for both."""
    rig = Rig()
    rig.pacer.mute(1_000)
    rig.produce(10)
    assert rig.desk.metrics.traffic.muted == 1
    rig.desk.share(publishRateInMsgs=50.0)
    rig.pass_ms(999)
    assert not rig.pacer.may_read
    rig.pass_ms(2)
    assert rig.pacer.may_read and rig.desk.metrics.traffic.muted == 0


def test_in_a_long_wait_one_request_passes_now_and_then() -> None:
    """Or the client would give up: it is charged, and the wait goes on."""
    rig = Rig()
    rig.produce(1)
    rig.desk.share(publishRateInMsgs=1.0)
    rig.produce(100)
    rig.pass_ms(25_001)
    assert rig.pacer.may_handle and not rig.pacer.idle
    assert not rig.pacer.pass_one()
    rig.produce(1)
    assert not rig.pacer.may_handle


def test_an_id_that_is_looked_up_in_front_of_its_request() -> None:
    """The question leaves first, its answer stays here, the request's response tells the wait."""
    rig = Rig()
    slot = rig.produce(30, version=13)
    (question, asked), (_, _) = rig.sent
    assert slot is not None and question is not None and rig.reserved == [slot]
    read = decode(MetadataRequest, 12, asked)
    assert [topic.topic_id for topic in read.topics] == [topic_id(TOPIC)]
    topic = build(MetadataResponse.MetadataResponseTopic, 12, name=TOPIC, topic_id=topic_id(TOPIC))
    assert question.done is not None
    question.done(response(build(MetadataResponse, 12, topics=[topic])))
    assert not rig.pacer.may_read
    assert told(slot, 13) == 1_000


def test_a_fetch_is_charged_by_its_response() -> None:
    """The records reach the client at once, and the next request waits."""
    rig = Rig()
    frame, header = fetch_request(12, {TOPIC: 1})
    rig.metered.forward(frame, header, "bob")
    slot, sent = rig.sent[0]
    assert slot is not None and sent != frame and rig.pacer.may_read
    data = batch(3)
    assert slot.done is not None
    slot.done(fetch_response(12, {TOPIC: [data]}))
    assert slot.response is not None
    read = decode(FetchResponse, 12, slot.response)
    assert read.throttle_time_ms == 100  # 5 a second, 2.5 in stock
    assert read.responses[0].partitions[0].records == data
    assert not rig.pacer.may_read


def test_metadata_teaches_ids() -> None:
    """And passes with its addresses rewritten, as ever."""
    rig = Rig()
    frame, header = request(build(MetadataRequest, 12, topics=[]))
    rig.metered.forward(frame, header, "bob")
    slot = rig.sent[0][0]
    topic = build(MetadataResponse.MetadataResponseTopic, 12, name=TOPIC, topic_id=topic_id(TOPIC))
    answer = response(build(MetadataResponse, 12, topics=[topic]))
    assert slot is not None and slot.done is not None
    slot.done(answer)
    assert slot.response == answer
    assert dict(rig.desk.frames.names) == {key_of(TOPIC, True): TOPIC}


def test_a_lost_connection_leaves_nothing() -> None:
    """No timer, no waiter."""
    rig = Rig()
    rig.produce(100)
    rig.pacer.close()
    rig.metered.close()
    assert rig.timers == [] and rig.desk.metrics.traffic.muted == 0
    assert not rig.desk.meter.accounts["rg1"].waiting
