"""The metering side of a connection: what is forwarded, what the client is told, when it goes on."""

from collections.abc import Mapping
from typing import Any

import pytest
from connection_kit import Rig, framed, frames_of
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceResponse
from kafka_kit import build, decode, request, response
from meter_kit import TOPIC, share
from share_frames import id_of, share_request, share_response
from traffic_kit import batch, fetch_request, fetch_response, key_of, produce, produce_response, topic_id

from enforcer.core import bounds
from enforcer.kafka.addresses.brokers import Brokers
from enforcer.kafka.part import FETCH_LIMIT_MAX
from enforcer.wire.kafka.frames import parse_header
from enforcer.wire.kafka.traffic import UNKNOWN_SESSION, fetching, session_of
from streaming.policy.policy_set import PolicySet

GROUPS: dict[str, Any] = {
    "broker": {"resourceUsagePublishIntervalInSecs": 1},
    "resourcegroups.rg1": {"publishRateInMsgs": 100, "dispatchRateInMsgs": 100},
    "namespaces.acme/orders": {"resourcegroup": "rg1"},
}


class Metered(Rig):
    """A connection whose traffic is metered; its calls are made when time passes."""

    def __init__(self, policies: Mapping[str, Any] = GROUPS, proven: bool = True, **settings: Any) -> None:
        super().__init__(**settings)
        self.meter.set_policies(PolicySet(dict(policies)))
        if proven:
            self.prove()
        self.pacer = self.connection.pacer

    def send(self, frame: bytes) -> bool:
        """A client sends a request; whether the broker gets anything."""
        before = len(self.upstream.sent)
        self.connection.data_received(framed(frame))
        return len(self.upstream.sent) > before

    def produce(self, count: int, version: int = 9, acks: int = 1) -> bool:
        """A client produces; whether that goes on."""
        return self.send(produce(version, {TOPIC: [batch(count)]}, acks)[0])

    def said(self, kind: Any, version: int) -> Any:
        """What the client was told last."""
        return decode(kind, version, frames_of(self.client.data)[-1])

    def told(self, version: int = 9) -> int:
        """The broker takes what was produced; the throttle time that the client hears."""
        self.answer([produce_response(version, {TOPIC: [0]})])
        return int(self.said(ProduceResponse, version).throttle_time_ms)

    def describe(self, version: int, **topics: Any) -> None:
        """The broker answers with these topics, name -> id, and all goes on."""
        rows = [{"name": name, "topic_id": own} for name, own in topics.items()]
        self.answer([response(build(MetadataResponse, version, topics=rows))])
        self.desk.run(1)


@pytest.fixture
def rig() -> Metered:
    """A connection whose topics are in groups."""
    return Metered()


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_produce_response_tells_the_wait(rig: Metered, version: int) -> None:
    """Over the share the response says how long, and the next request waits so long."""
    assert rig.produce(2, version) and rig.told(version) == 0 and rig.pacer.idle
    assert rig.produce(3, version) and rig.told(version) == 500  # 5 a second, 2.5 in stock
    assert rig.pacer.idle
    assert not rig.produce(1, version)
    assert not rig.pacer.may_handle and rig.pacer.may_read and not rig.pacer.idle
    rig.desk.run(499)
    assert not rig.pacer.may_handle and len(rig.upstream.sent) == 2
    rig.desk.run(2)
    assert rig.pacer.may_handle and rig.pacer.idle
    assert rig.upstream.sent[2:] == [produce(version, {TOPIC: [batch(1)]})[0]]


def test_without_acks_the_leader_answers_all_the_same(rig: Metered) -> None:
    """To the proxy alone: a refusal is refunded and ends the connection, as it would at a broker."""
    assert rig.produce(10, acks=0)
    assert rig.upstream.sent == [produce(9, {TOPIC: [batch(10)]}, acks=1)[0]]
    rig.answer([produce_response(9, {TOPIC: [0]})])
    assert not rig.client.closed and not rig.produce(4, acks=0)
    rig.desk.run(10_000)
    rig.answer([produce_response(9, {TOPIC: [3]})])
    account = rig.meter.accounts["rg1"]
    assert rig.closed("refused_without_acks") == 1 and rig.client.data == b""
    assert (account.used[0], account.refunded[0]) == (14, 4)


def test_without_acks_so_many_answers_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as with them; then the connection waits for one."""
    monkeypatch.setattr(bounds, "INFLIGHT_MAX", 2)
    rig = Metered({**GROUPS, "resourcegroups.rg1": {"publishRateInMsgs": 10**6}})
    assert rig.produce(1, acks=0) and rig.produce(1, acks=0)
    assert not rig.produce(1, acks=0) and not rig.pacer.may_handle
    rig.answer([produce_response(9, {TOPIC: [0]})])
    rig.desk.run(1)
    assert rig.pacer.may_handle and len(rig.upstream.sent) == 3


def test_bytes_of_users_alone_are_not_asked_for() -> None:
    """Without groups nothing is refunded, so neither acks nor answers are looked at."""
    rig = Metered({"quotas[user=ANONYMOUS]": {"producer_byte_rate": 10**9}})
    assert rig.produce(1, acks=0) and rig.produce(1)
    assert rig.upstream.sent[0] == produce(9, {TOPIC: [batch(1)]}, acks=0)[0]
    (due,) = rig.connection._responses.due
    assert due.done is None


@pytest.mark.parametrize(("muted_ms", "waits_ms"), [(0, 150), (1_000, 1_000)])
def test_a_larger_share_ends_the_wait_sooner_and_no_mute(rig: Metered, muted_ms: int, waits_ms: int) -> None:
    """10 at 5 a second would be 1.5 s; ten times the share, a tenth of it.

    Waits for mutations and for traffic are two; the connection waits for both.
    """
    rig.produce(10)
    assert not rig.produce(1)
    if muted_ms:
        rig.pacer.mute(muted_ms)
    share(rig.meter, rig.desk.wall_ms, publishRateInMsgs=50.0)
    rig.desk.run(waits_ms - 1)
    assert not rig.pacer.may_handle and rig.metrics.traffic.muted == bool(muted_ms)
    rig.desk.run(2)
    assert rig.pacer.may_handle and rig.metrics.traffic.muted == 0 and len(rig.upstream.sent) == 2


def test_in_a_long_wait_one_request_passes_now_and_then() -> None:
    """Or the client would give up: it is charged, and the wait goes on."""
    rig = Metered(debt_max_s=10**6)
    rig.produce(1)
    share(rig.meter, rig.desk.wall_ms, publishRateInMsgs=1.0)
    rig.produce(100)
    assert not rig.produce(1)
    rig.desk.run(24_999)
    assert not rig.pacer.may_handle
    rig.desk.run(2)
    assert rig.pacer.may_handle and len(rig.upstream.sent) == 3
    assert not rig.produce(1) and not rig.pacer.may_handle


def test_an_id_that_is_looked_up_in_front_of_its_request(rig: Metered) -> None:
    """The question leaves, its answer stays here; then the request goes, and its response tells the wait."""
    frame, _ = produce(13, {TOPIC: [batch(30)]})
    rig.send(frame)
    (asked,) = rig.upstream.sent
    assert [topic.topic_id for topic in decode(MetadataRequest, 12, asked).topics] == [topic_id(TOPIC)]
    rig.describe(12, **{TOPIC: topic_id(TOPIC)})
    assert rig.pacer.may_handle and rig.upstream.sent[1:] == [frame] and rig.client.data == b""
    assert rig.told(13) == 1_000


def test_a_broker_is_asked_before_anything_is_charged() -> None:
    """For no topics; whoever has an identity has been let in already."""
    rig = Metered(proven=False)
    frame, _ = produce(9, {TOPIC: [batch(1)]})
    rig.send(frame)
    (asked,) = rig.upstream.sent
    assert decode(MetadataRequest, 4, asked).topics == [] and not rig.pacer.may_handle
    rig.describe(4)
    assert rig.pacer.may_handle and rig.upstream.sent[1:] == [frame]
    named = Metered(proven=False)
    named.connection.user = "alice"
    assert named.produce(1) and named.upstream.sent == [frame]


def test_a_fetch_is_charged_by_its_response(rig: Metered) -> None:
    """The records reach the client at once, and the next request waits."""
    frame, _ = fetch_request(12, {TOPIC: 1})
    assert rig.send(frame) and rig.upstream.sent != [frame] and rig.pacer.may_read
    data = batch(3)
    rig.answer([fetch_response(12, {TOPIC: [data]})])
    read = rig.said(FetchResponse, 12)
    assert read.throttle_time_ms == 100  # 5 a second, 2.5 in stock
    assert read.responses[0].partitions[0].records == data
    assert not rig.send(frame) and not rig.pacer.may_handle


def test_a_fetch_session_is_followed_by_what_the_broker_answers(rig: Metered) -> None:
    """What it accepts leaves, and with it the limit on what comes at once."""
    brings, steps = [], list[tuple[dict[str, int], dict[str, list[int]]]]()
    steps += ({TOPIC: 1}, {}), ({}, {TOPIC: [0]}), ({}, {})
    for epoch, (topics, forgotten) in enumerate(steps):
        assert rig.send(fetch_request(12, topics, epoch=epoch, session=9, forgotten=forgotten)[0])
        sent = rig.upstream.sent[-1]
        brings.append(fetching(sent, parse_header(sent)).limit_bytes)
        rig.answer([fetch_response(12, {}, session_id=9)])
    assert brings == [1_024, FETCH_LIMIT_MAX, FETCH_LIMIT_MAX]
    rig.send(fetch_request(12, {}, epoch=3, session=8)[0])
    assert session_of(rig.upstream.sent[-1], parse_header(rig.upstream.sent[-1]))[1] == UNKNOWN_SESSION


@pytest.mark.parametrize("damaged", [False, True])
def test_others_have_their_turn_while_a_large_response_is_read(
    damaged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is answered when all of it is, in its place; one damaged at its end ends its connection then."""
    monkeypatch.setattr("enforcer.wire.kafka.traffic.STEP_PARTS", 100)
    rig = Metered({**GROUPS, "resourcegroups.rg1": {"dispatchRateInMsgs": 10**6 if damaged else 100}})
    rig.send(fetch_request(12, {TOPIC: 1})[0])
    topics = {f"t{number}": [b""] for number in range(100)}
    response = fetch_response(12, {**topics, TOPIC: [batch(3)]})
    rig.answer([response[:-20] if damaged else response])
    assert rig.client.data == b""
    rig.desk.run()
    if damaged:
        assert rig.client.data == b"" and rig.client.closed and rig.closed("bad_response") == 1
    else:
        assert rig.said(FetchResponse, 12).throttle_time_ms == 100


def test_metadata_teaches_ids(rig: Metered) -> None:
    """What a client learns of topics, the meter learns too."""
    rig.send(request(build(MetadataRequest, 12))[0])
    rig.describe(12, **{TOPIC: topic_id(TOPIC)})
    assert dict(rig.frame_meter.names) == {key_of(TOPIC, True): TOPIC}


def test_a_lost_connection_leaves_nothing(rig: Metered) -> None:
    """No timer, nobody who waits."""
    rig.produce(100)
    rig.answer([produce_response(9, {TOPIC: [0]})])
    assert not rig.produce(1) and rig.desk.waiting
    rig.lose_client()
    rig.connection.ending.drop("departed")
    rig.desk.run()
    assert not rig.desk.waiting and len(rig.meter.lines) == 0


def test_a_share_session_is_its_brokers(rig: Metered, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bootstrap address may be another than the one that its port leads to."""
    monkeypatch.setattr(Brokers, "partition_at", lambda *_: "broker-1")
    rig.frame_meter.names.update({id_of("t"): TOPIC, id_of("u"): "other"})
    other = Metered(beside=rig)
    other.connection.address = ("bootstrap", 9_092)
    assert rig.send(share_request("u", epoch=0)[0]) and other.send(share_request("t", epoch=0)[0])
    other.answer([share_response({"t": (batch(10), [(0, 9, 1)])})])
    assert not rig.send(share_request()[0])


def test_nothing_is_fetched_for_a_client_that_is_gone(rig: Metered) -> None:
    """Its group would owe for what reaches nobody, and its other consumers wait for that."""
    frame, _ = fetch_request(12, {TOPIC: 1})
    rig.send(frame)
    rig.answer([fetch_response(12, {TOPIC: [batch(3)]})])
    assert not rig.send(frame)
    rig.lose_client()
    assert not rig.over
    rig.desk.run(200)
    assert rig.over and len(rig.upstream.sent) == 1 and len(rig.meter.lines) == 0
