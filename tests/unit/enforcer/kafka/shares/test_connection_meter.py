"""What a connection is told of its frames, by name and by id, and how much its fetches bring."""

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka_kit import decode
from meter_kit import ALICE, GROUPS, POLICIES, TOPIC, Desk, Line, alone, sessions, used, whole
from traffic_kit import batch, fetch_request, fetch_response, key_of, produce, produce_response

from enforcer.core import bounds
from enforcer.kafka.names import ABSENT_MAX, ABSENT_MS
from enforcer.kafka.part import FETCH_LIMIT_MAX
from enforcer.kafka.shares.connection_meter import LEARN_MAX_BYTES
from enforcer.wire.kafka.frames import FETCH, RequestHeader
from enforcer.wire.kafka.messages import ASKED_AT_ONCE
from streaming.policy.policy_set import PolicySet


def test_a_group_in_debt_keeps_the_next_request_waiting() -> None:
    """All of its connections; while the share is on its way only a round of it is told."""
    desk = Desk({**GROUPS, "broker": {"resourceUsagePublishIntervalInSecs": 1}})
    line, other = Line(desk), Line(desk)
    assert line.told(2) == 0
    assert line.told(10) == 1_000  # 5 a second, 2.5 in stock
    assert line.produce(1) is None and line.pauses == [pytest.approx(1_900)]
    assert other.produce(1) is None and other.pauses == [bounds.MUTE_SPLIT_MS]
    desk.share(publishRateInMsgs=10.0)
    assert line.woken and not other.woken
    desk.now_ms = 951
    assert line.produce(90) is not None and other.woken
    assert other.produce(1) is None and other.pauses[-1] == pytest.approx(9_000, abs=10)
    assert desk.metrics.throttled_frames.labels("group", "publishRateInMsgs")._value.get() == 2


def test_what_waits_already_is_told_too() -> None:
    """A client that obeys comes back when those in front of it had their turn."""
    desk = Desk(GROUPS)
    desk.meter.interval_ms = 10**9
    lines = [Line(desk) for _ in range(4)]
    assert lines[0].told(10) == pytest.approx(1_500)
    for line in lines[1:]:
        assert line.produce(10) is None
    desk.now_ms = 1_501
    assert lines[1].told(10) == pytest.approx(6_000, abs=2)


def test_nothing_is_charged_before_the_broker_has_answered() -> None:
    """What it answers to those only whom it lets in; one question, whatever comes."""
    desk = Desk(GROUPS)
    line = Line(desk, proven=False)
    assert line.produce(100) is None and line.produce(100) is None
    frame, header = fetch_request(12, {TOPIC: 1})
    assert line.connection_meter.fetch(frame, header, "bob") is None
    assert [ids for ids, _ in line.asked] == [[]] and not used(desk.meter)
    line.asked[0][1]({})
    assert line.woken and line.produce(100) is not None and used(desk.meter)["rg1"][0] == 100


def test_the_stricter_of_user_and_group_wins() -> None:
    """And is named in the metric."""
    desk = Desk({**GROUPS, **ALICE})
    line = Line(desk)
    desk.meter.interval_ms = 10**9
    frame, _ = produce(9, {TOPIC: [batch(100)]})
    assert line.told(100, "alice") == pytest.approx((len(frame) - 25) / 50 * 1_000)
    by_user = desk.metrics.throttled_frames.labels("user", "publishRateInBytes")._value.get()
    by_group = desk.metrics.throttled_frames.labels("group", "publishRateInMsgs")._value.get()
    account = desk.meter.accounts["quota/user=alice"]
    assert (by_user, by_group) == (1, 0)
    assert account.used == [0, len(frame), 0, 0]


def test_bytes_of_users_are_those_of_whole_frames() -> None:
    """Requests and responses alike."""
    desk = Desk(ALICE)
    line = Line(desk)
    response = fetch_response(12, {TOPIC: [batch(5)]})
    whole(line.connection_meter.fetched(response, RequestHeader(FETCH, 12, 1, "tests", 0), "alice"))
    line.produce(1, user="alice")
    frame, _ = produce(9, {TOPIC: [batch(1)]})
    assert used(desk.meter) == {"quota/user=alice": [0, len(frame), 0, len(response)]}


def test_a_response_that_comes_in_debt_brings_nothing() -> None:
    """Many Fetches were on their way when the first took all: the others lose records, not their place."""
    desk = Desk({**POLICIES, "resourcegroups.rg1": {"dispatchRateInMsgs": 100}})
    alone(desk.meter)
    desk.meter.interval_ms = 10**9
    header = RequestHeader(FETCH, 12, 1, "tests", 0)
    response = fetch_response(12, {TOPIC: [batch(300)]}, session_id=5)
    first, second = Line(desk), Line(desk)
    assert whole(first.connection_meter.fetched(response, header, "bob"))[0] == response
    others = [response]
    # With some topics alone it would be damaged to clients, which take none for a wait.
    fetching = second.connection_meter.fetched(response, header, "bob", cut=lambda _: others.pop())
    emptied, told_ms = whole(fetching)
    assert not others
    read = decode(FetchResponse, 12, bytes(emptied))
    assert (read.session_id, read.error_code, read.responses, told_ms) == (5, 0, [], 2_500)
    assert used(desk.meter)["rg1"][2] == 300 and desk.metrics.traffic.emptied == 1
    without = fetch_response(12, {TOPIC: [b""]})
    assert whole(second.connection_meter.fetched(without, header, "bob")) == (without, 0)


@pytest.mark.parametrize("version", [8, 9, 13])
def test_what_a_broker_refuses_is_refunded(version: int) -> None:
    """Of each partition by its own error."""
    desk = Desk({**GROUPS, "tenants.acme": {"resourcegroup": "rg2"}})
    line = Line(desk)
    topics = {TOPIC: [batch(5), batch(7)], "acme.other.t": [batch(3)]}
    desk.frames.names.update({key_of(name, True): name for name in topics})
    frame, header = produce(version, topics)
    admitted = line.connection_meter.produce(frame, header, "bob")
    assert admitted is not None and len(admitted.parts) == 3
    errors = {TOPIC: [0, 87], "acme.other.t": [3]}
    assert line.connection_meter.answered(admitted, produce_response(version, errors), version)
    assert desk.meter.accounts["rg1"].refunded[:2] == [7, len(batch(7))]
    assert desk.meter.accounts["rg2"].refunded[:2] == [3, len(batch(3))]
    good = {name: [0] * len(batches) for name, batches in topics.items()}
    assert not line.connection_meter.answered(admitted, produce_response(version, good), version)


@pytest.fixture
def desk() -> Desk:
    """Its topics are in groups."""
    return Desk(GROUPS)


@pytest.fixture
def line(desk: Desk) -> Line:
    """A connection."""
    return Line(desk)


def test_topic_ids_that_are_known(desk: Desk, line: Line) -> None:
    """Learnt from Metadata, they cost nothing."""
    desk.frames.names.update({key_of(TOPIC, True): TOPIC})
    line.produce(3, version=13)
    assert not line.asked and desk.meter.accounts["rg1"].used[0] == 3


def test_topic_ids_that_are_looked_up() -> None:
    """The request waits for the name, so that nobody passes without one."""
    desk = Desk({**GROUPS, "broker": {"resourceUsagePublishIntervalInSecs": 1}})
    line = Line(desk)
    assert line.produce(30, version=13) is None and line.produce(30, version=13) is None
    ((ids, done),) = line.asked
    assert ids == [key_of(TOPIC, True)] and not used(desk.meter)
    done({ids[0]: TOPIC})
    admitted = line.produce(30, version=13)
    assert line.woken and admitted is not None and admitted.told_ms == 1_000
    assert desk.meter.accounts["rg1"].used[0] == 30 and len(line.asked) == 1


def test_a_topic_that_nobody_knows_is_not_looked_up_each_time() -> None:
    """After a while it is, since a new topic reaches the brokers late; and by others, who may see more."""
    desk = Desk(GROUPS)
    line, other = Line(desk), Line(desk)
    line.produce(1, version=13)
    line.asked[0][1]({})
    assert line.produce(1, version=13) is not None and desk.meter.unmetered == 1
    assert len(line.asked) == 1 and other.produce(1, version=13) is None
    desk.now_ms += ABSENT_MS + 1
    assert line.produce(1, version=13) is None and len(line.asked) == 2


def test_ids_that_nobody_knows_are_bounded(line: Line) -> None:
    """The oldest is looked up again."""
    for number in range(ABSENT_MAX + 5):
        assert line.produce(1, f"t{number}", version=13) is None
        line.asked[-1][1]({})
        assert line.produce(1, f"t{number}", version=13) is not None
    assert len(line.connection_meter.naming._until_ms) == ABSENT_MAX
    assert line.produce(1, "t0", version=13) is None


def test_one_request_with_many_ids_ends_asking(
    desk: Desk, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some at a time and each once, however many nobody knows, and more than are remembered."""
    monkeypatch.setattr("enforcer.kafka.names.ABSENT_MAX", 2)
    frame, header = produce(13, {f"t{number}": [batch(1)] for number in range(3 * ASKED_AT_ONCE)})
    for asked in (1, 2, 3):
        assert line.connection_meter.produce(frame, header, "bob") is None
        assert len(line.asked) == asked and len(line.asked[-1][0]) == ASKED_AT_ONCE
        line.asked[-1][1]({})
    assert line.connection_meter.produce(frame, header, "bob") is not None
    assert desk.meter.unmetered == 3 * ASKED_AT_ONCE and not line.connection_meter.naming._asked


def test_an_unknown_topic_beside_one_in_debt_is_counted_once(desk: Desk, line: Line) -> None:
    """When its request goes on, not each time that it is looked at."""
    desk.frames.names.update({key_of(TOPIC, True): TOPIC})
    line.told(10)
    frame, header = produce(13, {TOPIC: [batch(1)], "unknown": [batch(1)]})
    assert line.connection_meter.produce(frame, header, "bob") is None
    line.asked[0][1]({})
    assert line.connection_meter.produce(frame, header, "bob") is None and desk.meter.unmetered == 0
    desk.now_ms = 2_000
    assert line.connection_meter.produce(frame, header, "bob") is not None and desk.meter.unmetered == 1


def test_a_large_metadata_response_is_not_read(desk: Desk, line: Line) -> None:
    """Its ids are looked up when they are needed."""
    line.connection_meter.described(bytes(LEARN_MAX_BYTES + 1), 12)
    line.connection_meter.described(b"anything", 9)
    assert not desk.frames.names


@pytest.mark.parametrize("version", [4, 11, 12, 16])
def test_a_fetch_of_a_limited_group_brings_less(desk: Desk, line: Line, version: int) -> None:
    """A quarter of a second of the share; in a session its topics are remembered, until it begins anew."""
    desk.frames.names.update({key_of(TOPIC, True): TOPIC, key_of("plain", True): "plain"})
    assert sessions(line, version, {TOPIC: 2}, epoch=0) == 5_000  # 5 % of 400,000
    desk.share(dispatchRateInBytes=100_000.0)
    if version >= 7:
        assert sessions(line, version, {}, epoch=1) == 25_000
        assert sessions(line, version, {"plain": 1}, epoch=2) == 25_000
    # What is read whole is never so much that a few consumers would fill the proxy.
    assert sessions(line, version, {"plain": 1}, epoch=0) == FETCH_LIMIT_MAX


@pytest.mark.parametrize("version", [4, 11, 12, 16])
def test_a_fetch_that_brings_less_waits_for_no_more_than_that(version: int) -> None:
    """And one that asks for less than its share passes as it came, with what a broker cut off in it."""
    desk = Desk(GROUPS)
    alone(desk.meter)
    line = Line(desk)
    desk.frames.names.update({key_of(TOPIC, True): TOPIC})
    for least, most, sent_least, sent_most in (
        (1, 1 << 20, 1, 100_000),
        (1 << 19, 1 << 20, 100_000, 100_000),
        (1 << 19, 99_999, 1 << 19, 99_999),
    ):
        frame, header = fetch_request(version, {TOPIC: 1}, max_bytes=most, min_bytes=least)
        admitted = line.connection_meter.fetch(frame, header, "bob")
        assert admitted is not None
        sent, limit = admitted
        read = decode(FetchRequest, version, sent)
        assert (read.min_bytes, read.max_bytes, limit) == (
            sent_least, sent_most, sent_most if sent_most < most else 0,
        )  # fmt: skip


@pytest.mark.parametrize("version", [4, 11, 12, 16])
def test_what_our_limit_cuts_off_is_not_charged(version: int) -> None:
    """No consumer can read half of a batch: it neither gets it nor has it taken off its limit."""
    data, header = batch(10, size=100), RequestHeader(FETCH, version, 1, "c", 0)
    cut = fetch_response(version, {TOPIC: [data + data[:-1], data[:20], data, b""], "u": [data[:5]]})
    trimmed = fetch_response(version, {TOPIC: [data, b"", data, b""], "u": [b""]})
    for limit, left, sizes in ((len(cut) - 1, trimmed, 2), (len(cut), cut, 3)):
        desk = Desk(GROUPS)
        alone(desk.meter)
        desk.frames.names.update({key_of(TOPIC, True): TOPIC, key_of("u", True): "u"})
        brought, _ = whole(Line(desk).connection_meter.fetched(cut, header, "bob", limit))
        assert decode(FetchResponse, version, bytes(brought)) == decode(FetchResponse, version, left)
        taken = len(data) * 2 if sizes == 2 else len(data) * 3 - 1 + 20
        assert desk.meter.accounts["rg1"].used == [0, 0, 20, taken]


def test_a_fetch_limit_follows_the_policies(desk: Desk, line: Line) -> None:
    """Also in the middle of a session."""
    assert sessions(line, 11, {TOPIC: 2}, epoch=0) == 5_000
    desk.meter.set_policies(PolicySet({**GROUPS, "namespaces.acme/orders": {"resourcegroup": "rg2"}}))
    assert sessions(line, 11, {}, epoch=1) == FETCH_LIMIT_MAX


def test_a_limit_in_messages_is_turned_into_bytes() -> None:
    """By the mean size of the records that were seen."""
    desk = Desk({**POLICIES, "resourcegroups.rg1": {"dispatchRateInMsgs": 10_000}})
    line = Line(desk)
    assert sessions(line, 11, {TOPIC: 1}, epoch=0) == 16_000  # 500 x 0.25 x 128
    data = batch(10, size=1_000)
    response = fetch_response(11, {TOPIC: [data]})
    whole(line.connection_meter.fetched(response, RequestHeader(FETCH, 11, 1, "c", 0), "bob"))
    assert sessions(line, 11, {}, epoch=1) == int(125 * len(data) / 10)


def test_fetched_records_are_charged_by_id(desk: Desk, line: Line) -> None:
    """A Fetch by id looks its topics up when its session begins."""
    frame, header = fetch_request(16, {TOPIC: 1})
    assert line.connection_meter.fetch(frame, header, "bob") is None
    ((ids, done),) = line.asked
    done({ids[0]: TOPIC})
    assert sessions(line, 16, {TOPIC: 1}, epoch=0) == 5_000
    header = RequestHeader(FETCH, 16, 1, "c", 0)
    data = batch(300, size=100)
    assert whole(line.connection_meter.fetched(fetch_response(16, {TOPIC: [data]}), header, "bob"))[1] > 0
    assert desk.meter.accounts["rg1"].used == [0, 0, 300, len(data)]
    desk.now_ms = 10_000.0
    assert sessions(line, 16, {}, epoch=1) == 5_000


def test_what_has_no_name_passes_once_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with the topics that are read: it is counted as not metered."""
    monkeypatch.setattr("enforcer.wire.kafka.traffic.FETCH_PARTS_MAX", 1)
    desk = Desk(GROUPS)
    line, header = Line(desk), RequestHeader(FETCH, 16, 1, "c", 0)
    desk.frames.names.update({key_of("a", True): "a"})
    frame, asked = fetch_request(16, {"a": 1, "b": 1})
    data = fetch_response(16, {"b": [batch(9)]})
    for brings, unmetered in ((False, 0), (True, 1)):
        if line.connection_meter.fetch(frame, asked, "bob") is None:
            line.asked[0][1]({})
            assert line.connection_meter.fetch(frame, asked, "bob") is not None
        brought, _ = whole(line.connection_meter.fetched(data, header, "bob"))
        assert (brought == data) is brings and desk.meter.unmetered == unmetered
