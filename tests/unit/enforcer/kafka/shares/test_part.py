"""The metering side of a connection: what is forwarded, what the client is told, when it goes on."""

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from context_kit import context
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceResponse
from kafka_kit import build, decode, request, response
from meter_kit import TOPIC, Desk
from traffic_kit import (
    batch,
    fetch_request,
    fetch_response,
    key_of,
    produce,
    produce_response,
    topic_id,
)

from enforcer.core import bounds
from enforcer.kafka.addresses.brokers import Brokers
from enforcer.kafka.chain import Chain
from enforcer.kafka.life.pacing import Pacer
from enforcer.kafka.part import Part, Request, Slot
from enforcer.kafka.shares.part import SharesLimit, SharesPart
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from enforcer.wire.kafka.frames import RequestHeader
from enforcer.wire.kafka.traffic import STEP_PARTS

GROUPS: dict[str, Any] = {
    "broker": {"resourceUsagePublishIntervalInSecs": 1},
    "resourcegroups.rg1": {"publishRateInMsgs": 100, "dispatchRateInMsgs": 100},
    "namespaces.acme/orders": {"resourcegroup": "rg1"},
}


class Rig:
    """A connection's metering with everything around it (part.Link); timers run when a test says so."""

    peer, address, user = object(), ("", 0), "ANONYMOUS"

    def __init__(self, policies: Mapping[str, Any] = GROUPS, proven: bool = True, **settings: Any) -> None:
        self.desk = Desk(policies, **settings)
        self.sent: list[tuple[Slot | None, bytes]] = []
        self.reserved: list[Slot] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.resumed = 0
        coordinator = QuotaCoordinator(
            context(self.desk.clock, settings=self.desk.settings, metrics=self.desk.metrics)
        )
        brokers = Brokers(
            listen_host="", advertise="", port_base=0, brokers_max=0, serve=lambda _socket, _broker: None
        )
        self.rewrite = brokers.rewrite
        self.kept: list[bytes] = []
        self.ended: list[str] = []
        self.finished: list[Slot] = []
        self.pacer = Pacer(coordinator, self.call_later, self.resume)
        limit = SharesLimit(self.desk.frames, self.desk.metrics)
        self.chain = Chain((limit,), self)
        self.part = cast(SharesPart, self.chain._make(limit))
        self.part._connection_meter.proven = proven

    @property
    def slots(self) -> Part:
        """Not needed here (part.Link)."""
        raise AssertionError

    def answer(self, request: Request, response: bytes) -> None:
        """Not needed here (part.Link)."""
        raise AssertionError

    def forgo(self, slot: Slot) -> None:
        """Not needed here (part.Link)."""
        raise AssertionError

    def hold(self, request: Request) -> None:
        """Noted (part.Link)."""
        self.kept.append(request.whole)

    def reserve(self, slot: Slot) -> None:
        """Noted (part.Link)."""
        self.reserved.append(slot)

    def respond(self, slot: Slot, response: bytes) -> None:
        """As a connection does it (part.Link)."""
        slot.response = self.rewrite(slot.api_key, slot.api_version, response)

    def send(self, slot: Slot | None, frame: bytes) -> bool:
        """Noted (part.Link)."""
        self.sent.append((slot, frame))
        return True

    def finish(self, slot: Slot, mute_ms: float) -> None:
        """Noted (part.Link)."""
        self.finished.append(slot)

    def end(self, reason: str) -> None:
        """Noted (part.Link)."""
        self.ended.append(reason)

    def resume(self) -> None:
        """The connection may go on."""
        self.resumed += 1

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """A timer that `pass_ms` runs (part.Link)."""
        timer = (self.desk.now_ms + delay_ms, function)
        self.timers.append(timer)

        def cancel() -> None:
            # As with asyncio's, one that has run may be cancelled too.
            if timer in self.timers:
                self.timers.remove(timer)

        return cast(asyncio.TimerHandle, SimpleNamespace(cancel=cancel))

    def pass_ms(self, count: float) -> None:
        """Time goes on."""
        until_ms = self.desk.now_ms + count
        while due := [timer for timer in self.timers if timer[0] <= until_ms]:
            timer = min(due, key=lambda entry: entry[0])
            self.timers.remove(timer)
            self.desk.now_ms = max(self.desk.now_ms, timer[0])
            timer[1]()
        self.desk.now_ms = until_ms

    def forward(self, frame: bytes, header: RequestHeader, user: str) -> None:
        """A request is handled; one that waits is kept."""
        self.user = user
        self.chain.handle(frame)

    def produce(self, count: int, version: int = 9, acks: int = 1, user: str = "ANONYMOUS") -> Slot | None:
        """A client produces; returns the slot of its response, None if there is none or it waits."""
        frame, header = produce(version, {TOPIC: [batch(count)]}, acks)
        before = len(self.sent)
        self.forward(frame, header, user)
        if len(self.sent) == before:
            assert self.kept.pop() == frame
            return None
        slot, sent = self.sent[-1]
        assert acks == 0 or sent == frame
        return slot


def told(slot: Slot | None, version: int = 9) -> int:
    """The throttle time of a Produce response as it reaches the client."""
    assert slot is not None and slot.done is not None
    slot.done(produce_response(version, {TOPIC: [0]}))
    assert slot.response is not None
    return int(decode(ProduceResponse, version, slot.response).throttle_time_ms)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_produce_response_tells_the_wait(version: int) -> None:
    """Over the share the response says how long, and the next request waits so long."""
    rig = Rig()
    assert told(rig.produce(2, version), version) == 0 and rig.pacer.idle
    assert told(rig.produce(3, version), version) == 500  # 5 a second, 2.5 in stock
    assert rig.pacer.idle
    assert rig.produce(1, version) is None
    assert not rig.pacer.may_handle and rig.pacer.may_read and not rig.pacer.idle
    rig.pass_ms(499)
    assert not rig.pacer.may_handle and rig.resumed == 0
    rig.pass_ms(2)
    assert rig.pacer.may_handle and rig.pacer.idle and rig.resumed == 1
    assert rig.produce(1, version) is not None
    assert [slot for slot, _ in rig.sent] == rig.reserved


def test_without_acks_the_leader_answers_all_the_same() -> None:
    """To the proxy alone: a refusal is refunded and ends the connection, as it would at a broker."""
    rig = Rig()
    slot = rig.produce(10, acks=0)
    assert slot is not None and slot.done is not None and rig.reserved == []
    asked, _ = produce(9, {TOPIC: [batch(10)]}, acks=1)
    assert rig.sent[-1][1] == asked
    slot.done(produce_response(9, {TOPIC: [0]}))
    assert rig.ended == [] and rig.produce(1, acks=0) is None
    rig.pass_ms(10_000)
    slot = rig.produce(4, acks=0)
    assert slot is not None and slot.done is not None
    slot.done(produce_response(9, {TOPIC: [3]}))
    account = rig.desk.meter.accounts["rg1"]
    assert rig.ended == ["refused_without_acks"] and (account.used[0], account.refunded[0]) == (14, 4)


def test_without_acks_so_many_answers_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as with them; then the connection waits for one."""
    monkeypatch.setattr(bounds, "INFLIGHT_MAX", 2)
    rig = Rig({**GROUPS, "resourcegroups.rg1": {"publishRateInMsgs": 10**6}})
    slots = [rig.produce(1, acks=0), rig.produce(1, acks=0)]
    assert rig.produce(1, acks=0) is None and not rig.pacer.may_handle
    assert slots[0] is not None and slots[0].done is not None
    slots[0].done(produce_response(9, {TOPIC: [0]}))
    rig.pass_ms(1)
    assert rig.pacer.may_handle and rig.produce(1, acks=0) is not None


def test_bytes_of_users_alone_are_not_asked_for() -> None:
    """Without groups nothing is refunded, so neither acks nor answers are looked at."""
    rig = Rig({"quotas[user=alice]": {"producer_byte_rate": 10**9}})
    assert rig.produce(1, acks=0, user="alice") is None and rig.sent[-1][0] is None
    slot = rig.produce(1, user="alice")
    assert slot is not None and slot.done is None


def test_a_larger_share_ends_the_wait_sooner() -> None:
    """10 at 5 a second would be 1.5 s; ten times the share, a tenth of it."""
    rig = Rig()
    rig.produce(10)
    assert rig.produce(1) is None
    rig.desk.share(publishRateInMsgs=50.0)
    rig.pass_ms(0)
    assert rig.produce(1) is None
    rig.pass_ms(149)
    assert not rig.pacer.may_handle
    rig.pass_ms(2)
    assert rig.pacer.may_handle and rig.produce(1) is not None


def test_a_mute_is_not_shortened_by_a_share() -> None:
    """Waits for mutations and for traffic are two; the connection waits for both."""
    rig = Rig()
    rig.produce(10)
    assert rig.produce(1) is None
    rig.pacer.mute(1_000)
    rig.desk.share(publishRateInMsgs=50.0)
    rig.pass_ms(999)
    assert not rig.pacer.may_handle and rig.desk.metrics.traffic.muted == 1
    rig.pass_ms(2)
    assert rig.pacer.may_handle and rig.desk.metrics.traffic.muted == 0


def test_in_a_long_wait_one_request_passes_now_and_then() -> None:
    """Or the client would give up: it is charged, and the wait goes on."""
    rig = Rig(debt_max_s=10**6)
    rig.produce(1)
    rig.desk.share(publishRateInMsgs=1.0)
    rig.produce(100)
    assert rig.produce(1) is None
    rig.pass_ms(24_999)
    assert not rig.pacer.may_handle
    rig.pass_ms(2)
    assert rig.pacer.may_handle and rig.produce(1) is not None
    assert rig.produce(1) is None and not rig.pacer.may_handle


def test_an_id_that_is_looked_up_in_front_of_its_request() -> None:
    """The question leaves, its answer stays here; then the request goes, and its response tells the wait."""
    rig = Rig()
    assert told_by_id(rig) == 1_000


def test_a_broker_is_asked_before_anything_is_charged() -> None:
    """For no topics; whoever has an identity has been let in already."""
    rig = Rig(proven=False)
    frame, header = produce(9, {TOPIC: [batch(1)]})
    rig.forward(frame, header, "ANONYMOUS")
    question, asked = rig.sent[0]
    assert decode(MetadataRequest, 4, asked).topics == [] and rig.kept == [frame]
    assert not rig.pacer.may_handle and question is not None and question.done is not None
    question.done(response(build(MetadataResponse, 4, topics=[])))
    rig.pass_ms(1)
    assert rig.pacer.may_handle and rig.produce(1) is not None
    named = Rig(proven=False)
    assert named.produce(1, user="alice") is not None


def told_by_id(rig: Rig) -> int:
    """A client produces by an id that nobody has heard of; returns the throttle time that it is told."""
    frame, header = produce(13, {TOPIC: [batch(30)]})
    rig.forward(frame, header, "ANONYMOUS")
    ((question, asked),) = rig.sent
    assert question is not None and rig.reserved == [] and rig.kept == [frame]
    read = decode(MetadataRequest, 12, asked)
    assert [topic.topic_id for topic in read.topics] == [topic_id(TOPIC)]
    topic = build(MetadataResponse.MetadataResponseTopic, 12, name=TOPIC, topic_id=topic_id(TOPIC))
    assert question.done is not None
    question.done(response(build(MetadataResponse, 12, topics=[topic])))
    rig.pass_ms(1)
    assert rig.pacer.may_handle
    rig.forward(frame, header, "ANONYMOUS")
    slot = rig.sent[-1][0]
    assert [slot] == rig.reserved
    return told(slot, 13)


def test_a_fetch_is_charged_by_its_response() -> None:
    """The records reach the client at once, and the next request waits."""
    rig = Rig()
    frame, header = fetch_request(12, {TOPIC: 1})
    rig.forward(frame, header, "bob")
    slot, sent = rig.sent[0]
    assert slot is not None and sent != frame and rig.pacer.may_read
    data = batch(3)
    assert slot.done is not None
    slot.done(fetch_response(12, {TOPIC: [data]}))
    assert slot.response is not None
    read = decode(FetchResponse, 12, slot.response)
    assert read.throttle_time_ms == 100  # 5 a second, 2.5 in stock
    assert read.responses[0].partitions[0].records == data
    rig.forward(frame, header, "bob")
    assert not rig.pacer.may_handle and rig.kept == [frame]


def large(rate: int) -> tuple[Rig, bytes]:
    """A connection that waits for a Fetch, and a response to it that takes several steps to read."""
    rig = Rig({**GROUPS, "resourcegroups.rg1": {"dispatchRateInMsgs": rate}})
    rig.forward(*fetch_request(12, {TOPIC: 1}), "bob")
    return rig, fetch_response(
        12, {**{f"t{number}": [b""] for number in range(STEP_PARTS)}, TOPIC: [batch(3)]}
    )


def test_others_have_their_turn_while_a_large_response_is_read() -> None:
    """It is answered when all of it is, in its place."""
    rig, response = large(100)
    slot, _ = rig.sent[0]
    assert slot is not None and slot.done is not None
    slot.done(response)
    assert slot.response is None and not rig.finished
    rig.pass_ms(0)
    assert slot.response is not None and rig.finished == [slot]
    assert decode(FetchResponse, 12, slot.response).throttle_time_ms == 100


def test_a_large_response_that_is_damaged_ends_its_connection() -> None:
    """Also where its beginning could be read."""
    rig, response = large(10**6)
    slot, _ = rig.sent[0]
    assert slot is not None and slot.done is not None
    slot.done(response[:-20])
    rig.pass_ms(0)
    assert slot.response is None and rig.ended == ["bad_response"] and not rig.finished


def test_metadata_teaches_ids() -> None:
    """What a client learns of topics, the meter learns too."""
    rig = Rig()
    topic = build(MetadataResponse.MetadataResponseTopic, 12, name=TOPIC, topic_id=topic_id(TOPIC))
    rig.forward(*request(build(MetadataRequest, 12)), "ANONYMOUS")
    slot, _ = rig.sent[0]
    assert slot is not None and slot.done is not None
    slot.done(response(build(MetadataResponse, 12, topics=[topic])))
    assert dict(rig.desk.frames.names) == {key_of(TOPIC, True): TOPIC}


def test_a_lost_connection_leaves_nothing() -> None:
    """No timer, nobody who waits."""
    rig = Rig()
    rig.produce(100)
    assert rig.produce(1) is None and rig.timers
    rig.pacer.close()
    rig.chain.close()
    assert rig.timers == [] and not rig.desk.meter.accounts["rg1"].lines[0].busy
