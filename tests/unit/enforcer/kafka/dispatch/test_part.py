"""Limits of dispatch in a whole connection: the order of answers, groups learnt, nothing without limits."""

import struct
from typing import Any

import pytest
from connection_kit import Rig, framed, frames_of, opaque
from counted_kit import Counted, count_by
from fetch_rig import fetched, full, sizes
from kafka.protocol import consumer
from kafka.protocol.metadata.metadata import MetadataResponse
from kafka_kit import CORRELATION_ID, build, decode, request, response
from share_frames import read_request, share_request
from traffic_kit import batch, fetch_request

from enforcer.core.account import DISPATCH
from enforcer.kafka.groups.frames import CONSUMER_GROUP_HEARTBEAT
from enforcer.kafka.groups.readers import Client
from enforcer.wire.kafka.frames import NO_TAGS, array_length, string
from enforcer.wire.kafka.traffic import FETCH_PARTS_MAX
from streaming.policy.policy_set import PolicySet

SIX = batch(6)


def limited(proven: bool = True, **limits: Any) -> tuple[Rig, Counted]:
    """A connection with a limit of ten messages a second on topic t."""
    rig = Rig()
    counted = Counted(lambda: rig.desk.now_ms, **(limits or {"topics": {full("t"): (10, 0)}}))
    count_by(rig, counted)
    rig.connect()
    if proven:
        rig.connection.data_received(framed(fetch_request(12, {"t": 1})[0]))
        rig.answer([response(build(MetadataResponse, 4))])
        rig.run_timers()
        rig.answer([fetched(12, {"t": [b""]}, 0)])
    return rig, counted


def answer(rig: Rig) -> Any:
    """What the client has got last, a Fetch response."""
    return decode(consumer.FetchResponse, 12, frames_of(rig.client.data)[-1])


def test_who_was_not_let_in_is_asked_about_first() -> None:
    """The broker's answer to a question of ours lets the Fetch go on; the client does not see it."""
    rig, _ = limited(proven=False)
    rig.connection.data_received(framed(fetch_request(12, {"t": 1})[0]))
    assert [struct.unpack(">h", frame[:2])[0] for frame in rig.upstream.sent] == [3]
    rig.answer([response(build(MetadataResponse, 4))])
    assert rig.client.data == b""
    rig.run_timers()
    assert [struct.unpack(">h", frame[:2])[0] for frame in rig.upstream.sent] == [3, 1]


def test_a_response_is_cut_and_the_next_request_waits() -> None:
    """Later requests of the connection wait with it, and are answered behind it."""
    rig, counted = limited()
    rig.connection.data_received(framed(fetch_request(12, {"t": 1})[0]))
    rig.answer([fetched(12, {"t": [SIX * 3]}, 100)])
    assert sizes(answer(rig)) == [[len(SIX) * 2]]
    sent = len(rig.upstream.sent)
    rig.connection.data_received(framed(fetch_request(12, {"t": 1})[0]) + opaque(9))
    assert len(rig.upstream.sent) == sent
    rig.desk.now_ms += 1_000
    rig.run_timers()
    assert len(rig.upstream.sent) == sent + 2
    assert decode(consumer.FetchRequest, 12, rig.upstream.sent[-2]).session_epoch == -1
    rig.answer([fetched(12, {"t": [SIX]}, 100), struct.pack(">i", 9)])
    assert rig.client.answered()[-2:] == [CORRELATION_ID, 9]
    assert [delivered.msgs for delivered in counted.delivered] == [12, 6]


def test_requests_of_many_partitions_go_one_after_the_other() -> None:
    """Each takes a dozen times its bytes until it is answered, and it is known who holds that."""
    rig, _ = limited()
    frame, sent = framed(fetch_request(12, {"t": 1, "u": 3_000})[0]), len(rig.upstream.sent)
    for _ in range(3):
        rig.connection.data_received(frame)
    for more in (1, 2, 3):
        assert len(rig.upstream.sent) == sent + more and rig.connection.held_bytes > 10 * len(frame)
        rig.answer([fetched(12, {"t": [b""]}, 100)])
    assert rig.connection._chain.held_bytes == 0 and not rig.client.closed


def test_what_is_remembered_of_partitions_is_held() -> None:
    """Anybody may name such as nobody has made; who holds most ends first where memory is short."""
    rig, _ = limited(topics={full("t"): (10, 0)}, subscriptions={(full("t"), "g"): (10, 0)})
    rig.connection.data_received(framed(fetch_request(12, {"t": 900})[0]))
    rig.answer([fetched(12, {"t": [b""]}, 100)])
    assert rig.connection._chain.held_bytes > 100 * 900
    asked = [{"TopicId": b"t" * 16, "Partitions": [{"PartitionIndex": number} for number in range(900)]}]
    rig.connection.data_received(framed(share_request(Topics=asked, epoch=0)[0]))
    assert rig.connection._chain.held_bytes > 200 * 900


def test_a_held_request_is_answered_in_time() -> None:
    """Without the broker, in its turn."""
    rig, counted = limited()
    broker = "broker-kafka:9092"
    counted.deliver(broker, full("t"), "", msgs=100, size=1, entries=1, backlog=True)
    rig.connection.data_received(framed(fetch_request(12, {"t": 1})[0]) + opaque(9))
    rig.desk.now_ms += 1_000
    rig.run_timers()
    found = answer(rig)
    assert found.throttle_time_ms == 1_000 and sizes(found) == [[0]]
    rig.answer([struct.pack(">i", 9)])
    assert rig.client.answered()[-1] == 9


def test_a_session_of_other_topics_goes_on() -> None:
    """Which one that is the broker's answer tells, which the client gets as it is."""
    rig, _ = limited()
    began = fetched(12, {"u": [SIX]}, 100, session_id=7)
    rig.connection.data_received(framed(fetch_request(12, {"u": 1})[0]))
    rig.answer([began])
    assert frames_of(rig.client.data)[-1] == began
    for asked, session in ((7, 7), (8, -1)):
        rig.connection.data_received(framed(fetch_request(12, {}, epoch=1, session=asked)[0]))
        assert decode(consumer.FetchRequest, 12, rig.upstream.sent[-1]).session_id == session


def test_groups_are_learnt_when_the_broker_has_answered() -> None:
    """What it does not answer, or nobody limits, teaches nothing."""
    rig, _ = limited(subscriptions={(full("t"), "g"): (10, 0)}, proven=False)
    readers = rig.fetch_context.readers
    fields = {"generation_id": 1, "member_id": "m", "assignments": []}
    sync, _ = request(build(consumer.SyncGroupRequest, 2, group_id="g", **fields))
    rig.connection.data_received(framed(sync))
    assert readers.groups(Client("ANONYMOUS", "", "tests")) == []
    content = struct.pack(">hih1siii", 1, 1, 1, b"t", 1, 0, -1)
    rig.answer([response(build(consumer.SyncGroupResponse, 2, assignment=content))])
    assert len(rig.client.answered()) == 1
    (client,) = {client for client, _ in readers._order}
    assert (client.user, client.client_id) == ("ANONYMOUS", "tests")
    assert readers.matching(client, ["t"], frozenset({0})) == ["g"]
    assert readers.matching(client, ["t"], frozenset({1})) == []


def test_a_refused_claim_of_a_group_teaches_nothing() -> None:
    """Else whoever may read a topic could use up a limit of somebody else's group."""
    rig, _ = limited(subscriptions={(full("t"), "g"): (10, 0)}, proven=False)
    readers = rig.fetch_context.readers
    beat, _ = request(build(consumer.HeartbeatRequest, 4, group_id="g", generation_id=1, member_id="m"))
    for error, groups in ((30, 0), (25, 0), (0, 1)):
        rig.connection.data_received(framed(beat))
        rig.answer([response(build(consumer.HeartbeatResponse, 4, error_code=error))])
        assert len(readers) == groups
    rig.connection.data_received(framed(beat))
    # An answer that cannot be read is the client's all the same.
    rig.answer([struct.pack(">i", CORRELATION_ID)])
    assert len(rig.client.answered()) == 4 and not rig.client.closed


def test_a_member_of_very_many_partitions_keeps_its_connection() -> None:
    """It is not known what it reads then; its heartbeats go on."""
    rig, _ = limited(subscriptions={(full("t"), "g"): (10, 0)}, proven=False)
    head = struct.pack(">hhih", CONSUMER_GROUP_HEARTBEAT, 1, CORRELATION_ID, -1) + NO_TAGS
    beat = head + string("g", True) + string("m", True) + struct.pack(">i", 1) + bytes(40)
    numbers = array_length(FETCH_PARTS_MAX + 1, True) + bytes(4 * (FETCH_PARTS_MAX + 1)) + NO_TAGS
    told = b"\1" + array_length(1, True) + bytes(16) + numbers + 2 * NO_TAGS
    ok = struct.pack(">i", CORRELATION_ID) + NO_TAGS + bytes(6) + string(None, True) + string("m", True)
    rig.connection.data_received(framed(beat))
    rig.answer([ok + struct.pack(">ii", 1, 5_000) + told])
    assert len(rig.client.answered()) == 1 and not rig.client.closed


def test_without_limits_nothing_is_read() -> None:
    """Requests pass as they come, those of groups too."""
    rig, counted = limited(proven=False)
    counted.active = False
    beat, _ = request(build(consumer.HeartbeatRequest, 4, group_id="g", generation_id=1, member_id="m"))
    frame, _ = fetch_request(12, {"t": 1}, epoch=3, session=9)
    rig.connection.data_received(framed(beat) + framed(frame))
    assert rig.upstream.sent == [beat, frame]
    rig.answer([response(build(consumer.HeartbeatResponse, 4)), fetched(12, {"t": [SIX * 9]}, 100)])
    assert len(rig.fetch_context.readers) == 0 and counted.delivered == []
    assert sizes(answer(rig)) == [[len(SIX) * 9]]


def test_the_end_of_a_connection_leaves_nothing() -> None:
    """Neither a place in a line nor a reservation."""
    rig, counted = limited()
    counted.deliver("broker-kafka:9092", full("t"), "", msgs=10, size=1, entries=1, backlog=True)
    rig.connection.data_received(framed(fetch_request(12, {"t": 1})[0]))
    assert len(rig.fetch_context.lines) == 1
    rig.lose_client()
    rig.connection.upstream_failed("lost")
    assert len(rig.fetch_context.lines) == 0


@pytest.mark.parametrize("cut", [9, 20])
def test_damage_ends_one_connection(cut: int) -> None:
    """A Fetch that cannot be read while limits are in force."""
    rig, _ = limited()
    rig.connection.data_received(framed(fetch_request(12, {"t": 1})[0][:-cut]))
    assert rig.client.closed


def grouped() -> tuple[Rig, Counted]:
    """A connection whose topic is in a resource group too; its Fetch is under way."""
    rig, counted = limited(topics={"persistent://acme/orders/t": (10, 0)}, proven=False)
    policies = {
        "resourcegroups.rg1": {"dispatchRateInMsgs": 10},
        "namespaces.acme/orders": {"resourcegroup": "rg1"},
    }
    rig.meter.set_policies(PolicySet(policies))
    rig.prove()
    rig.connection.data_received(framed(fetch_request(12, {"acme.orders.t": 1})[0]))
    rig.answer([response(build(MetadataResponse, 4))])
    rig.run_timers()
    return rig, counted


def test_what_comes_in_a_debt_was_not_delivered() -> None:
    """Its records are lost and come again: the limit lets them through then, and no reader has moved on."""
    rig, counted = grouped()
    (account,) = rig.meter.accounts.values()
    account.charge(DISPATCH, 100, 0, rig.now_ms())
    rig.answer([fetched(12, {"acme.orders.t": [SIX]}, 100)])
    assert sizes(answer(rig)) == [] and answer(rig).throttle_time_ms > 0
    assert account.used[2] == 100 and counted.delivered == [] and len(rig.fetch_context.lines) == 0


def test_resource_groups_are_charged_for_what_is_left() -> None:
    """A response is cut before it is metered; a wait for the group's debt takes nothing from the limit."""
    rig, counted = grouped()
    rig.answer([fetched(12, {"acme.orders.t": [SIX * 3]}, 100)])
    assert sizes(answer(rig)) == [[len(SIX) * 2]]
    assert [account.used[2] for account in rig.meter.accounts.values()] == [12]
    assert [delivered.msgs for delivered in counted.delivered] == [12]
    sent = len(rig.upstream.sent)
    # Its dispatch limit would let it go on; its group owes.
    counted.topics.clear()
    counted.topics["persistent://acme/orders/t"] = (1_000, 0)
    counted.change()
    rig.connection.data_received(framed(fetch_request(12, {"acme.orders.t": 1})[0]))
    assert len(rig.upstream.sent) == sent and len(rig.fetch_context.lines) == 0


def test_nothing_is_acquired_for_a_client_that_is_gone() -> None:
    """What was held here for names, or debts, would be lost, with a delivery of each record."""
    rig, _ = limited(proven=False)
    rig.connection.data_received(framed(share_request("t", epoch=0)[0]))
    rig.connection.connection_lost(None)
    rig.answer([response(build(MetadataResponse, 12))])
    rig.run_timers()
    assert read_request(rig.upstream.sent[-1])["MaxRecords"] == 0
